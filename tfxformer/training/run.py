"""A run folder: everything needed to use a trained model or to resume its training.

For resuming, each checkpoint is a folder with the weights, the optimizer's state and
the place in the data. It appears under its name in one step, when all its files are on
the disk, so a checkpoint is complete or absent. Checksums tell a damaged one.
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfxformer.config import load_config
from tfxformer.errors import UserError
from tfxformer.tokenizer import Tokenizer

log = logging.getLogger("tfxformer")

# The files of a checkpoint. The last one has the checksums of the others.
WEIGHTS = "model.weights.h5"
AVERAGED = "averaged.weights.h5"
ARRAYS = "state.npz"
STATE = "state.json"
DIGESTS = "sha256.json"


@dataclass(frozen=True)
class Run:
    """The files of a run folder, each a path in the folder's path."""

    path: Path

    config_file = property(lambda self: self.path / "config.yaml", doc="The settings.")
    tokenizer_file = property(lambda self: self.path / "tokenizer.model")
    checkpoints_folder = property(lambda self: self.path / "checkpoints")
    tokens_folder = property(lambda self: self.path / "tokens")  # the pairs as ids
    metrics_file = property(lambda self: self.path / "metrics.jsonl")
    tensorboard_folder = property(lambda self: self.path / "tensorboard")

    @classmethod
    def open(cls, path):
        """Opens a run folder, or raises a `UserError`."""
        run = cls(Path(path))
        if not run.path.is_dir():
            raise UserError(f"{path}: there is no such run folder")
        for file in (run.config_file, run.tokenizer_file):
            if not file.exists():
                raise UserError(f"{path}: not a run folder, {file.name} is missing")
        return run

    def weights_file(self, name):
        """The path of the Keras weights called "best" or "last"."""
        return self.path / f"{name}.weights.h5"

    def config(self):
        """The run's `Config`."""
        return load_config(file=self.config_file)

    def tokenizer(self):
        """The run's `Tokenizer`."""
        return Tokenizer.load(self.tokenizer_file)

    def load(self, checkpoint="best"):
        """Loads the `Tokenizer` and the `Transformer` with the best or last weights.

        Raises:
            UserError: there are no such weights, or they are another model's.
        """
        if checkpoint not in ("best", "last"):
            raise UserError(f"checkpoint {checkpoint!r}: choose best or last")
        file = self.weights_file(checkpoint)
        if not file.exists():
            raise UserError(f"{self.path}: {file.name} is missing: train the run first")
        tokenizer = self.tokenizer()
        model = build_model(self.config(), tokenizer)
        load_weights(model, file)
        return tokenizer, model

    def checkpoints(self):
        """The run's `Checkpoint`s, intact or damaged, the newest first."""
        paths = self.checkpoints_folder.glob(f"step-{8 * '[0-9]'}")
        return [Checkpoint(path) for path in sorted(paths, reverse=True)]

    def newest_checkpoint(self):
        """The newest intact `Checkpoint`, or None if the run has no checkpoints."""
        checkpoints = self.checkpoints()
        for checkpoint in checkpoints:
            try:
                checkpoint.verify()
                return checkpoint
            except (UserError, OSError) as error:
                log.warning("%s; trying the checkpoint before it", error)
        if checkpoints:
            raise UserError(
                f"{self.checkpoints_folder}: all checkpoints are damaged; restore one, "
                f"or delete {self.path} to start again"
            )
        return None

    def save_checkpoint(self, state, writers, keep_last):
        """Writes a checkpoint, publishes its weights, and removes old checkpoints.

        The checkpoint is flushed to disk under a temporary name and then renamed, so it
        is either complete or absent.

        Args:
            state: a dict for JSON; ``step`` names the checkpoint, and ``best_step`` is
                the step of the best one.
            writers: a function of a path for each file, by the file's name.
            keep_last: the number of checkpoints to keep.

        Raises:
            UserError: it cannot be written.
        """
        step = state["step"]
        path = self.checkpoints_folder / f"step-{step:08d}"
        part = path.with_name(f".part-{path.name}")
        try:
            for left in self.checkpoints_folder.glob(".part-*"):  # after a kill
                shutil.rmtree(left)
            part.mkdir(parents=True)
            for name, write in writers.items():
                write(part / name)
            (part / STATE).write_text(json.dumps(state, indent=1), encoding="utf-8")
            digests = {file.name: _digest(file) for file in part.iterdir()}
            (part / DIGESTS).write_text(json.dumps(digests), encoding="utf-8")
            for file in (*part.iterdir(), part):
                _to_disk(file)
            shutil.rmtree(path, ignore_errors=True)  # a damaged one of the same step
            os.replace(part, path)
            _to_disk(self.checkpoints_folder)
            self.publish(Checkpoint(path))
        except (OSError, RuntimeError, ValueError) as error:  # h5py raises all three
            number = getattr(error, "errno", None)
            reason = os.strerror(number) if number else str(error).partition("\n")[0]
            raise UserError(
                f"{path}: step {step:,} could not be saved: {reason}; earlier "
                "checkpoints are unchanged: fix this, and the same command resumes"
            ) from None
        finally:
            shutil.rmtree(part, ignore_errors=True)
        # Later ones are damaged: the run would have resumed from them otherwise.
        checkpoints = self.checkpoints()
        kept = [checkpoint for checkpoint in checkpoints if checkpoint.step <= step]
        for old in {*checkpoints} - {*kept[:keep_last]}:
            shutil.rmtree(old.path, ignore_errors=True)

    def publish(self, checkpoint):
        """Copies a checkpoint's weights to the files "last" and, if it is, "best"."""
        _copy(checkpoint.weights_file, self.weights_file("last"))
        if checkpoint.state()["best_step"] == checkpoint.step:
            # The weights that were validated: the moving average, if there is one.
            averaged = checkpoint.path / AVERAGED
            best = averaged if averaged.exists() else checkpoint.weights_file
            _copy(best, self.weights_file("best"))

    @contextlib.contextmanager
    def locked(self):
        """A context in which no other process trains here, or a `UserError`."""
        with open(self.path / ".lock", "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"{self.path}: another process is training in this folder: wait "
                    "until it ends, or use another folder"
                ) from None
            yield


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to resume as if it had never stopped."""

    path: Path  # such as checkpoints/step-00001000

    step = property(lambda self: int(self.path.name.removeprefix("step-")))
    weights_file = property(lambda self: self.path / WEIGHTS)  # not averaged

    def state(self):
        """The run's state as a dict, without arrays."""
        return json.loads((self.path / STATE).read_text(encoding="utf-8"))

    def arrays(self):
        """The arrays of `TrainingTransformer.state`."""
        with np.load(self.path / ARRAYS, allow_pickle=False) as arrays:
            return [arrays[name] for name in arrays.files]

    def verify(self):
        """Checks the files' checksums; an error names a damaged or missing file."""
        file = self.path / DIGESTS
        try:
            digests = json.loads(file.read_bytes())
            for name, digest in digests.items():
                file = self.path / name
                if _digest(file) != digest:
                    raise ValueError
        except ValueError:
            raise UserError(f"{file}: damaged: wrong checksum") from None


def _copy(file, name):
    """Copies a file to a name in one step, never half of it."""
    part = name.with_name(f".part.{name.name}")
    shutil.copyfile(file, part)
    os.replace(part, name)


def _digest(file):
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _to_disk(path):
    """Flushes a file or folder to disk, so that it survives a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def build_model(config, tokenizer, precision="float32"):
    """Builds the `Transformer` of a `Config`, with initial weights in float32.

    With separate vocabularies, embeddings are tied on the target's side only. The
    precision is the number format of the computation.
    """
    from tfxformer.model import Transformer

    settings, (source, target) = config.model_dump()["model"], tokenizer.sides
    if settings["tie_embeddings"] and not config.tokenizer.shared:
        settings["tie_embeddings"] = "target"
    model = Transformer(
        input_vocab_size=source.vocab_size,
        target_vocab_size=target.vocab_size,
        dtype=precision if precision == "float32" else f"mixed_{precision}",
        **settings,
    )
    model.build()
    return model


def load_weights(model, file):
    """Reads a ``.weights.h5`` file; a `UserError` if it does not fit the model."""
    try:
        model.load_weights(file)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"{file}: damaged, or not the model of config.yaml: {reason}"
        ) from None


def measurements(path):
    """Reads the metrics of a run folder: a list of dicts.

    Each has ``step``, ``split`` ("train" or "validation") and values, such as ``loss``.

    Raises:
        OSError: the folder has no metrics.
        UserError: a line is damaged.
    """
    file, rows = Run(Path(path)).metrics_file, []
    *lines, _ = file.read_bytes().split(b"\n")  # a kill may cut off the last line
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            rows.append(row | {"step": int(row["step"]), "split": row["split"]})
        except (ValueError, TypeError, LookupError):
            raise UserError(
                f"{file}:{number}: damaged: expected metrics as JSON; delete the line"
            ) from None
    return rows
