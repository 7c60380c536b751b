"""Checkpoints are complete or absent, and checked before they are read."""

import shutil

import numpy as np
import pytest
from training_runs import fill_disk

from tfxformer.errors import UserError
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
    run.save_checkpoint({"step": step, "best_step": best_step}, writers, keep_last)


def names(run):
    return sorted(path.name for path in run.checkpoints_folder.iterdir())


def test_a_run_finds_its_newest_checkpoint_and_its_best_and_last_weights(run):
    assert run.newest_checkpoint() is None
    save(run, 5, best_step=5, averaged=True)
    save(run, 10, best_step=5)
    found = run.newest_checkpoint()
    assert found.step == 10 and found.state()["best_step"] == 5
    assert [array.tolist() for array in found.arrays()] == [[10] * 3]
    assert run.weights_file("last").read_text() == "weights 10"
    # The moving average if there is one, because validation used it.
    assert run.weights_file("best").read_text() == "averaged 5"


def test_a_run_keeps_its_newest_checkpoints_and_its_best_weights(run):
    (run.checkpoints_folder / "step-00000500bak").mkdir(parents=True)  # not ours
    for step in range(1, 6):
        save(run, step, best_step=min(step, 2))
    assert names(run) == ["step-00000004", "step-00000005", "step-00000500bak"]
    assert run.weights_file("best").read_text() == "weights 2"
    save(run, 6, keep_last=4)
    assert len(names(run)) == 4


@pytest.mark.parametrize("file", ["model.weights.h5", "state.npz", "sha256.json"])
@pytest.mark.parametrize("how", ["missing", "truncated", "one bit"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    file, how, run, caplog
):
    save(run, 5)
    save(run, 10)
    damaged = run.checkpoints_folder / "step-00000010" / file
    content = bytearray(damaged.read_bytes())
    damaged.unlink()
    if how != "missing":
        content[len(content) // 2] ^= 1
        damaged.write_bytes(content if how == "one bit" else content[:-5])
    assert run.newest_checkpoint().step == 5
    assert str(damaged.parent) in caplog.text
    assert file == "sha256.json" or str(damaged) in caplog.text
    shutil.rmtree(run.checkpoints_folder / "step-00000005")
    with pytest.raises(UserError, match="all checkpoints are damaged"):
        run.newest_checkpoint()


@pytest.mark.parametrize("at", range(1, 8))
def test_a_full_disk_leaves_complete_checkpoints_and_no_partial_ones(
    at, run, monkeypatch
):
    """A full disk at any write: five files, their folder, the checkpoints folder."""
    save(run, 5, best_step=5)
    fill_disk(monkeypatch, at=at)
    with pytest.raises(
        UserError, match="step 10 could not be saved: No space"
    ) as error:
        save(run, 10, best_step=10, averaged=True)
    assert "\n" not in str(error.value)
    assert not [name for name in names(run) if name.startswith(".")]
    newest = run.newest_checkpoint()
    assert newest.step == (10 if at == 7 else 5)
    assert run.weights_file("best").read_text() == "weights 5"
    # The next start publishes the weights that a kill left unpublished.
    run.publish(newest)
    assert run.weights_file("last").read_text() == f"weights {newest.step}"
