"""Strings to strings."""

import logging
from pathlib import Path

import numpy as np
import tensorflow as tf

# Its ops are in any exported translator; importing it registers them.
import tensorflow_text  # noqa: F401

from tfxformer.errors import UserError
from tfxformer.recorded import read_metadata
from tfxformer.run import Run
from tfxformer.signatures import signatures

log = logging.getLogger("tfxformer")


class Translator:
    """Translates text.

    Args:
        tokenizer: a `Tokenizer`.
        transformer: the `Transformer` that was trained with it.

    Raises:
        UserError: when they do not belong together.

    Example:
        >>> from tfxformer import Tokenizer, Transformer
        >>> tokenizer = Tokenizer.train(["um gato", "a cat"] * 50, vocab_size=300)
        >>> size = tokenizer.vocab_size
        >>> transformer = Transformer(
        ...     num_layers=1, d_model=16, num_heads=2, dff=32, max_length=32,
        ...     input_vocab_size=size, target_vocab_size=size,
        ... )
        >>> translator = Translator(tokenizer, transformer)
        >>> len(translator(["um gato", ""])), translator("")
        (2, '')
    """

    def __init__(self, tokenizer, transformer):
        if tokenizer.vocab_size != transformer.target_vocab_size:
            raise UserError(
                f"the tokenizer has {tokenizer.vocab_size} pieces, the model "
                f"{transformer.target_vocab_size}: they do not belong together"
            )
        if not transformer.built:
            transformer.build()
        self.tokenizer = tokenizer
        self.transformer = transformer
        self.max_length = transformer.max_length
        self.signatures = signatures(tokenizer, transformer)

    @classmethod
    def load(cls, path, checkpoint="best"):
        """A translator from a run folder, or from an exported SavedModel.

        Args:
            path: a run folder, or the folder of one version of an exported model.
            checkpoint: "best" or "last", for a run folder.

        Returns:
            A `Translator`. From a SavedModel it has no ``tokenizer`` and no
            ``transformer``, only what the signatures give.

        Raises:
            UserError: when there is nothing at the path that translates.
        """
        path = Path(path)
        if (path / "saved_model.pb").exists():
            return cls._from_saved_model(path)
        return cls(*Run.open(path).load(checkpoint))

    @classmethod
    def _from_saved_model(cls, path):
        metadata = read_metadata(path)
        if metadata is None or "max_length" not in metadata["model"]:
            raise UserError(f"{path}: a SavedModel, but none that tfxformer exported")
        try:
            loaded = tf.saved_model.load(str(path))
        except (OSError, ValueError, tf.errors.OpError) as error:
            reason = str(error).strip().splitlines()[0]
            raise UserError(f"{path}: damaged: {reason}") from None
        translator = cls.__new__(cls)
        translator.tokenizer = translator.transformer = None
        translator.max_length = metadata["model"]["max_length"]
        translator.signatures = dict(loaded.signatures)
        translator._loaded = loaded  # it owns the variables
        return translator

    def __call__(self, text, batch_size=64):
        """Translates a string or a list of strings.

        A text of more than ``max_length - 1`` tokens is translated as far as the
        model can read; a warning says which one. An empty text gives an empty text.

        Args:
            text: a string, or a list of strings; bytes are taken as UTF-8.
            batch_size: the most texts translated at once.

        Returns:
            A string, or a list of strings in the same order.

        Raises:
            TypeError: for anything but strings.
        """
        if isinstance(text, (str, bytes)):
            return self.translate([text])[0][0]
        return self.translate(text, batch_size)[0]

    def translate(self, texts, batch_size=64, first=1):
        """Translates many texts, those of like length together.

        Args:
            texts: a list of strings or bytes.
            batch_size: the most texts translated at once.
            first: the number of the first text in warnings.

        Returns:
            The translations, a list of strings, and their scores, a float array
            ``(texts,)``: the mean log-probability of a translation's tokens.

        Raises:
            TypeError: for anything but strings.
        """
        texts = [_as_bytes(text) for text in texts]
        translations, scores = [""] * len(texts), np.zeros(len(texts), "float32")
        lengths = np.zeros(len(texts), int)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for begin in range(0, len(order), batch_size):
            rows = order[begin : begin + batch_size]
            batch = tf.constant([texts[i] for i in rows])
            answer = self.signatures["serving_default"](text=batch)
            for i, translation in zip(rows, answer["translation"].numpy(), strict=True):
                translations[i] = translation.decode()
            scores[rows] = answer["score"].numpy()
            ids = self.signatures["tokenize"](text=batch)["ids"]
            lengths[rows] = np.count_nonzero(ids, axis=1)
        for i in np.flatnonzero(lengths >= self.max_length):
            log.warning(
                "text %d has %d tokens: the model reads the first %d, the rest is not "
                "translated; split it into sentences",
                first + i,
                lengths[i],
                self.max_length - 1,
            )
        return translations, scores

    def answers(self, signature, inputs):
        """Runs one signature of the exported model's contract.

        Args:
            signature: its name, such as "serving_default".
            inputs: arrays by input name.

        Returns:
            NumPy arrays by output name.
        """
        inputs = {name: tf.constant(value) for name, value in inputs.items()}
        outputs = self.signatures[signature](**inputs)
        return {name: value.numpy() for name, value in outputs.items()}


def _as_bytes(text):
    if isinstance(text, str):
        # Lone surrogates, which no UTF-8 has, become question marks.
        return text.encode("utf-8", errors="replace")
    if isinstance(text, bytes):
        return text
    raise TypeError(f"a text must be a string, not {type(text).__name__}: {text!r}")
