"""One small translator, trained and exported once, for all the tests that need one."""

import contextlib
import fcntl
import functools
import sys

import pytest

from tfxformer.console import start_tensorflow

start_tensorflow()

from tfxformer import corpora  # noqa: E402
from tfxformer.config import load_config  # noqa: E402
from tfxformer.decoding import DecodingOptions  # noqa: E402
from tfxformer.training.trainer import train  # noqa: E402
from tfxformer.translator import Translator  # noqa: E402

LOAD = functools.cache(Translator.load)

# Seconds of training on few and short pairs, so that it stutters but ends sentences.
SMALL = {
    "model": {"num_layers": 1, "d_model": 64, "num_heads": 4, "dff": 128}
    | {"max_length": 48, "dropout_rate": 0},
    "tokenizer": {"vocab_size": 700},
    "data": {"valid_pairs": 50},
    "training": {"steps": 80, "tokens_per_batch": 1024, "schedule": "inverse_sqrt"}
    | {"learning_rate": None, "label_smoothing": 0}
    | {"warmup_steps": 40, "validate_every": 40},
}


@pytest.fixture(scope="session")
def once(tmp_path_factory, worker_id):
    """A path with a lock, for data that the workers of pytest share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "shared"
    folder.mkdir(exist_ok=True)

    @contextlib.contextmanager
    def once(name):
        with open(folder / f".{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder / name

    return once


@pytest.fixture(scope="session")
def run_folder(once):
    """A run that knows a little Portuguese, so that it translates some words."""
    with once("small") as out:
        pairs = [p for p in corpora.load("phrasebook")[0] if max(map(len, p)) <= 30]
        lines = [f"{source}\t{target}\n" for source, target in pairs[::10]]
        file = out.with_name("pairs.tsv")
        file.write_text("".join(lines), "utf-8")
        data = {"data": {"sources": [str(file)]}}
        # `train` returns at once if the run is complete.
        return train(load_config("tiny", overrides=[SMALL, data]), out).path


@pytest.fixture(scope="session")
def translator(run_folder):
    return Translator.load(run_folder)


@pytest.fixture(scope="session")
def brief(translator):
    """A translator with short translations, because eager decoding is slow."""
    options = DecodingOptions(max_length=8)
    return Translator(translator.tokenizer, translator.transformer, options)


@pytest.fixture(scope="session")
def exported(run_folder, once):
    from tfxformer.exporting.saved_model import export

    with once("export") as folder:
        if not folder.exists():
            _, report = export(run_folder, folder)
            folder.with_name("report.txt").write_text(report.describe(), "utf-8")
        return max(folder.glob("*/1"))


@pytest.fixture(scope="session")
def served(exported):
    """A translator that calls the exported signatures."""
    import tensorflow as tf

    translator = Translator.load(exported)
    translator.loaded = tf.saved_model.load(str(exported))
    translator.signatures = dict(translator.loaded.signatures)
    return translator


@pytest.fixture
def loaded_once(monkeypatch):
    """Loads each model and traces its graphs once for all tests."""
    monkeypatch.setattr(Translator, "load", LOAD)


@pytest.fixture
def command(monkeypatch, capfd):
    """Runs `tfxformer` in this process; returns stdout, stderr and the exit code."""
    from tfxformer import cli

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["tfxformer", *map(str, args)])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        return *capfd.readouterr(), code

    return run
