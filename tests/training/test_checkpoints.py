"""Checkpoints: whole or not there, wherever a process dies; none that is damaged."""

import json
import logging
import os
import resource
import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest
from training_runs import arrays as arrays_of

from tfxformer.errors import UserError
from tfxformer.run import Run
from tfxformer.training import checkpoints


def write_weights(step, size=10):
    def write(path):
        with h5py.File(path, "w") as file:
            file["weights"] = np.full(size, step, "float32")

    return write


def save(run, step, score=None, best_step=0, averaged=False, keep_last=2, keep_best=1):
    """A checkpoint as the trainer writes it."""
    optimizer = [np.arange(step), np.ones((step, 2), "float32")]
    writers = {
        "model.weights.h5": write_weights(step),
        "state.npz": checkpoints.arrays_writer({"optimizer": optimizer}),
    }
    if averaged:
        writers["averaged.weights.h5"] = write_weights(step + 0.5)
    state = {"score": score, "best_step": best_step, "position": {"block": step}}
    checkpoints.save(run, step, state, writers, keep_last, keep_best)


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def names(run):
    return sorted(path.name for path in run.checkpoints_folder.iterdir())


def steps(run):
    return [checkpoint.step for checkpoint in checkpoints.list_checkpoints(run)]


def weights(run, name):
    return arrays_of(run.weights_file(name))["weights"][0]


def test_what_is_saved_comes_back(run):
    save(run, 7, score=-3.5, best_step=7)
    found = checkpoints.newest(run)
    assert found.step == 7 and found.state["position"] == {"block": 7}
    assert found.state["score"] == -3.5
    first, second = found.arrays()["optimizer"]
    np.testing.assert_array_equal(first, np.arange(7))
    np.testing.assert_array_equal(second, np.ones((7, 2), "float32"))
    assert found.arrays()["averages"] == []
    assert weights(run, "last") == weights(run, "best") == 7
    assert not run.weights_file("ema").exists()
    assert names(run) == ["step-00000007"]


def test_many_arrays_keep_their_order(tmp_path):
    arrays = {"optimizer": [np.array(i) for i in range(1234)], "averages": []}
    checkpoints.arrays_writer(arrays)(tmp_path / "state.npz")
    found = checkpoints.Checkpoint(0, tmp_path, {}).arrays()
    assert [int(array) for array in found["optimizer"]] == [*range(1234)]


def test_best_is_the_moving_average_where_there_is_one(run):
    save(run, 3, score=1.0, best_step=3, averaged=True)
    save(run, 6, score=0.5, best_step=3, averaged=True)
    assert weights(run, "last") == 6 and weights(run, "ema") == 6.5
    assert weights(run, "best") == 3.5
    assert checkpoints.newest(run).validated_file.name == "averaged.weights.h5"


def test_the_newest_and_the_best_stay(run):
    for step, score in enumerate([None, 1.0, 5.0, 2.0, None, 3.0, None], 1):
        save(run, step, score, keep_last=2, keep_best=2)
    assert steps(run) == [7, 6, 3]
    save(run, 8, 9.0, keep_last=1, keep_best=0)
    assert steps(run) == [8]


def test_of_equal_scores_the_first_stays(run):
    """It is the one that is called best."""
    for step in range(1, 6):
        save(run, step, 1.0, best_step=1, keep_last=1)
    assert steps(run) == [5, 1]
    assert weights(run, "best") == 1


def test_there_is_no_newest_where_there_is_none(run):
    assert checkpoints.newest(run) is None
    assert checkpoints.list_checkpoints(run) == []


# --- Damage ---


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 4
    path.unlink()
    path.write_bytes(content)


DAMAGE = {
    "missing": os.remove,
    "empty": lambda path: os.truncate(path, 0),
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "one bit": flip,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}
FILES = "model.weights.h5", "averaged.weights.h5", "state.npz", "state.json"


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("file", FILES)
def test_the_newest_sound_one_is_used_and_the_damaged_one_named(run, file, how, caplog):
    for step in (1, 2, 3):
        save(run, step, averaged=True, keep_last=3)
    damaged = run.checkpoints_folder / "step-00000003" / file
    DAMAGE[how](damaged)
    with caplog.at_level(logging.WARNING, "tfxformer"):
        assert checkpoints.newest(run).step == 2
    (message,) = caplog.messages
    assert message.startswith(f"{damaged}: ") and "\n" not in message
    assert message.endswith("; trying the checkpoint before it")


@pytest.mark.parametrize("file", FILES)
def test_where_none_is_sound_it_says_so(run, file):
    for step in (1, 2):
        save(run, step, averaged=True)
        flip(run.checkpoints_folder / f"step-{step:08d}" / file)
    with pytest.raises(UserError, match="no checkpoint is sound") as error:
        checkpoints.newest(run)
    assert str(run.checkpoints_folder) in str(error.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[1]",
        b"null",
        b"\xff\xfe",
        b'{"step": 9}',
        b'{"step": 9, "sha256": {}, "checksum": "0"}',
        b"[" * 100_000,
    ],
)
def test_a_state_that_is_something_else_is_damaged(run, content, caplog):
    save(run, 1)
    save(run, 2)
    (run.checkpoints_folder / "step-00000002" / "state.json").write_bytes(content)
    assert steps(run) == [1]
    with caplog.at_level(logging.WARNING, "tfxformer"):
        assert checkpoints.newest(run).step == 1
    assert "state.json: damaged" in caplog.text


def test_no_number_of_the_state_can_be_changed_unseen(run):
    save(run, 1, score=1.5)
    save(run, 2, score=2.5)
    file = run.checkpoints_folder / "step-00000002" / "state.json"
    file.write_text(file.read_text().replace("2.5", "3.5"))
    assert checkpoints.newest(run).step == 1


def test_half_a_copy_and_foreign_things_are_no_checkpoints(run):
    save(run, 1)
    (run.checkpoints_folder / "step-00000009").mkdir()
    (run.checkpoints_folder / "step-notes").write_text("mine")
    whole = run.checkpoints_folder / "step-00000001"
    half = run.checkpoints_folder / "step-00000005"
    half.mkdir()
    shutil.copy(whole / "state.json", half)
    assert checkpoints.newest(run).path == whole


def test_damaged_ones_go_when_the_run_has_passed_them_over(run):
    """Or they would be the newest, and the sound ones would go."""
    save(run, 1)
    for step in (5, 8):
        save(run, step, keep_last=9)
        flip(run.checkpoints_folder / f"step-{step:08d}" / "state.npz")
    (run.checkpoints_folder / "step-00000007").mkdir()
    assert checkpoints.newest(run).step == 1
    save(run, 4, keep_last=2)
    assert names(run) == ["step-00000001", "step-00000004"]
    assert checkpoints.newest(run).step == 4


def test_a_damaged_one_of_the_same_step_is_replaced(run):
    save(run, 1)
    save(run, 2)
    flip(run.checkpoints_folder / "step-00000002" / "model.weights.h5")
    save(run, 2)
    assert checkpoints.newest(run).step == 2


def test_names_are_put_right_for_the_checkpoint_that_is_used(run, caplog):
    save(run, 1, score=1.0, best_step=1, averaged=True)
    save(run, 2, score=0.5, best_step=1, averaged=True)
    save(run, 3, score=3.0, best_step=3, averaged=True, keep_last=3)
    flip(run.checkpoints_folder / "step-00000003" / "state.npz")
    assert weights(run, "best") == 3.5
    checkpoints.restore(run, checkpoints.newest(run))
    found = [weights(run, name) for name in ("last", "ema", "best")]
    assert found == [2, 2.5, 1.5]

    # Where the best one is damaged as well, that is said.
    os.truncate(run.checkpoints_folder / "step-00000001" / "averaged.weights.h5", 9)
    with caplog.at_level(logging.WARNING, "tfxformer"):
        checkpoints.restore(run, checkpoints.newest(run))
    assert "best.weights.h5 stays as it is" in caplog.text


# --- Writing ---


def test_where_files_have_no_second_names_they_are_copied(run, monkeypatch):
    def link(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    save(run, 1, best_step=1)
    save(run, 2, best_step=1)
    assert weights(run, "last") == 2 and weights(run, "best") == 1
    assert run.weights_file("last").stat().st_nlink == 1


def contents(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_what_is_there_stays_when_there_is_no_room(run):
    """A file-size limit is as real as a full disk, and HDF5 has to live with it."""
    save(run, 1, best_step=1)
    before = contents(run.path)
    writers = {"model.weights.h5": write_weights(2, 1_000_000)}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(UserError) as error:
            checkpoints.save(run, 2, {}, writers, 1, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    message = str(error.value)
    path = run.checkpoints_folder / "step-00000002"
    assert message.startswith(f"{path}: step 2 could not be saved: File too large; ")
    assert len(message) < len(str(path)) + 200
    assert contents(run.path) == before
    save(run, 2)
    assert steps(run) == [2, 1]


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        OSError("Can't write data (no space left, buf = 0x55ce)"),
        OSError(),
        RuntimeError("Unable to flush file"),
        ValueError("Not a location\nand more"),
        MemoryError(),
        KeyboardInterrupt(),
    ],
)
@pytest.mark.parametrize("when", range(5))
def test_whatever_goes_wrong_leaves_what_was_there(run, when, error, monkeypatch):
    save(run, 1, best_step=1)
    before = contents(run.path)
    real, calls = checkpoints._to_disk, []

    def fails(path):
        calls.append(path)
        if len(calls) > when:
            raise error
        real(path)

    monkeypatch.setattr(checkpoints, "_to_disk", fails)
    kind = UserError if isinstance(error, OSError | RuntimeError | ValueError) else None
    with pytest.raises(kind or type(error)) as caught:
        save(run, 2)
    if kind:
        message = str(caught.value)
        assert "step 2 could not be saved: " in message and "\n" not in message
    after = contents(run.path)
    if len(calls) > 4:  # it was there already
        after = {k: v for k, v in after.items() if "step-00000002" not in str(k)}
    assert after == before
    monkeypatch.setattr(checkpoints, "_to_disk", real)
    save(run, 2)
    assert steps(run) == [2, 1] and weights(run, "last") == 2


# The process ends at the first, the second, the third ... thing that it does to a file
# in the run folder; a new one must find all in order each time. Whatever Python does to
# files it tells its audit hooks.
KILLED = '''
import itertools, json, os, shutil, signal, sys
from pathlib import Path
import numpy as np
from tfxformer.run import Run
from tfxformer.training import checkpoints

folder = Path(sys.argv[1])

def write(step):
    def write(path):
        with open(path, "wb", buffering=0) as file:
            for part in range(3):
                sys.audit("write", path)
                file.write(bytes([step]) * 10)
    return write

def save(run, step):
    best = max(step - step % 3, 1)  # 1, 3, 3, 3, 6
    score = float(-abs(step - best))
    writers = {
        "model.weights.h5": write(step),
        "averaged.weights.h5": write(100 + step),
        "state.npz": checkpoints.arrays_writer({"optimizer": [np.arange(step)]}),
    }
    state = {"score": score, "best_step": best}
    checkpoints.save(run, step, state, writers, keep_last=2, keep_best=1)

def look(run):
    """Says what is wrong; gives the newest step."""
    for checkpoint in checkpoints.list_checkpoints(run):
        checkpoints.verify(checkpoint)
    there = {path.name for path in run.checkpoints_folder.glob("step-*")}
    listed = {c.path.name for c in checkpoints.list_checkpoints(run)}
    assert there == listed, ("half a checkpoint", there - listed)
    for name in ("last", "best", "ema"):
        content = run.weights_file(name).read_bytes()
        assert len(content) == 30 and len(set(content)) == 1, ("torn", name)
    return checkpoints.newest(run)

def names(run):
    return sorted(
        (str(path.relative_to(run.path)), path.read_bytes())
        for path in run.path.rglob("*") if path.is_file()
    )

EVENTS = {"write", "open", "os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir"}
found = []
for step in (4, 6, 7):
    base = Run(folder / f"base-{step}")
    for before in range(1, step):
        save(base, before)
    expected = Run(folder / f"expected-{step}")
    shutil.copytree(base.path, expected.path)
    save(expected, step)
    for number in itertools.count(1):
        run = Run(folder / f"run-{step}")
        shutil.rmtree(run.path, ignore_errors=True)
        shutil.copytree(base.path, run.path)
        process = os.fork()
        if process == 0:
            left = number
            def hook(event, arguments):
                global left
                if event in EVENTS:
                    left -= 1
                    if left == 0:
                        os.kill(os.getpid(), signal.SIGKILL)
            sys.addaudithook(hook)
            save(run, step)
            os._exit(0)
        _, status = os.waitpid(process, 0)
        newest = look(run)
        checkpoints.restore(run, newest)
        again = look(run)
        assert again.step == newest.step
        last = run.weights_file("last").read_bytes()
        assert last == newest.weights_file.read_bytes()
        parts = [path.name for path in run.path.rglob("*part*")]
        if newest.step < step:
            save(run, step)
            parts = [path.name for path in run.path.rglob("*part*")]
            assert names(run) == names(expected), number
        assert not parts, parts
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0 and newest.step == step
            break
        found.append([step, number, newest.step])
print(json.dumps(found))
'''


@pytest.mark.slow
def test_a_process_may_die_at_any_moment_of_a_save(tmp_path):
    command = [sys.executable, "-c", KILLED, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for step in (4, 6, 7):
        newest = [last for at, _, last in found if at == step]
        # Until the rename it is the old one, from then on the new one.
        assert newest == sorted(newest) and {*newest} == {step - 1, step}
        assert len(newest) > 25
