"""Checkpoints: all that a run needs to resume as if it had never stopped.

A checkpoint is a folder, ``checkpoints/step-00001000``. It is written under another
name, forced to the disk and then renamed, so that it is there as a whole or not at all;
a checksum proves each file before it is read.
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
    """One checkpoint; `verify` tells whether it is sound.

    Args:
        path: its folder.
        state: what ``state.json`` holds: ``step``, ``score`` (of the validation in
            that step, higher is better, or None) and more.
    """

    path: Path
    state: dict

    @property
    def step(self):
        """After how many steps it was taken."""
        return self.state["step"]

    @property
    def weights_file(self):
        """The model's weights, as trained."""
        return self.path / WEIGHTS

    @property
    def validated_file(self):
        """The weights that were validated: their moving average where there is one."""
        averaged = self.path / AVERAGED
        return averaged if AVERAGED in self.state["sha256"] else self.weights_file

    def arrays(self):
        """What `TrainingTransformer.state` returned."""
        with np.load(self.path / ARRAYS, allow_pickle=False) as arrays:
            return [arrays[name] for name in arrays.files]


def are_in(run):
    """Whether a run has checkpoints, sound or not."""
    return any(run.checkpoints_folder.glob("step-*"))


def list_checkpoints(run):
    """The checkpoints of a run, the newest first; unreadable ones are left out."""
    found = []
    for path in run.checkpoints_folder.glob("step-*"):
        with contextlib.suppress(UserError):
            found.append(_open(path))
    return sorted(found, key=lambda checkpoint: checkpoint.step, reverse=True)


def verify(checkpoint):
    """Compares a checkpoint's files with what was written."""
    for name, digest in checkpoint.state["sha256"].items():
        file = checkpoint.path / name
        try:
            found = _digest(file)
        except OSError as error:
            raise UserError(f"{file}: {error.strerror}") from None
        if found != digest:
            raise UserError(f"{file}: damaged, its checksum is another")


def newest(run):
    """The newest checkpoint that is sound; the log names those that are not."""
    # By name: one whose state cannot be read has no other step.
    paths = sorted(run.checkpoints_folder.glob("step-*"), reverse=True)
    for path in paths:
        try:
            checkpoint = _open(path)
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


def save(run, state, writers, keep_last):
    """Writes a checkpoint, gives its weights their names, and removes old ones."""
    step = state["step"]
    path = run.checkpoints_folder / f"step-{step:08d}"
    part = path.with_name(f".part-{path.name}")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for name, write in writers.items():
            write(part / name)
            _to_disk(part / name)
        state = state | {"sha256": {name: _digest(part / name) for name in writers}}
        text = json.dumps(state | {"checksum": _checksum(state)}, indent=1)
        (part / STATE).write_text(text + "\n", encoding="utf-8")
        _to_disk(part / STATE)
        _to_disk(part)
        shutil.rmtree(path, ignore_errors=True)  # a damaged one of the same step
        os.replace(part, path)
        _to_disk(run.checkpoints_folder)
        publish(run, Checkpoint(path, state))
    except (OSError, RuntimeError, ValueError) as error:  # h5py has its own ways
        raise UserError(
            f"{path}: step {step:,} could not be saved: {_reason(error)}; the "
            "checkpoints before it are as they were: put that right, and the same "
            "command resumes"
        ) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    # Later ones are damaged, or the run would have resumed from them.
    found = [c.path for c in list_checkpoints(run) if c.step <= step][:keep_last]
    for old in run.checkpoints_folder.glob("step-*"):
        if old not in found:
            # Half of one is not to look like one.
            with contextlib.suppress(OSError):
                os.replace(old, old.with_name(f".part-{old.name}"))
    remove_parts(run)


def publish(run, checkpoint):
    """Gives a checkpoint's weights the names under which a run's are found."""
    _link(checkpoint.weights_file, run.weights_file("last"))
    if checkpoint.state["best_step"] == checkpoint.step:
        _link(checkpoint.validated_file, run.weights_file("best"))


def remove_parts(run):
    """Removes what a run that was killed left half-written."""
    for part in run.checkpoints_folder.glob(".part-*"):
        shutil.rmtree(part, ignore_errors=True)


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


def _open(path):
    """The checkpoint in a folder, if its state is what was written."""
    file = path / STATE
    try:
        state = json.loads(file.read_text(encoding="utf-8"))
        if state.pop("checksum") != _checksum(state):
            raise UserError(f"{file}: damaged, its checksum is another")
        return Checkpoint(path, state)
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise UserError(f"{file}: damaged") from None


def _checksum(state):
    text = json.dumps(state, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(file):
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _to_disk(path):
    """Waits until what was written would survive the power going."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error):
    """What the system says; h5py adds what it was doing, down to addresses."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return (str(error).splitlines() or [type(error).__name__])[0]
