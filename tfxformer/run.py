"""A run folder: all that it takes to use a trained model again, or to go on."""

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
    """The files of a run folder.

    ``config.yaml`` (settings), ``tokenizer.model`` (SentencePiece),
    ``best.weights.h5`` and ``last.weights.h5`` (Keras weights), ``checkpoints/`` (all
    it takes to resume),
    ``metrics.jsonl`` (a line each time something was measured), ``tensorboard/``, and
    ``tokens/`` (the pairs as token ids).

    Args:
        path: the folder.

    Example:
        >>> Run(Path("runs/mine")).weights_file("best").as_posix()
        'runs/mine/best.weights.h5'
    """

    path: Path

    @classmethod
    def open(cls, path):
        """A run folder that is there.

        Args:
            path: the folder.

        Returns:
            A `Run`.

        Raises:
            UserError: when it is not, or is no run folder.
        """
        run = cls(Path(path))
        if not run.path.is_dir():
            raise UserError(f"{path}: there is no such run folder")
        for file in (run.config_file, run.tokenizer_file):
            if not file.exists():
                raise UserError(f"{path}: not a run folder, {file.name} is missing")
        return run

    @property
    def config_file(self):
        """The settings, YAML."""
        return self.path / "config.yaml"

    @property
    def tokenizer_file(self):
        """The SentencePiece model."""
        return self.path / "tokenizer.model"

    @property
    def checkpoints_folder(self):
        """A folder for each checkpoint."""
        return self.path / "checkpoints"

    @property
    def tokens_folder(self):
        """The pairs it trains on, as token ids."""
        return self.path / "tokens"

    @property
    def metrics_file(self):
        """What was measured, a JSON object a line."""
        return self.path / "metrics.jsonl"

    @property
    def tensorboard_folder(self):
        """The same for TensorBoard."""
        return self.path / "tensorboard"

    def weights_file(self, name):
        """Where the weights of a checkpoint are, or would be.

        Args:
            name: one of `CHECKPOINTS`.

        Returns:
            A path.
        """
        return self.path / f"{name}.weights.h5"

    def config(self):
        """The settings the run was started with.

        Returns:
            A `Config`.

        Raises:
            UserError: when they cannot be read.
        """
        return load_config(file=self.config_file)

    def tokenizer(self):
        """The run's tokenizer.

        Returns:
            A `Tokenizer`.

        Raises:
            UserError: when it cannot be read.
        """
        return Tokenizer.load(self.tokenizer_file)

    def load(self, checkpoint="best"):
        """What was trained: the tokenizer, and the model without its optimiser.

        Args:
            checkpoint: one of `CHECKPOINTS`.

        Returns:
            A `Tokenizer` and a `Transformer`.

        Raises:
            UserError: when there is no such checkpoint, or it is of another model.
        """
        tokenizer = self.tokenizer()
        return tokenizer, self.load_model(tokenizer.vocab_size, checkpoint)

    def load_model(self, vocab_size, checkpoint="best"):
        """The model alone; see `load`.

        Args:
            vocab_size: the size of the run's vocabulary.
            checkpoint: one of `CHECKPOINTS`.

        Returns:
            A `Transformer`.

        Raises:
            UserError: as `load`.
        """
        file = self.trained_weights(checkpoint)
        model = build_model(self.config(), vocab_size)
        load_weights(model, file)
        return model

    def trained_weights(self, checkpoint="best"):
        """The file of one of `CHECKPOINTS`, which is there.

        Args:
            checkpoint: one of `CHECKPOINTS`.

        Returns:
            A path.

        Raises:
            UserError: when it is not.
        """
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

        Yields:
            None.

        Raises:
            UserError: when another one does.
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
                log.warning(
                    "%s: cannot be locked (%s): start no second training in it",
                    self.path,
                    error.strerror,
                )
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

    settings = config.to_dict()["model"]
    policy = precision if precision == "float32" else f"mixed_{precision}"
    model = (model_class or Transformer)(
        input_vocab_size=vocab_size,
        target_vocab_size=vocab_size,
        dtype=policy,
        **settings,
    )
    model.build()
    return model


def load_weights(model, file):
    """Reads weights, and says clearly when they are not this model's.

    Args:
        model: a built `Transformer`.
        file: a ``.weights.h5`` file.

    Raises:
        UserError: when the file is damaged or of another model.

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
        values by name, such as ``loss``. A line that holds no such dict, as one that
        a killed run has begun, is left out.

    Raises:
        UserError: when the folder has none, or they cannot be read.

    Example:
        >>> measurements("nowhere")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere/metrics.jsonl: No such file ...
    """
    file = Path(path) / "metrics.jsonl"
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}: give a run folder") from None
    rows = []
    for line in lines:
        # Not JSON, not UTF-8, or of more brackets or digits than Python reads.
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict) and type(row.get("step")) is int:
                rows.append(row)
    return rows
