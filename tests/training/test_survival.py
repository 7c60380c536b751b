"""Training resumes after real processes are killed, stopped or out of disk space.

The environment variable TFXFORMER_KILLS sets the number of kills, by default 12.
"""

import collections
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time

import pytest
from training_runs import (
    EVERYTHING,
    SMALL,
    assert_same_outcome,
    leftovers,
    numbers,
    outcome,
    settings,
    terminate,
    write_pairs,
)

from tfxformer.errors import Stopped
from tfxformer.training.run import Run
from tfxformer.training.trainer import train

KILLS = int(os.environ.get("TFXFORMER_KILLS", 12))
# The run writes often, so that some kills come during a write.
TRAINING = SMALL["training"] | {
    "steps": 60,
    "accumulate": 2,
    "ema_decay": 0.9,
    "validate_every": 20,
    "checkpoint_every": 1,
    "bleu_pairs": EVERYTHING["training"]["bleu_pairs"],
}


class Trainings:
    """Starts one command several times in a folder."""

    def __init__(self, folder, out):
        self.folder, self.run = folder, Run(folder / out)
        self.arguments = ["train", "--data", "numbers.tsv", "--config", "settings.yaml"]
        self.arguments += ["--out", out]

    def start(self, limit=None):
        def limited():
            if limit:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        return subprocess.Popen(
            [sys.executable, "-m", "tfxformer.cli", *self.arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=limited,
        )

    def step(self):
        """The step of the newest checkpoint, or 0."""
        found = [*self.run.checkpoints_folder.glob("step-*")]
        return int(max(found).name.removeprefix("step-")) if found else 0

    def wait_for(self, process, condition):
        """Waits for a condition; returns False if the process ends first."""
        end = time.monotonic() + 300
        while not condition():
            if process.poll() is not None:
                return False
            assert time.monotonic() < end, "nothing happens"
            time.sleep(0.001)
        return True


def finish(process):
    """Waits for a process; returns its stdout, stderr and exit code."""
    out, err = process.communicate(timeout=300)
    return out, err, process.returncode


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("survival")
    write_pairs(folder / "numbers.tsv", numbers(400))
    (folder / "settings.yaml").write_text(json.dumps(SMALL | {"training": TRAINING}))
    return folder


@pytest.fixture(scope="module")
def undisturbed(folder):
    """The outcome of a run without interruptions."""
    trainings = Trainings(folder, "undisturbed")
    out, err, code = finish(trainings.start())
    assert code == 0 and out == "undisturbed\n", err
    return outcome(trainings.run)


@pytest.mark.slow
def test_a_killed_run_resumes_and_ends_like_an_undisturbed_run(folder, undisturbed):
    trainings, rng = Trainings(folder, "killed"), random.Random(1)
    phases = collections.Counter()

    def exists(pattern):
        return lambda: any(trainings.run.path.glob(pattern))

    while phases.total() < KILLS:
        before = trainings.step()
        process = trainings.start()
        wanted = rng.choice(["start", "write", "step", "step"])
        if wanted == "start":
            condition = exists(rng.choice(["*", ".lock", "tokens/*", "config.yaml"]))
        elif wanted == "write":
            condition = exists("checkpoints/.part-*")
        else:
            some = before + rng.randint(1, 3)
            condition = lambda: trainings.step() >= some  # noqa: B023, E731
        if trainings.wait_for(process, condition):
            time.sleep(rng.uniform(0, 0.3 if wanted == "step" else 0.03))
        ended = process.poll() is not None
        process.kill()
        _, err, code = finish(process)
        assert not ended or code == 0, err
        if ended:  # the run ended before the kill
            break
        writing = exists("checkpoints/.part-*")()
        phases["writing" if writing else wanted] += 1
        checkpoint = trainings.run.newest_checkpoint()  # raises if it is damaged
        assert checkpoint is None or checkpoint.step == trainings.step()
    print(phases)
    _, err, code = finish(trainings.start())
    assert code == 0, err
    assert_same_outcome(outcome(trainings.run), undisturbed)
    assert not leftovers(trainings.run)


@pytest.mark.slow
def test_a_run_stopped_by_signals_and_a_full_disk_ends_like_an_undisturbed_run(
    folder, undisturbed
):
    trainings = Trainings(folder, "told")
    run = trainings.run

    # SIGTERM before the first step.
    process = trainings.start()
    trainings.wait_for(process, run.tokenizer_file.exists)
    process.send_signal(signal.SIGTERM)
    _, err, code = finish(process)
    assert code == 75 and "tfxformer: stopped by SIGTERM" in err.splitlines()[-1], err

    # SIGTERM in the middle, and once more while it saves.
    process = trainings.start()
    trainings.wait_for(process, lambda: trainings.step() >= 3)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    out, err, code = finish(process)
    said = f"tfxformer: stopped by SIGTERM: step {trainings.step()} is saved; the same"
    assert (out, code) == ("", 75) and err.splitlines()[-1].startswith(said), err

    # Ctrl-C.
    before = trainings.step()
    process = trainings.start()
    trainings.wait_for(process, lambda: trainings.step() > before)
    process.send_signal(signal.SIGINT)
    _, err, code = finish(process)
    said = f"tfxformer: interrupted: step {trainings.step()} is saved"
    assert code == 130 and err.splitlines()[-1].startswith(said), err

    # A full disk: no file may be as large as the weights.
    before = trainings.step()
    size = run.weights_file("last").stat().st_size
    _, err, code = finish(trainings.start(limit=size - 1000))
    last = err.splitlines()[-1]
    assert code == 1 and "File too large" in last, err
    assert "Traceback" not in err and trainings.step() == before

    # A second process is refused while one trains, until that one is killed.
    process = trainings.start()
    trainings.wait_for(process, lambda: trainings.step() > before)
    _, err, code = finish(trainings.start())
    said = "tfxformer: error: told: another process is training in this folder"
    assert code == 1 and err.splitlines()[-1].startswith(said), err
    process.kill()
    finish(process)

    # A damaged checkpoint.
    newest = max(run.checkpoints_folder.glob("step-*"))
    os.truncate(newest / "model.weights.h5", size // 2)
    out, err, code = finish(trainings.start())
    assert code == 0 and out == "told\n", err
    assert f"warning: told/checkpoints/{newest.name}/model.weights.h5: damaged" in err
    assert_same_outcome(outcome(run), undisturbed)
    assert not leftovers(run)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    ["precision=bfloat16", "precision=float16", "optimizer=muon", "xla=true"],
)
def test_half_precision_muon_and_xla_training_resume_bit_for_bit(
    change, corpus, tmp_path, at_step
):
    config = settings(corpus, "training.steps=6", f"training.{change}")
    whole = outcome(train(config, tmp_path / "whole"))
    assert whole["metrics"][-1]["loss"] < whole["metrics"][0]["loss"]
    at_step([3], terminate)
    with pytest.raises(Stopped):
        train(config, tmp_path / "run")
    assert_same_outcome(outcome(train(config, tmp_path / "run")), whole)
