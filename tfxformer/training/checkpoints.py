"""Checkpoints: all that a run needs to go on as if it had never stopped.

A checkpoint is a folder, ``checkpoints/step-00001000``. It is written under another
name, forced to the disk and then renamed, so that it is there as a whole or not at all;
what it holds is checked by SHA-256 before it is believed.
"""

import contextlib
import hashlib
import json
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfxformer.errors import UserError

log = logging.getLogger("tfxformer")

WEIGHTS = "model.weights.h5"
AVERAGED = "averaged.weights.h5"
ARRAYS = "state.npz"
STATE = "state.json"


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint that is there; whether it is sound, `verify` tells.

    Args:
        step: after how many steps it was taken.
        path: its folder.
        state: what ``state.json`` holds: the step, the score of its validation
            (higher is better) or None, where the data goes on, and more.
    """

    step: int
    path: Path
    state: dict

    @property
    def weights_file(self):
        """The model's weights, as trained."""
        return self.path / WEIGHTS

    @property
    def validated_file(self):
        """The weights that were validated: the moving average where there is one."""
        averaged = self.path / AVERAGED
        return averaged if AVERAGED in self.state["sha256"] else self.weights_file

    def arrays(self):
        """The optimiser's state and the moving average: lists of arrays by name."""
        found = {"optimizer": [], "averages": []}
        with np.load(self.path / ARRAYS, allow_pickle=False) as arrays:
            for name in sorted(arrays.files):
                found[name.partition("/")[0]].append(arrays[name])
        return found


def are_in(run):
    """Whether a run has checkpoints, sound or not."""
    return any(run.checkpoints_folder.glob("step-*"))


def list_checkpoints(run):
    """The checkpoints of a run, the newest first; unreadable ones are left out.

    Args:
        run: a `Run`.

    Returns:
        `Checkpoint`s, not yet verified.
    """
    found = []
    for path in run.checkpoints_folder.glob("step-*"):
        with contextlib.suppress(UserError):
            state = _read_state(path)
            found.append(Checkpoint(state["step"], path, state))
    return sorted(found, key=lambda checkpoint: checkpoint.step, reverse=True)


def verify(checkpoint):
    """Compares a checkpoint's files with what was written.

    Raises:
        UserError: naming the file that is missing or has changed.
    """
    for name, digest in checkpoint.state["sha256"].items():
        file = checkpoint.path / name
        try:
            found = _digest(file)
        except OSError as error:
            raise UserError(f"{file}: {error.strerror}") from None
        if found != digest:
            raise UserError(f"{file}: damaged, its checksum is another")


def newest(run):
    """The newest checkpoint that is sound; what is not is named in the log.

    Args:
        run: a `Run`.

    Returns:
        A verified `Checkpoint`, or None where there is none at all.

    Raises:
        UserError: when there are some, and none is sound.
    """
    # By name: one whose state cannot be read has no other step.
    paths = sorted(run.checkpoints_folder.glob("step-*"), reverse=True)
    for path in paths:
        try:
            state = _read_state(path)
            checkpoint = Checkpoint(state["step"], path, state)
            verify(checkpoint)
            return checkpoint
        except UserError as error:
            log.warning("%s; trying the checkpoint before it", error)
    if paths:
        raise UserError(
            f"{run.checkpoints_folder}: no checkpoint is sound; bring one back, or "
            f"delete {run.path} to begin anew"
        )
    return None


def save(run, step, state, writers, keep_last, keep_best):
    """Writes a checkpoint, gives its weights their names, and removes old ones.

    Args:
        run: a `Run`.
        step: after how many steps it is taken.
        state: what JSON can hold; ``best_step`` and ``score`` say which is best.
        writers: functions that write a file each, by the file's name.
        keep_last: how many of the newest checkpoints stay.
        keep_best: and how many of those with the best score.

    Raises:
        UserError: when it cannot be written: the disk is full, say. What was there
            before stays.
    """
    path = run.checkpoints_folder / f"step-{step:08d}"
    part = _part(path)
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for name, write in writers.items():
            write(part / name)
            _to_disk(part / name)
        digests = {name: _digest(part / name) for name in writers}
        state = {"step": step, **state, "sha256": digests}
        text = json.dumps(state | {"checksum": _checksum(state)}, indent=1)
        (part / STATE).write_text(text + "\n", encoding="utf-8")
        _to_disk(part / STATE)
        _to_disk(part)
        shutil.rmtree(path, ignore_errors=True)  # a damaged one of the same step
        os.replace(part, path)
        _to_disk(run.checkpoints_folder)
        _publish(run, Checkpoint(step, path, state))
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        if not isinstance(error, OSError | RuntimeError | ValueError):
            raise
        raise UserError(
            f"{path}: step {step:,} could not be saved: {_reason(error)}; the "
            "checkpoints before it are as they were: put that right, and the same "
            "command goes on"
        ) from None
    _prune(run, step, keep_last, keep_best)


def restore(run, checkpoint):
    """Makes the run folder what it was when a checkpoint was taken.

    A kill may have come between a checkpoint and the names of its weights; or these
    are names of a later checkpoint, which is damaged.

    Args:
        run: a `Run`.
        checkpoint: the `newest`.

    Raises:
        UserError: when it cannot be written.
    """
    for part in run.checkpoints_folder.glob(".part-*"):
        shutil.rmtree(part, ignore_errors=True)
    try:
        _publish(run, checkpoint)
        for other in list_checkpoints(run):
            if other.step == checkpoint.state.get("best_step") != checkpoint.step:
                verify(other)
                _link(other.validated_file, run.weights_file("best"))
    except OSError as error:
        raise UserError(f"{run.path}: {_reason(error)}") from None
    except UserError as error:
        log.warning("%s; %s stays as it is", error, run.weights_file("best").name)


def _publish(run, checkpoint):
    """Gives a checkpoint's weights the names under which a run's are found."""
    _link(checkpoint.weights_file, run.weights_file("last"))
    if AVERAGED in checkpoint.state["sha256"]:
        _link(checkpoint.path / AVERAGED, run.weights_file("ema"))
    if checkpoint.state.get("best_step") == checkpoint.step:
        _link(checkpoint.validated_file, run.weights_file("best"))


def _reason(error):
    """What the system says; h5py adds what it was doing, down to addresses."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return (str(error).splitlines() or [type(error).__name__])[0]


def arrays_writer(arrays):
    """Writes lists of arrays by name to one file, for `Checkpoint.arrays`."""

    def write(path):
        np.savez(
            path,
            **{
                f"{name}/{i:05d}": array
                for name, listed in arrays.items()
                for i, array in enumerate(listed)
            },
        )

    return write


def _prune(run, step, keep_last, keep_best):
    # Later ones are damaged, or the run would have gone on from them.
    found = [c for c in list_checkpoints(run) if c.step <= step]
    scored = [c for c in found if c.state.get("score") is not None]
    # Of equal ones the first, as "best" is.
    scored.sort(key=lambda checkpoint: (-checkpoint.state["score"], checkpoint.step))
    kept = {c.path for c in [*found[:keep_last], *scored[:keep_best]]}
    for path in run.checkpoints_folder.glob("step-*"):
        if path not in kept:
            # Half of one is not to look like one.
            with contextlib.suppress(OSError):
                os.replace(path, _part(path))
    for part in run.checkpoints_folder.glob(".part-*"):
        shutil.rmtree(part, ignore_errors=True)


def _part(path):
    return path.with_name(f".part-{path.name}")


def _link(file, name):
    """A second name for a file, which costs no room; a copy where that cannot be."""
    part = name.with_name(f".part.{name.name}")
    part.unlink(missing_ok=True)
    # Renaming one name of a file to another of its names would leave both.
    if name.exists() and os.path.samefile(file, name):
        return
    try:
        os.link(file, part)
    except OSError:
        shutil.copyfile(file, part)
    os.replace(part, name)


def _read_state(path):
    file = path / STATE
    try:
        state = json.loads(file.read_text(encoding="utf-8"))
        checksum = state.pop("checksum")
        if checksum != _checksum(state):
            raise UserError(f"{file}: damaged, its checksum is another")
        return state
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise UserError(f"{file}: damaged") from None


def _checksum(state):
    text = json.dumps(state, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(file):
    digest = hashlib.sha256()
    with open(file, "rb") as opened:
        while part := opened.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def _to_disk(path):
    """Waits until what was written would survive the power going."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
