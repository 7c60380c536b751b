"""Training on several devices and processes gives the results of one.

The tests start real processes on loopback, with the command, and end them even when a
test fails.
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
from training_runs import SMALL, numbers, outcome, rows, weights, write_pairs

from tfxformer.errors import UserError
from tfxformer.training.cluster import join
from tfxformer.training.run import Run

# Each device clips its own gradient, and dropout drops other values.
SETTINGS = {
    "model": SMALL["model"] | {"dropout_rate": 0.0},
    "training": SMALL["training"]
    | {"clip_norm": None, "learning_rate": 0.001, "ema_decay": 0.9, "steps": 10},
}
# The command line, on several devices of the CPU.
DRIVER = """
import os
from tfxformer.cli import main
if int(os.environ["DEVICES"]) > 1:
    import tensorflow as tf
    (cpu,) = tf.config.list_physical_devices("CPU")
    two = [tf.config.LogicalDeviceConfiguration()] * int(os.environ["DEVICES"])
    tf.config.set_logical_device_configuration(cpu, two)
main()
"""


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@pytest.fixture
def folder(tmp_path):
    write_pairs(tmp_path / "pairs.tsv", numbers(400))
    (tmp_path / "settings.yaml").write_text(json.dumps(SMALL | SETTINGS))
    return tmp_path


@pytest.fixture
def start(folder):
    """Starts a training process, which ends with the test."""
    processes = []

    def started(out, *more, devices=1, **environment):
        command = [sys.executable, "-c", DRIVER, "train", "--data", "pairs.tsv"]
        command += ["--config", "settings.yaml", "--out", out, *more]
        said = open(folder / f"process-{len(processes)}", "w+")  # noqa: SIM115
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "DEVICES": str(devices), **environment},
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        process.said = lambda: (said.seek(0), said.read())[1]
        processes.append(process)
        return process

    yield started
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def start_two(start):
    def started(*outs_and_more):
        first, second, *more = outs_and_more
        workers = [f"127.0.0.1:{port}" for port in free_ports(2)]
        found = []
        for number, out in enumerate((first, second)):
            task = {"type": "worker", "index": number}
            config = json.dumps({"cluster": {"worker": workers}, "task": task})
            found.append(start(out, *more, TF_CONFIG=config))
        return found

    return started


def ends(*processes):
    return [process.wait(timeout=240) for process in processes]


def wait_for(text, process):
    until = time.monotonic() + 240
    while text not in process.said():
        assert process.poll() is None and time.monotonic() < until, process.said()
        time.sleep(0.1)


def assert_alike(folder, found, expected):
    """Compares the weights, except the key bias of attention.

    Its gradient is 0 up to rounding errors, because softmax cancels it. Adam turns the
    errors into steps, which do not change the output.
    """
    found, expected = Run(folder / found), Run(folder / expected)
    for name in ("best", "last"):
        theirs = weights(expected.weights_file(name))
        for path, array in weights(found.weights_file(name)).items():
            if not path.endswith("key_dense/vars/1"):
                np.testing.assert_allclose(array, theirs[path], atol=1e-5)
    for ours, theirs in zip(rows(found), rows(expected), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)


@pytest.mark.slow
def test_training_on_two_devices_or_two_processes_equals_training_on_one(
    folder, start, start_two
):
    processes = start("one"), start("two", devices=2), *start_two("both", "both")
    assert ends(*processes) == [0] * 4, [process.said() for process in processes]
    assert "on 2 CPUs" in processes[1].said()
    assert "on 2 CPUs of 2 processes" in processes[2].said()
    # Only one of them logs.
    assert "best perplexity" in processes[2].said()
    assert "perplexity" not in processes[3].said()
    assert_alike(folder, "two", "one")
    assert_alike(folder, "both", "one")


@pytest.mark.slow
def test_a_signal_to_one_process_stops_both_and_they_resume(folder, start, start_two):
    both = start_two("both", "both", "--steps", "40")
    wait_for("step 4:", both[0])
    both[1].send_signal(signal.SIGTERM)
    assert ends(*both) == [75, 75], both[0].said() + both[1].said()
    said = [process.said().splitlines()[-1] for process in both]
    assert said[0] == said[1] and "is saved" in said[0]
    step = int(said[0].split("step ")[1].split()[0])
    assert (folder / "both" / "checkpoints" / f"step-{step:08d}").is_dir()
    again = start_two("both", "both", "--steps", str(step + 4))
    one = start("one", "--steps", str(step + 4))
    assert ends(*again, one) == [0] * 3, again[0].said() + again[1].said()
    assert outcome(Run(folder / "both"))["state"]["step"] == step + 4
    assert_alike(folder, "both", "one")


@pytest.mark.slow
def test_an_error_in_one_process_stops_all_processes(folder, start_two):
    both = start_two("here", "elsewhere")
    assert ends(*both) == [1, 1]
    assert "another worker was lost" in both[0].said().splitlines()[-1]
    said = both[1].said().splitlines()[-1]
    assert "elsewhere: all workers must share one run folder" in said
    assert not (folder / "elsewhere").exists()


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["accumulate=2", "xla=true"])
def test_settings_for_a_single_device_are_refused_on_two_devices(
    setting, folder, start
):
    process = start("run", "--set", f"training.{setting}", devices=2)
    assert ends(process) == [1]
    said = process.said().splitlines()[-1]
    assert "work on one device only" in said and not (folder / "run").exists()


@pytest.mark.parametrize("text", ["nonsense", '{"cluster": {"worker": ["a:1", 2]}}'])
def test_a_wrong_tf_config_is_refused_by_name(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UserError, match="TF_CONFIG") as error:
        join()
    assert "\n" not in str(error.value)
