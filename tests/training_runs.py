"""Small training runs: corpora, settings, results and simulated failures."""

import collections
import contextlib
import json
import os
import signal

import h5py
import numpy as np
import tensorflow as tf

from tfxformer.config import load_config
from tfxformer.training import callbacks

PORTUGUESE = "zero um dois três quatro cinco seis sete oito nove".split()  # noqa: SIM905
ENGLISH = "zero one two three four five six seven eight nine".split()  # noqa: SIM905
SMALL = {
    "model": {
        "num_layers": 1,
        "d_model": 16,
        "num_heads": 2,
        "dff": 32,
        "max_length": 24,
        "dropout_rate": 0.1,
    },
    "tokenizer": {"vocab_size": 330},
    "data": {"valid_pairs": 20},
    "training": {
        "tokens_per_batch": 256,
        "optimizer": "adam",
        "schedule": "inverse_sqrt",
        "learning_rate": None,
        "warmup_steps": 20,
        "validate_every": 4,
    },
}
# Settings with every kind of state that a checkpoint saves.
EVERYTHING = {
    "data": {"weights": [1.0, 2.0]},
    "training": {
        "steps": 7,
        "accumulate": 2,
        "ema_decay": 0.9,
        "validate_every": 3,
        "checkpoint_every": 2,
        "patience": 9,
        "bleu_pairs": 3,
    },
}


def numbers(count):
    """Distinct pairs such as ("um dois", "one two")."""
    rng, rows = np.random.default_rng(0), {}
    while len(rows) < count:
        digits = rng.integers(0, 10, rng.integers(1, 8)).tolist()
        rows[tuple(digits)] = tuple(
            " ".join(words[i] for i in digits) for words in (PORTUGUESE, ENGLISH)
        )
    return [*rows.values()]


def write_pairs(path, pairs):
    path.write_text("".join(f"{s}\t{t}\n" for s, t in pairs), encoding="utf-8")
    return path


def settings(sources, *changes):
    """Settings of a small run; changes are dictionaries of sections, or strings."""
    sources = sources if isinstance(sources, list) else [sources]
    data = {"data": {"sources": [str(source) for source in sources]}}
    return load_config("tiny", overrides=[SMALL, data, *changes])


def rows(run):
    """The rows of a run's metrics file."""
    return [json.loads(line) for line in run.metrics_file.read_text().splitlines()]


def weights(file):
    """The arrays of a weights file, by name."""
    found = {}

    def note(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = item[()]

    with h5py.File(file) as opened:
        opened.visititems(note)
    return found


def outcome(run):
    """The state, weights and metrics of a run, without times."""
    newest = run.newest_checkpoint()
    found = {"state": newest.state() | {"metrics_size": None}}
    found["arrays"] = dict(enumerate(newest.arrays()))
    for name in ("best", "last"):
        if run.weights_file(name).exists():
            found[name] = weights(run.weights_file(name))
    timed = "target_tokens_per_second"
    found["metrics"] = [{**row, timed: None} for row in rows(run)]
    return found


def assert_same_outcome(found, expected):
    """Compares bit for bit."""
    assert found.keys() == expected.keys()
    for name in ("state", "metrics"):
        assert found[name] == expected[name]
    for name in found.keys() - {"state", "metrics"}:
        assert found[name].keys() == expected[name].keys()
        for key, array in found[name].items():
            np.testing.assert_array_equal(array, expected[name][key], f"{name} {key}")


def leftovers(run):
    """Partial files, which a finished run must not have."""
    return [path for path in run.path.rglob("*") if ".part" in path.name]


@contextlib.contextmanager
def eagerly():
    """In this context, training builds no graphs, and translations repeat the source.

    A few steps then take a tenth of the time.
    """
    real, callbacks.decode = callbacks.decode, lambda _, ids: Echo(ids[:, None])
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        callbacks.decode = real
        tf.config.run_functions_eagerly(False)


Echo = collections.namedtuple("Echo", "ids")


class Killed(BaseException):
    """Simulates the end of the process."""


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def die():
    raise Killed


def fill_disk(monkeypatch, at):
    """Simulates a full disk at the n-th call of `os.fsync`."""
    real, calls = os.fsync, []

    def fsync(descriptor):
        real(descriptor)
        calls.append(1)
        if len(calls) == at:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
