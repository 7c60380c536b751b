"""Checkpoints are there as a whole or not at all, and proved before they are read."""

import os
import shutil

import numpy as np
import pytest

from tfxformer.errors import UserError
from tfxformer.training import checkpoints
from tfxformer.training.run import Run


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "run")


def save(run, step, best_step=0, averaged=False, keep_last=2):
    def write(text):
        return lambda path: path.write_text(f"{text} {step}")

    writers = {"model.weights.h5": write("weights")}
    writers["state.npz"] = lambda path: np.savez(path, np.full(3, step))
    if averaged:
        writers["averaged.weights.h5"] = write("averaged")
    state = {"step": step, "best_step": best_step}
    checkpoints.save(run, state, writers, keep_last)


def names(run):
    return sorted(path.name for path in run.checkpoints_folder.iterdir())


def test_a_checkpoint_is_found_and_its_weights_have_names(run):
    assert checkpoints.newest(run) is None and not checkpoints.are_in(run)
    save(run, 5, best_step=5, averaged=True)
    save(run, 10, best_step=5)
    found = checkpoints.newest(run)
    assert found.step == 10 and found.state["best_step"] == 5
    assert [array.tolist() for array in found.arrays()] == [[10] * 3]
    assert run.weights_file("last").read_text() == "weights 10"
    # The average where there is one, for that was validated.
    assert run.weights_file("best").read_text() == "averaged 5"


def test_only_the_newest_are_kept_and_best_outlives_its_checkpoint(run):
    for step in range(1, 6):
        save(run, step, best_step=min(step, 2))
    assert names(run) == ["step-00000004", "step-00000005"]
    assert run.weights_file("best").read_text() == "weights 2"
    save(run, 6, keep_last=4)
    assert len(names(run)) == 3


@pytest.mark.parametrize("file", ["model.weights.h5", "state.npz", "state.json"])
@pytest.mark.parametrize("how", ["missing", "truncated", "one bit"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    file, how, run, caplog
):
    save(run, 5)
    save(run, 10)
    damaged = run.checkpoints_folder / "step-00000010" / file
    content = bytearray(damaged.read_bytes())
    damaged.unlink()  # its other names keep what they have
    if how != "missing":
        content[len(content) // 2] ^= 1
        damaged.write_bytes(content if how == "one bit" else content[:-5])
    assert checkpoints.newest(run).step == 5
    assert str(damaged) in caplog.text and "the checkpoint before it" in caplog.text
    damaged.parent.rename(damaged.parent.with_name("step-00000005x"))
    shutil.rmtree(run.checkpoints_folder / "step-00000005")
    with pytest.raises(UserError, match="no checkpoint is sound"):
        checkpoints.newest(run)


@pytest.mark.parametrize("at", range(1, 8))
def test_a_full_disk_leaves_what_was_there(at, run, monkeypatch):
    """Whichever file it is that finds no room."""
    save(run, 5, best_step=5)
    real, calls = os.fsync, []

    def fsync(descriptor):
        real(descriptor)
        calls.append(1)
        if len(calls) == at:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    if at == 7:  # there are six
        save(run, 10, best_step=10, averaged=True)
        return
    with pytest.raises(
        UserError, match="step 10 could not be saved: No space"
    ) as error:
        save(run, 10, best_step=10, averaged=True)
    assert "\n" not in str(error.value)
    assert not [name for name in names(run) if name.startswith(".")]
    newest = checkpoints.newest(run).step
    assert newest == (10 if at == 6 else 5)  # the last one is of the folder
    assert run.weights_file("best").read_text() == "weights 5"
    monkeypatch.undo()
    # A start gives the names that a kill came before.
    checkpoints.publish(run, checkpoints.newest(run))
    assert run.weights_file("last").read_text() == f"weights {newest}"


def test_what_was_killed_half_way_is_no_checkpoint(run):
    save(run, 5)
    shutil.copytree(
        run.checkpoints_folder / "step-00000005",
        run.checkpoints_folder / ".part-step-00000010",
    )
    assert checkpoints.newest(run).step == 5
    assert [found.step for found in checkpoints.list_checkpoints(run)] == [5]
    checkpoints.remove_parts(run)
    assert names(run) == ["step-00000005"]


def test_copies_stand_in_where_a_file_cannot_have_two_names(run, monkeypatch):
    def refuse(*_):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    save(run, 5, best_step=5)
    assert run.weights_file("best").read_text() == "weights 5"
