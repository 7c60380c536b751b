"""Training by its command, in processes that are really killed, stopped and starved.

`pytest -m soak tests/training/test_survival.py` kills hundreds of times, as often as
TFXFORMER_SOAK_KILLS says, and writes benchmarks/survival_soak.json.
"""

import collections
import datetime
import json
import os
import platform
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from training_runs import assert_same_outcome, leftovers, numbers, outcome, write_pairs

from tfxformer.run import Run
from tfxformer.training import checkpoints

KILLS = 24
SETTINGS = [
    "model.num_layers=1",
    "model.d_model=32",
    "model.num_heads=2",
    "model.dff=64",
    "model.max_length=24",
    "tokenizer.vocab_size=330",
    "training.steps=24",
    "training.tokens_per_batch=256",
    "training.warmup_steps=20",
    "training.validate_every=8",
    "training.ema_decay=0.9",
    "training.accumulate=2",
    # A good part of the time goes into writing.
    "training.checkpoint_every=1",
    "data.valid_pairs=20",
]


class Trainings:
    """Starts of one command.

    Args:
        folder: where it works.
        out: the run folder it names.
    """

    def __init__(self, folder, out="run"):
        self.folder, self.run = folder, Run(folder / out)
        self.arguments = ["train", "--data", "numbers.tsv", "--out", out]
        for setting in SETTINGS:
            self.arguments += ["--set", setting]

    def start(self, *more, limit=None):
        def limited():
            if limit:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        return subprocess.Popen(
            [sys.executable, "-m", "tfxformer.cli", *self.arguments, *more],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=limited,
        )

    def step(self):
        """The newest checkpoint's step; 0 where there is none."""
        found = [*self.run.checkpoints_folder.glob("step-*")]
        return int(max(found).name.removeprefix("step-")) if found else 0

    def wait_for(self, process, condition, seconds=300):
        """Waits until something is so; whether it came before the process ended."""
        end = time.monotonic() + seconds
        while not condition():
            if process.poll() is not None:
                return False
            assert time.monotonic() < end, "nothing happens"
            time.sleep(0.001)
        return True


def finish(process):
    """What a process says until it ends: its answer, its messages, its exit code."""
    out, err = process.communicate(timeout=300)
    return out, err, process.returncode


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("survival")
    write_pairs(folder / "numbers.tsv", numbers(400))
    return folder


@pytest.fixture(scope="module")
def undisturbed(folder):
    """What comes of a run that nothing happens to, and how long it takes."""
    trainings = Trainings(folder, "undisturbed")
    started = time.monotonic()
    out, err, code = finish(trainings.start())
    assert code == 0 and out == "undisturbed\n", err
    return outcome(trainings.run), time.monotonic() - started


def kill_often(folder, out, kills, undisturbed, seed):
    """Kills one command again and again; whenever a run is done it begins anew.

    Returns:
        How often it was killed in which phase, and how many runs were done.
    """
    expected, life = undisturbed
    trainings = Trainings(folder, out)
    run, rng = trainings.run, random.Random(seed)
    phases, done = collections.Counter(), 0

    def parts(pattern):
        return lambda: any(run.path.glob(pattern))

    def reached(step):
        return lambda: trainings.step() >= step

    def later(seconds):
        end = time.monotonic() + seconds
        return lambda: time.monotonic() > end

    while phases.total() < kills or done == 0:
        process = trainings.start()
        before = trainings.step()
        last = phases.total() >= kills
        moments = ["any", "any", "write", "soon", "step"]
        moment = "never" if last else rng.choice(moments)
        killed = True
        if moment == "any":
            killed = trainings.wait_for(process, later(rng.uniform(0, 1.2 * life)))
        elif moment == "write":
            killed = trainings.wait_for(process, parts("checkpoints/.part-*"))
            time.sleep(rng.uniform(0, 0.05))
        elif moment == "soon":
            wanted = rng.choice([".lock", "tokens/.*.part-*", "config.yaml"])
            killed = trainings.wait_for(process, parts(wanted))
            time.sleep(rng.uniform(0, 0.05))
        elif moment == "step":
            killed = trainings.wait_for(process, reached(before + rng.randint(1, 6)))
            time.sleep(rng.uniform(0, 0.2))
        if killed and moment != "never" and process.poll() is None:
            process.kill()
            finish(process)
            writing = any(run.path.glob("checkpoints/.part-*"))
            phases[
                "writing a checkpoint"
                if writing
                else "training"
                if trainings.step() > before
                else "starting"
            ] += 1
            for checkpoint in checkpoints.list_checkpoints(run):
                checkpoints.verify(checkpoint)
            continue
        _, err, code = finish(process)
        assert code == 0, err
        assert_same_outcome(outcome(run), expected)
        assert not leftovers(run)
        shutil.rmtree(run.path)
        done += 1
    return phases, done


def kill_in_two(folder, kills, undisturbed, seed):
    """The same in two folders at a time."""
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(
            lambda i: kill_often(folder, f"run{i}", kills // 2, undisturbed, seed + i),
            range(2),
        )
        phases, done = zip(*found, strict=True)
    return sum(phases, collections.Counter()), sum(done)


@pytest.mark.slow
def test_a_run_that_is_killed_ends_as_if_it_had_not_been(folder, undisturbed):
    phases, done = kill_in_two(folder, KILLS, undisturbed, seed=1)
    assert phases.total() >= KILLS >= 20 and done >= 2
    # The delays spread over all there is.
    assert set(phases) == {"starting", "training", "writing a checkpoint"}, phases


@pytest.mark.soak
def test_a_run_that_is_killed_hundreds_of_times(folder, undisturbed):
    kills = int(os.environ.get("TFXFORMER_SOAK_KILLS", 300))
    started = time.monotonic()
    phases, done = kill_in_two(folder, kills, undisturbed, seed=1000)
    result = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, "
        f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "kills": phases.total(),
        "while": dict(phases),
        "runs_done_and_equal_to_the_undisturbed_one": done,
        "seconds": round(time.monotonic() - started),
    }
    file = Path(__file__).parents[2] / "benchmarks" / "survival_soak.json"
    file.write_text(json.dumps(result, indent=1) + "\n")


@pytest.mark.slow
def test_a_run_that_is_told_to_stop_and_starved_ends_the_same(folder, undisturbed):
    trainings = Trainings(folder, "told")
    run = trainings.run

    # SIGTERM before it begins.
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

    # No room: no file may be as large as the weights.
    before = trainings.step()
    size = run.weights_file("last").stat().st_size
    _, err, code = finish(trainings.start(limit=size - 1000))
    last = err.splitlines()[-1]
    assert code == 1 and "could not be saved: File too large" in last, err
    assert "Traceback" not in err and trainings.step() == before

    # A second one while it goes on, and none once that is killed.
    process = trainings.start()
    trainings.wait_for(process, lambda: trainings.step() > before)
    _, err, code = finish(trainings.start())
    said = f"tfxformer: error: told: process {process.pid} on {platform.node()} is"
    assert code == 1 and err.splitlines()[-1].startswith(said), err
    process.kill()
    finish(process)

    # A damaged checkpoint.
    newest = max(run.checkpoints_folder.glob("step-*"))
    os.truncate(newest / "model.weights.h5", size // 2)
    out, err, code = finish(trainings.start())
    assert code == 0 and out == "told\n", err
    assert f"warning: told/checkpoints/{newest.name}/model.weights.h5: damaged" in err
    assert_same_outcome(outcome(run), undisturbed[0])
    assert not leftovers(run)
