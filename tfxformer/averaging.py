"""The mean of several checkpoints' weights, which is often better than each of them."""

import contextlib
import logging
import os
import shutil

import h5py
import numpy as np

from tfxformer.errors import UserError
from tfxformer.run import Run
from tfxformer.training.checkpoints import list_checkpoints, verify

log = logging.getLogger("tfxformer")


def average(run, last=None, best=None):
    """Writes ``averaged.weights.h5``: the mean of checkpoints of one run.

    The mean is taken weight by weight, in float64, of the weights as they were trained;
    whole numbers are the newest checkpoint's. The model is not built, and one of its
    weights is in memory at a time.

    Args:
        run: the path of a run folder.
        last: how many of the newest checkpoints to take.
        best: or how many of those with the best scores in validation.

    Returns:
        The path of the file. The run has it as the checkpoint "averaged".

    Raises:
        UserError: when there are fewer, one is damaged, or they are not of one model.

    Example:
        >>> average("runs/mine", last=5, best=3)
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: give --last or --best, and one of them only
    """
    if (last is None) == (best is None):
        raise UserError("give --last or --best, and one of them only")
    run = Run.open(run)
    checkpoints = _choose(run, last, best)
    for checkpoint in checkpoints:
        verify(checkpoint)
    path = run.weights_file("averaged")
    part = run.weights_file(".averaged.part")
    try:
        _write_mean([checkpoint.weights_file for checkpoint in checkpoints], part)
        os.replace(part, path)
    except (OSError, RuntimeError) as error:  # h5py has its own ways
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UserError(f"{path}: it cannot be made: {reason}") from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    steps = ", ".join(f"{checkpoint.step:,}" for checkpoint in checkpoints)
    log.info("%s: the mean of steps %s", path, steps)
    return path


def _choose(run, last, best):
    """The checkpoints to take, the newest first."""
    found = list_checkpoints(run)
    lost = len([*run.checkpoints_folder.glob("step-*")]) - len(found)
    kind, wanted, setting = "checkpoints", last, "keep_last"
    if best is not None:
        kind, wanted, setting = "checkpoints with a score", best, "keep_best"
        found = [c for c in found if c.state.get("score") is not None]
        # Of equal ones the newer: sorting keeps their order.
        found.sort(key=lambda checkpoint: checkpoint.state["score"], reverse=True)
    if wanted < 1:
        raise UserError(f"the mean of {wanted} checkpoints: it takes 1 at least")
    if len(found) < wanted:
        damaged = f", and {lost} that cannot be read" if lost else ""
        raise UserError(
            f"{run.path}: has {len(found)} {kind}{damaged}, not {wanted}: ask for "
            f"fewer, or train with a larger training.{setting}"
        )
    if lost:
        log.warning(
            "%s: %d damaged, left out: its state.json cannot be read",
            run.checkpoints_folder,
            lost,
        )
    return sorted(found[:wanted], key=lambda checkpoint: checkpoint.step, reverse=True)


def _write_mean(files, path):
    """Writes the mean of weights files, the first of which is the newest."""
    shutil.copyfile(files[0], path)
    with contextlib.ExitStack() as stack:
        mean = stack.enter_context(h5py.File(path, "r+"))
        # The copy has the first one's weights already.
        others = [stack.enter_context(h5py.File(file, "r")) for file in files[1:]]
        shapes = _shapes(mean)
        for file, other in zip(files[1:], others, strict=True):
            if _shapes(other) != shapes:
                raise UserError(
                    f"{file}: holds other weights than {files[0]}: they are not of one "
                    "model"
                )
        for name in shapes:
            weight = mean[name]
            if weight.dtype.kind in "iub":
                continue
            if weight.dtype.kind != "f":
                raise UserError(f"{files[0]}: no mean of {name}, of {weight.dtype}")
            total = weight[()].astype("float64")
            for other in others:
                total += other[name][()]
            total /= len(files)
            if not np.isfinite(total).all():
                raise UserError(f"{files[0].parent.parent}: {name} is not finite")
            weight[()] = total.astype(weight.dtype)


def _shapes(file):
    """The shape and type of each array of an HDF5 file, by its name."""
    shapes = {}

    def note(name, found):
        if isinstance(found, h5py.Dataset):
            shapes[name] = found.shape, found.dtype

    file.visititems(note)
    return shapes
