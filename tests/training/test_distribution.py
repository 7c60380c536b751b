"""Several devices and several processes: what one alone would have found.

The processes are real ones, on loopback, started as a user starts them. Whatever
becomes of a test, its processes end with it.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from tfxformer.errors import UserError
from tfxformer.training import distribution
from tfxformer.training.distribution import Workers
from tfxformer.training.step_math import with_shares

SETTINGS = [
    "model.num_layers=1",
    "model.d_model=32",
    "model.num_heads=2",
    "model.dff=64",
    "model.max_length=24",
    "model.dropout_rate=0",
    "tokenizer.vocab_size=330",
    "data.valid_pairs=20",
    "training.tokens_per_batch=256",
    "training.learning_rate=0.001",
    "training.warmup_steps=20",
    "training.validate_every=5",
    "training.steps=10",
    "training.ema_decay=0.9",
    "training.accumulate=2",
]

# The command line, which leaves behind what this process ends with.
DRIVER = """
import os, sys
import numpy as np
from tfxformer.cli import main
from tfxformer.quiet import start_tensorflow

devices = int(os.environ["DEVICES"])
import keras
if devices > 1:
    import tensorflow as tf
    (cpu,) = tf.config.list_physical_devices("CPU")
    two = [tf.config.LogicalDeviceConfiguration()] * devices
    tf.config.set_logical_device_configuration(cpu, two)
from tfxformer.training import trainer

class Kept(trainer._Trainer):
    def train(self):
        super().train()
        state = self.step.state()
        found = {v.path: keras.ops.convert_to_numpy(v) for v in self.model.weights}
        for name, arrays in state.items():
            found |= {f"{name}/{i}": array for i, array in enumerate(arrays)}
        np.savez(os.environ["WEIGHTS"], **found)

trainer._Trainer = Kept
main()
"""


def environment(devices, weights):
    root = os.path.dirname(os.path.dirname(distribution.__file__))
    path = [os.path.dirname(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join(path),
        "DEVICES": str(devices),
        "WEIGHTS": str(weights),
    }


def cluster(number, ports):
    """What tells a process of two about the other."""
    addresses = [f"127.0.0.1:{port}" for port in ports]
    task = {"type": "worker", "index": number}
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task})}


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@pytest.fixture
def start(tmp_path):
    """Starts a training process; whatever is left of it ends with the test."""
    processes = []

    def started(out, *settings, devices=1, weights="weights.npz", more=None):
        command = [sys.executable, "-c", DRIVER, "train", "--data", "pairs.tsv"]
        command += ["--out", str(out)]
        for setting in [*SETTINGS, *settings]:
            command += ["--set", setting]
        name = f"process-{len(processes)}"
        with (
            open(tmp_path / f"{name}.out", "wb") as out_file,
            open(tmp_path / f"{name}.err", "wb") as err_file,
        ):
            process = subprocess.Popen(
                command,
                cwd=tmp_path,
                env={**environment(devices, weights), **(more or {})},
                stdout=out_file,
                stderr=err_file,
            )
        process.said = lambda: (tmp_path / f"{name}.err").read_text()
        process.answered = lambda: (tmp_path / f"{name}.out").read_text()
        processes.append(process)
        return process

    yield started
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def start_two(start):
    def started(out, *settings, theirs=None):
        ports = free_ports(2)
        return [
            start(
                out if number == 0 or theirs is None else theirs,
                *settings,
                weights=f"weights-{number}.npz",
                more=cluster(number, ports),
            )
            for number in (0, 1)
        ]

    return started


@pytest.fixture
def folder(tmp_path):
    """Where the processes run, with a corpus in it."""
    rng = np.random.default_rng(0)
    words = ["um", "dois", "três", "quatro", "cinco", "seis", "sete"]
    english = ["one", "two", "three", "four", "five", "six", "seven"]
    rows = {tuple(rng.integers(0, 7, rng.integers(2, 7))) for _ in range(600)}
    lines = [
        f"{' '.join(words[i] for i in row)}\t{' '.join(english[i] for i in row)}\n"
        for row in sorted(rows)
    ]
    (tmp_path / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    return tmp_path


def assert_alike(found, expected):
    """The same to 1e-4, and the optimiser's means of gradients too.

    Of attention's key bias alone the gradient is 0 (softmax does not see it), up to
    rounding errors, which Adam makes steps of: these bring about no other output.
    """
    assert found.files == expected.files
    compared = 0
    for name in expected.files:
        scale = 1.0
        if name.startswith(("optimizer", "averages")):
            # A gradient's mean may be of any size.
            scale = max(np.abs(expected[name]).max(), 1e-6)
        key_bias = name.endswith("key_dense/bias")
        if key_bias or (scale == 1e-6):
            continue
        if np.abs(found[name] - expected[name]).max() / scale >= 1e-4:
            # The averages and moments of key biases have no name.
            assert not np.issubdtype(expected[name].dtype, np.integer), name
            assert expected[name].shape == (32,), name
            continue
        compared += 1
    assert compared > len(expected.files) * 0.8


def ended(process, seconds=120):
    """Its exit code; a test fails that waits longer."""
    return process.wait(timeout=seconds)


def wait_for(text, process, seconds=120):
    """Until a process has said something."""
    until = time.monotonic() + seconds
    while text not in process.said():
        assert process.poll() is None, process.said()
        assert time.monotonic() < until, process.said()
        time.sleep(0.1)


@pytest.mark.slow
def test_two_devices_are_like_one(folder, start):
    one, two = (
        start(f"run-{n}", devices=n, weights=f"weights-{n}.npz") for n in (1, 2)
    )
    assert [ended(one), ended(two)] == [0, 0], one.said() + two.said()
    assert "2 CPU" in two.said()
    expected, found = (np.load(folder / f"weights-{n}.npz") for n in (1, 2))
    assert_alike(found, expected)


@pytest.mark.slow
def test_two_processes_are_like_one(folder, start, start_two):
    alone = start("alone", weights="weights.npz")
    both = start_two("both")
    assert [ended(p) for p in (alone, *both)] == [0, 0, 0], both[1].said()
    expected = np.load(folder / "weights.npz")
    found = [np.load(folder / f"weights-{n}.npz") for n in (0, 1)]
    for name in found[0].files:
        np.testing.assert_array_equal(found[0][name], found[1][name], err_msg=name)
    assert_alike(found[0], expected)
    # One of them speaks for both, and both answer with the run folder.
    assert "best perplexity" in both[0].said() and "step" not in both[1].said()
    assert [p.answered() for p in both] == ["both\n"] * 2
    metrics = [
        [json.loads(line) for line in (folder / name / "metrics.jsonl").open()]
        for name in ("alone", "both")
    ]
    assert len(metrics[0]) == len(metrics[1])
    for ours, theirs in zip(*metrics, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_stops_the_other_and_a_restart_goes_on(
    victim, folder, start, start_two
):
    long = "training.steps=60"
    both = start_two("both", long)
    wait_for("step 10:", both[0])
    both[victim].kill()
    other = both[1 - victim]
    assert ended(other, 60) == 1
    last = other.said().splitlines()[-1]
    assert last.startswith("tfxformer: error: worker") and "was lost" in last
    assert "Traceback" not in other.said() and "stack trace" not in other.said()

    again = start_two("both", long)
    assert [ended(p) for p in again] == [0, 0], again[0].said() + again[1].said()
    assert "going on from step" in again[0].said()
    # As if nobody had been killed.
    whole = start_two("whole", long)
    assert [ended(p) for p in whole] == [0, 0]
    with np.load(folder / "weights-0.npz") as expected:
        expected = dict(expected)
    again = start_two("both", long)  # finished: gives what it has
    assert [ended(p) for p in again] == [0, 0]
    with np.load(folder / "weights-1.npz") as found:
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


@pytest.mark.slow
def test_a_signal_to_one_process_stops_both_with_all_saved(folder, start_two):
    both = start_two("both", "training.steps=100000")
    wait_for("step 5:", both[0])
    both[1].send_signal(signal.SIGTERM)
    assert [ended(p, 60) for p in both] == [75, 75]
    said = [p.said().splitlines()[-1] for p in both]
    assert said[0] == said[1] and "is saved" in said[0]
    step = int(said[0].split("step ")[1].split()[0].replace(",", ""))
    assert (folder / "both" / "checkpoints" / f"step-{step:08d}").is_dir()


@pytest.mark.slow
def test_a_folder_that_is_not_shared_stops_all(folder, start_two):
    both = start_two("here", theirs="elsewhere")
    assert [ended(p, 60) for p in both] == [1, 1]
    for process in both:
        assert "elsewhere" in process.said().splitlines()[-1]
    assert "worker 1:" in both[0].said()
    assert not (folder / "elsewhere").exists()


@pytest.mark.slow
def test_what_the_chief_refuses_stops_all(folder, start_two):
    (folder / "pairs.tsv").unlink()
    both = start_two("both")
    assert [ended(p, 60) for p in both] == [1, 1]
    assert "pairs.tsv" in both[0].said().splitlines()[-1]
    assert "worker 0:" in both[1].said() and "pairs.tsv" in both[1].said()


def pair_of_workers(*others):
    """The first of several, where the others have what is given, in turn."""
    queues = [iter(each) for each in others]

    def exchange(vector):
        return np.stack([vector, *(np.resize(next(q), len(vector)) for q in queues)])

    return Workers(0, 1 + len(others), exchange=exchange)


def encoded(value):
    text = np.frombuffer(json.dumps(value).encode(), np.uint8).astype("f4")
    return [np.array([len(text) >> 16, len(text) & 65535], "f4"), text]


def test_values_of_any_size_are_gathered():
    ours, theirs = {"a": "ü" * 70_000}, {"a": "ü" * 70_000, "b": [1.5, None]}
    length = len(json.dumps(theirs))
    text = encoded(theirs)
    workers = pair_of_workers([text[0], np.resize(text[1], length)])
    assert workers.gather(ours)[1] == theirs


def test_who_differs_is_named_with_what():
    workers = pair_of_workers(encoded({"model.dff": 64, "x": 10}))
    with pytest.raises(UserError, match=r"worker 1: its settings.*\(model\.dff\)"):
        workers.same("its settings", {"model.dff": 32, "x": 10})
    assert workers.agreed


def test_one_that_fails_stops_all():
    workers = pair_of_workers(encoded("disk full, alas: make room, please"))
    with pytest.raises(UserError, match="worker 1: disk full"):
        workers.together(lambda: 5)
    workers = pair_of_workers(encoded(None))
    assert workers.together(lambda: 5) == 5


def test_alone_nothing_is_exchanged():
    alone = Workers()
    assert alone.chief and alone.gather(3) == [3] and alone.chiefs("x") == "x"
    assert alone.largest(15) == 15 and alone.together(lambda: 7) == 7
    alone.same("anything", {"a": 1})


@pytest.mark.parametrize("rows", [1, 4, 5])
def test_every_device_has_as_many_rows(rows):
    source = np.arange(1, rows * 3 + 1, dtype=np.int32).reshape(rows, 3)
    (padded, target_in), target_out = with_shares(((source, source), source), 4)
    assert len(padded) % 4 == 0 and len(padded) - rows < 4
    assert padded.dtype == np.int32
    for ids in (padded, target_in, target_out):
        np.testing.assert_array_equal(ids[:rows], source)
        assert not ids[rows:].any()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, None),
        ("", None),
        ("{}", None),
        ('{"cluster": {"worker": ["a:1"]}, "task": {}}', None),
        (
            '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", '
            '"index": 1}}',
            (1, ("a:1", "b:1")),
        ),
        (
            '{"cluster": {"worker": ["a:1"], "chief": ["c:1"]}, "task": {"type": '
            '"worker", "index": 0}}',
            (1, ("c:1", "a:1")),
        ),
    ],
)
def test_tf_config_says_who_is_who(monkeypatch, text, found):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if text is not None:
        monkeypatch.setenv("TF_CONFIG", text)
    assert distribution._tf_config() == found


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "[1]",
        '{"cluster": []}',
        '{"cluster": {"worker": ["a:1", "b:1"]}}',
        '{"cluster": {"worker": ["a:1", 2]}, "task": {"type": "worker", "index": 0}}',
        '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "ps", "index": 0}}',
        '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", '
        '"index": 2}}',
        '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", '
        '"index": -1}}',
    ],
)
def test_a_wrong_tf_config_is_refused_by_name(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UserError, match="TF_CONFIG") as error:
        distribution._tf_config()
    assert "\n" not in str(error.value)
