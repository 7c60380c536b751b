"""A run folder: all that it takes to use a trained model again, or to go on."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from tfxformer.config import load_config
from tfxformer.errors import UserError
from tfxformer.model import Transformer
from tfxformer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Run:
    """The files of a run folder.

    ``config.yaml`` (settings), ``tokenizer.model`` (SentencePiece),
    ``best.weights.h5`` and ``last.weights.h5`` (Keras weights, the optimiser's
    state with them), ``state.json`` (how far it is), ``metrics.jsonl`` (a line each
    time something was measured) and ``tensorboard/``.

    Args:
        path: the folder.
    """

    path: Path

    @classmethod
    def open(cls, path):
        """A run folder that is there.

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
    def state_file(self):
        """The step, and the best validation so far."""
        return self.path / "state.json"

    @property
    def metrics_file(self):
        """What was measured, a JSON object a line."""
        return self.path / "metrics.jsonl"

    @property
    def tensorboard_folder(self):
        """The same for TensorBoard."""
        return self.path / "tensorboard"

    def weights_file(self, name):
        """The weights of a checkpoint, "best" or "last"."""
        return self.path / f"{name}.weights.h5"

    def config(self):
        """The settings the run was started with."""
        return load_config(file=self.config_file)

    def tokenizer(self):
        """The run's tokenizer."""
        return Tokenizer.load(self.tokenizer_file)

    def load(self, checkpoint="best"):
        """What was trained: the tokenizer, and the model without its optimiser.

        Args:
            checkpoint: "best" or "last".

        Returns:
            A `Tokenizer` and a `Transformer`.

        Raises:
            UserError: when there is no such checkpoint, or it is of another model.
        """
        if checkpoint not in ("best", "last"):
            raise UserError(f"checkpoint {checkpoint!r}: there are best and last")
        file = self.weights_file(checkpoint)
        if not file.exists():
            raise UserError(f"{self.path}: {file.name} is missing: train the run first")
        tokenizer = self.tokenizer()
        model = build_model(self.config(), tokenizer.vocab_size)
        load_weights(model, file)
        return tokenizer, model

    def save_checkpoint(self, model, state, names):
        """Writes weights and state so that a reader never sees half a file.

        Args:
            model: the compiled model.
            state: what `load_state` is to give back.
            names: the checkpoints to write, of "best" and "last".
        """
        for name in names:
            # Keras wants the ending .weights.h5.
            part = self.path / f".{name}.part.weights.h5"
            model.save_weights(part)
            os.replace(part, self.weights_file(name))
        part = self.path / ".state.part.json"
        part.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
        os.replace(part, self.state_file)

    def load_state(self):
        """How far the run is, or None where it has not begun."""
        if not (self.state_file.exists() and self.weights_file("last").exists()):
            return None
        try:
            return json.loads(self.state_file.read_text(encoding="utf-8"))
        except ValueError:
            raise UserError(
                f"{self.state_file}: not JSON: delete it to start"
            ) from None

    def record(self, **values):
        """Adds a line to the metrics."""
        with open(self.metrics_file, "a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")


def build_model(config, vocab_size):
    """The model that the settings describe, with fresh weights.

    Args:
        config: a `Config`.
        vocab_size: the size of the joint vocabulary.

    Returns:
        A built `Transformer`.
    """
    settings = config.to_dict()["model"]
    model = Transformer(
        input_vocab_size=vocab_size, target_vocab_size=vocab_size, **settings
    )
    model.build()
    return model


def load_weights(model, file):
    """Reads weights, and says clearly when they are not this model's.

    Raises:
        UserError: when the file is damaged or of another model.
    """
    try:
        model.load_weights(file)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"{file}: damaged, or of another model than config.yaml describes: {reason}"
        ) from None
