"""A run folder: all that it takes to use a trained model again, or to resume."""

import contextlib
import fcntl
import json
import logging
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from tfxformer.config import load_config
from tfxformer.errors import UserError
from tfxformer.tokenizer import Tokenizer

log = logging.getLogger("tfxformer")

# The weights of a run that can be asked for.
CHECKPOINTS = ("best", "last")


@dataclass(frozen=True)
class Run:
    """The files of a run folder, each a path.

    Args:
        path: the folder.

    Attributes:
        config_file: the settings, YAML.
        tokenizer_file: the SentencePiece model.
        checkpoints_folder: a folder for each checkpoint: all it takes to resume.
        tokens_folder: the pairs it trains on, as token ids.
        metrics_file: what was measured, a JSON object a line.
        tensorboard_folder: the same for TensorBoard.

    Example:
        >>> run = Run(Path("runs/mine"))
        >>> run.config_file.as_posix(), run.weights_file("best").as_posix()
        ('runs/mine/config.yaml', 'runs/mine/best.weights.h5')
    """

    path: Path

    config_file = property(lambda self: self.path / "config.yaml")
    tokenizer_file = property(lambda self: self.path / "tokenizer.model")
    checkpoints_folder = property(lambda self: self.path / "checkpoints")
    tokens_folder = property(lambda self: self.path / "tokens")
    metrics_file = property(lambda self: self.path / "metrics.jsonl")
    tensorboard_folder = property(lambda self: self.path / "tensorboard")

    @classmethod
    def open(cls, path):
        """A run folder that is there.

        Args:
            path: the folder.

        Returns:
            A `Run`.

        Raises:
            UserError: it is not there, or is no run folder.
        """
        run = cls(Path(path))
        if not run.path.is_dir():
            raise UserError(f"{path}: there is no such run folder")
        for file in (run.config_file, run.tokenizer_file):
            if not file.exists():
                raise UserError(f"{path}: not a run folder, {file.name} is missing")
        return run

    def weights_file(self, name):
        """Where the Keras weights of one of `CHECKPOINTS`, by name, are or will be."""
        return self.path / f"{name}.weights.h5"

    def config(self):
        """The `Config` the run was started with."""
        return load_config(file=self.config_file)

    def tokenizer(self):
        """The run's `Tokenizer`."""
        return Tokenizer.load(self.tokenizer_file)

    def load(self, checkpoint="best"):
        """What was trained.

        Args:
            checkpoint: one of `CHECKPOINTS`.

        Returns:
            A `Tokenizer` and a `Transformer`.

        Raises:
            UserError: there is no such checkpoint, or it is of another model.
        """
        tokenizer, file = self.tokenizer(), self.trained_weights(checkpoint)
        model = build_model(self.config(), tokenizer.vocab_size)
        load_weights(model, file)
        return tokenizer, model

    def trained_weights(self, checkpoint="best"):
        """The file of one of `CHECKPOINTS`, or an error where it is not there."""
        if checkpoint not in CHECKPOINTS:
            known = ", ".join(CHECKPOINTS)
            raise UserError(f"checkpoint {checkpoint!r}: there are {known}")
        file = self.weights_file(checkpoint)
        if not file.exists():
            raise UserError(f"{self.path}: {file.name} is missing: train the run first")
        return file

    @contextlib.contextmanager
    def locked(self):
        """Within it, no other process trains in this folder.

        The lock goes with the process, however that ends.

        Raises:
            UserError: another process does.
        """
        file = self.path / ".lock"
        try:
            opened = open(file, "a+", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise UserError(f"{file}: {error.strerror}") from None
        with opened:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                opened.seek(0)
                who = opened.read().strip() or "another process"
                raise UserError(
                    f"{self.path}: {who} is training in this folder: wait for it, or "
                    "use another folder"
                ) from None
            except OSError as error:
                text = "%s: cannot be locked (%s): start no second training in it"
                log.warning(text, self.path, error.strerror)
            # Only for the message above: a full disk is no reason to stop here.
            with contextlib.suppress(OSError):
                os.ftruncate(opened.fileno(), 0)
                who = f"process {os.getpid()} on {socket.gethostname()}"
                os.write(opened.fileno(), who.encode())
            yield


def build_model(config, vocab_size, precision="float32", model_class=None):
    """The model that the settings describe, with fresh weights.

    Args:
        config: a `Config`.
        vocab_size: the size of the joint vocabulary.
        precision: "float32"; or "bfloat16" or "float16", to compute in, while weights
            stay float32.
        model_class: a subclass of `Transformer`; None for itself.

    Returns:
        A built `Transformer`.

    Example:
        >>> config = load_config("tiny", overrides=["model.num_layers=1"])
        >>> build_model(config, vocab_size=300).count_params()
        501760
    """
    from tfxformer.model import Transformer

    model = (model_class or Transformer)(
        input_vocab_size=vocab_size,
        target_vocab_size=vocab_size,
        dtype=precision if precision == "float32" else f"mixed_{precision}",
        **config.model_dump()["model"],
    )
    model.build()
    return model


def load_weights(model, file):
    """Reads weights, and says clearly when they are not this model's.

    Args:
        model: a built `Transformer`.
        file: a ``.weights.h5`` file.

    Raises:
        UserError: the file is damaged or of another model.

    Example:
        >>> config = load_config("tiny", overrides=["model.num_layers=1"])
        >>> load_weights(build_model(config, vocab_size=300), "nowhere.weights.h5")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere.weights.h5: damaged, or of another model ...
    """
    try:
        model.load_weights(file)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"{file}: damaged, or of another model than config.yaml describes: {reason}"
        ) from None


def measurements(path):
    """What was measured in a run.

    Args:
        path: the run folder.

    Returns:
        A list of dicts, each with ``step``, ``split`` ("train" or "validation") and
        values by name, such as ``loss``. Lines that hold no such dict are left out.

    Raises:
        UserError: the folder has none, or they cannot be read.

    Example:
        >>> measurements("nowhere")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere/metrics.jsonl: No such file ...
    """
    file, rows = Run(Path(path)).metrics_file, []
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}: give a run folder") from None
    for line in lines:
        # Not JSON, not UTF-8, or of more brackets or digits than Python reads.
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict) and type(row.get("step")) is int:
                rows.append(row)
    return rows
