"""Strings to strings."""

import dataclasses
import logging
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

# Its ops are in any exported translator; importing it registers them.
import tensorflow_text  # noqa: F401

from tfxformer import sentences
from tfxformer.decoding import DecodingOptions
from tfxformer.decoding.next_token import NEVER
from tfxformer.errors import UserError
from tfxformer.explanation import Explanation
from tfxformer.recorded import read_metadata
from tfxformer.run import Run
from tfxformer.signatures import completion, signatures

log = logging.getLogger("tfxformer")

# A translation takes this many tokens' room at least: a batch of very short sentences
# would be very many of them.
_LEAST_TOKENS = 16
# The most characters, padding included, whose tokens are counted at once.
_CHARACTERS_PER_BATCH = 2**20


class _Translation(NamedTuple):
    """A sentence's translation.

    Attributes:
        text: a string.
        score: the mean log-probability of its tokens.
        tokens: how many they are, the end token included; 0 for that of nothing.
    """

    text: str
    score: float
    tokens: int


class Translator:
    r"""Translates text.

    Args:
        tokenizer: a `Tokenizer`.
        transformer: the `Transformer` that was trained with it.
        options: `DecodingOptions`; None decodes greedily.
        xla: compile decoding with XLA: faster once it is compiled, which takes
            seconds for each of a few shapes.

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
        >>> translator("\n\n")  # a document's blank lines stay
        '\n\n'
        >>> translator.score(["um gato"], ["a cat"]).shape
        (1,)
    """

    def __init__(self, tokenizer, transformer, options=None, xla=False):
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
        options = options or DecodingOptions()
        forbidden = tokenizer.ids_of(options.forbidden)
        self.options = dataclasses.replace(options, forbidden=forbidden)
        self.xla = xla
        self.signatures = signatures(tokenizer, transformer, self.options, xla)
        self._complete = completion(tokenizer, transformer, self.options)

    @classmethod
    def load(cls, path, checkpoint="best", options=None, xla=False):
        """A translator from a run folder, or from an exported SavedModel.

        Args:
            path: a run folder, or the folder of one version of an exported model.
            checkpoint: "best" or "last", for a run folder.
            options: `DecodingOptions`, for a run folder.
            xla: compile decoding with XLA, for a run folder.

        Returns:
            A `Translator`. From a SavedModel it has no ``tokenizer`` and no
            ``transformer``, only what the signatures give.

        Raises:
            UserError: when there is nothing at the path that translates, or options
                are given for a SavedModel, in which they were chosen at its export.
        """
        path = Path(path)
        if not (path / "saved_model.pb").exists():
            return cls(*Run.open(path).load(checkpoint), options, xla)
        if xla or (options or DecodingOptions()) != DecodingOptions():
            raise UserError(
                f"{path}: how an exported model decodes was chosen at its export; "
                "give a run folder, or export again with these options"
            )
        return cls._from_saved_model(path)

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
        translator.tokenizer = translator.transformer = translator.options = None
        translator.max_length = metadata["model"]["max_length"]
        translator.signatures = dict(loaded.signatures)
        translator._loaded = loaded  # it owns the variables
        return translator

    def __call__(self, text, tokens_per_batch=2048, split_sentences=True):
        """Translates a string or a list of strings, as `translate` does.

        Args:
            text: a string, or a list of strings; bytes are taken as UTF-8.
            tokens_per_batch: see `translate`.
            split_sentences: see `translate`.

        Returns:
            A string, or a list of strings in the same order.

        Raises:
            TypeError: for anything but strings.
        """
        texts = [text] if isinstance(text, (str, bytes)) else text
        translations, _ = self.translate(texts, tokens_per_batch, split_sentences)
        return translations[0] if isinstance(text, (str, bytes)) else translations

    def translate(self, texts, tokens_per_batch=2048, split_sentences=True, first=1):
        """Translates texts of any length: a word, a sentence, a document.

        The model reads sentences, those of like length together and each that occurs
        several times once. They come back in their places, with the white space
        between them as it was: spaces, line breaks and blank lines. A sentence of
        more than ``max_length - 1`` tokens is cut at the best places
        (`sentences.split_to_fit`), and its parts are translated.

        Args:
            texts: a list of strings; bytes are taken as UTF-8.
            tokens_per_batch: the most source tokens, padding included, that are
                translated at once; a sentence counts as 16 at least.
            split_sentences: False for texts that are one sentence a line by
                decree, such as a test set's: a line that fits the model's limit is
                then read as it is, also where it holds two sentences.
            first: the number of the first text in messages.

        Returns:
            The translations, a list of strings, and their scores, a float array
            ``(texts,)``: the mean log-probability of a translation's tokens, over
            all its sentences; 0 where there is nothing to translate.

        Raises:
            TypeError: for anything but strings.
        """
        split = sentences.split_sentences if split_sentences else sentences.split_lines
        documents = self._fit([split(_as_text(text)) for text in texts], first)
        unique = dict.fromkeys(part for pieces in documents for part in pieces[1::2])
        answers = self._translate_sentences([*unique], tokens_per_batch)
        answers = dict(zip(unique, answers, strict=True))
        scores = np.zeros(len(documents), "float32")
        for i, pieces in enumerate(documents):
            parts = [answers[part] for part in pieces[1::2]]
            tokens = sum(part.tokens for part in parts)
            total = sum(part.score * part.tokens for part in parts)
            scores[i] = total / max(tokens, 1)
            pieces[1::2] = [part.text for part in parts]
            # Where nothing parted two sentences, as in Chinese, their translations
            # would run together.
            pieces[2:-1:2] = [space or " " for space in pieces[2:-1:2]]
        return ["".join(pieces) for pieces in documents], scores

    def n_best(self, texts, tokens_per_batch=2048, first=1):
        """Several translations of each text, best first.

        Each text is read as one sentence.

        Args:
            texts: a list of strings; bytes are taken as UTF-8.
            tokens_per_batch: see `translate`.
            first: the number of the first text in warnings.

        Returns:
            For each text a list of pairs: a translation and its score, which is what
            they are ordered by: the mean log-probability of its tokens, or with
            penalties GNMT's. There are as many as the options say (``n_best``), 4 if
            they do not; fewer where the search has found fewer.

        Raises:
            TypeError: for anything but strings.
        """
        texts = [_as_text(text) for text in texts]
        lengths = self._lengths(texts)
        for i in np.flatnonzero(lengths >= self.max_length):
            log.warning(
                "text %d has %d tokens, the model reads the first %d: give n-best "
                "lists sentence by sentence",
                first + i,
                lengths[i],
                self.max_length - 1,
            )
        lists = [[] for _ in texts]
        for rows in _batches(lengths + 1, tokens_per_batch, _LEAST_TOKENS):
            answer = self.answers("translate_nbest", {"text": [texts[i] for i in rows]})
            # By name: a SavedModel gives them in another order.
            columns = (answer["translations"], answer["scores"])
            for i, translations, scores in zip(rows, *columns, strict=True):
                found = scores > NEVER / 2
                lists[i] = [
                    (translation.decode(), float(score))
                    for translation, score in zip(
                        translations[found], scores[found], strict=True
                    )
                ]
        return lists

    def complete(self, texts, prefixes):
        """Translations that begin as they are told to.

        Args:
            texts: a list of strings, each read as one sentence.
            prefixes: as many strings: what each translation begins with; an empty
                one leaves it free.

        Returns:
            A list of strings.

        Raises:
            UserError: for an exported model, which takes no prefixes.
        """
        if self.transformer is None:
            raise UserError("an exported model takes no prefixes: give a run folder")
        if len(texts) != len(prefixes):
            raise ValueError(f"{len(prefixes)} prefixes for {len(texts)} texts")
        if not texts:
            return []
        found = self._complete(
            tf.constant([_as_text(text) for text in texts]),
            tf.constant([_as_text(prefix) for prefix in prefixes]),
        )
        return [text.decode() for text in found["translation"].numpy()]

    def explain(self, text):
        """A sentence's translation and what each of its tokens attended to.

        The weights are those with which the translation was written: nothing is
        decoded twice.

        Args:
            text: a string, read as one sentence.

        Returns:
            An `Explanation`.
        """
        answer = self.answers("attention", {"text": [_as_text(text)]})
        return Explanation.of(
            *(answer[name][0] for name in ("source_tokens", "target_tokens")),
            answer["attention"][0],
        )

    def score(self, texts, translations, tokens_per_batch=2048, first=1):
        """How likely the model finds translations that are given.

        Each text, and each translation, is read as one sentence.

        Args:
            texts: a list of strings; bytes are taken as UTF-8.
            translations: as many strings, of the same places.
            tokens_per_batch: the most tokens, padding included, that are scored at
                once on either side.
            first: the number of the first text in warnings.

        Returns:
            A float array ``(texts,)``: the mean log-probability of a translation's
            tokens, the end token among them. NaN, with a warning, where the text or
            its translation has more than ``max_length - 1`` tokens: the score of
            what fits would mislead.

        Raises:
            TypeError: for anything but strings.
            ValueError: when there are not as many translations as texts.
        """
        texts = [_as_text(text) for text in texts]
        translations = [_as_text(translation) for translation in translations]
        if len(texts) != len(translations):
            raise ValueError(f"{len(translations)} translations for {len(texts)} texts")
        lengths = np.maximum(self._lengths(texts), self._lengths(translations))
        scores = np.full(len(texts), np.nan, "float32")
        for i in np.flatnonzero(lengths >= self.max_length):
            log.warning(
                "text %d is not scored: it or its translation has %d tokens, more "
                "than the %d that the model reads",
                first + i,
                lengths[i],
                self.max_length - 1,
            )
        fits = np.flatnonzero(lengths < self.max_length)
        for rows in _batches(lengths[fits] + 1, tokens_per_batch):
            rows = fits[rows]
            answer = self.signatures["score"](
                text=tf.constant([texts[i] for i in rows]),
                translation=tf.constant([translations[i] for i in rows]),
            )
            scores[rows] = answer["score"].numpy()
        return scores

    def _fit(self, documents, first):
        """Cuts the sentences that the model cannot read at once.

        Args:
            documents: lists of pieces, as `sentences.split_sentences` gives them.
            first: the number of the first document in messages.

        Returns:
            The same with each long sentence's parts in its place.
        """
        longest = self.max_length - 1
        unique = [*dict.fromkeys(text for pieces in documents for text in pieces[1::2])]
        parts = sentences.split_to_fit(unique, self._lengths, longest)
        parts = dict(zip(unique, parts, strict=True))
        for number, pieces in enumerate(documents, first):
            for text in pieces[1::2]:
                if len(parts[text]) > 1:
                    log.info(
                        "text %d: a sentence of %d characters is more than the model "
                        "reads at once, %d tokens: translated in %d parts",
                        number,
                        len(text),
                        longest,
                        len(parts[text][::2]),
                    )
        return [
            [part for piece in pieces for part in parts.get(piece, [piece])]
            for pieces in documents
        ]

    def _translate_sentences(self, texts, tokens_per_batch):
        """Gives a `_Translation` for each sentence that fits the model's limit."""
        lengths = self._lengths(texts)
        for i in np.flatnonzero(lengths >= self.max_length):  # one character
            log.warning(
                "%r has %d tokens: the model reads the first %d",
                texts[i],
                lengths[i],
                self.max_length - 1,
            )
        translations, scores = [""] * len(texts), np.zeros(len(texts))
        for rows in _batches(lengths + 1, tokens_per_batch, _LEAST_TOKENS):
            batch = tf.constant([texts[i] for i in rows])
            answer = self.signatures["serving_default"](text=batch)
            for i, translation in zip(rows, answer["translation"].numpy(), strict=True):
                translations[i] = translation.decode()
            scores[rows] = answer["score"].numpy()
        # Nearly always the tokens that were written: those of the text they make.
        tokens = np.where(lengths > 0, self._lengths(translations) + 1, 0)
        return list(map(_Translation, translations, scores, tokens))

    def _lengths(self, texts):
        """How many tokens each text has, without start and end: an int array."""
        lengths = np.zeros(len(texts), int)
        for rows in _batches([len(text) for text in texts], _CHARACTERS_PER_BATCH):
            batch = tf.constant([texts[i] for i in rows])
            ids = self.signatures["tokenize"](text=batch)["ids"]
            lengths[rows] = np.count_nonzero(ids, axis=1)
        return lengths

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


def _batches(lengths, limit, least=0):
    """Rows of like length together, as many as padded to the longest stay in a limit.

    Args:
        lengths: how long each row is.
        limit: the most positions of a batch; a row that is longer has its own.
        least: what a row counts at least.

    Yields:
        Lists of row numbers, short rows first.
    """
    rows = []
    for row in np.argsort(lengths, kind="stable"):
        if rows and (len(rows) + 1) * max(lengths[row], least) > limit:
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows


def _as_text(text):
    """A string that is valid Unicode, of a string or of UTF-8."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="surrogateescape")
    if not isinstance(text, str):
        raise TypeError(f"a text must be a string, not {type(text).__name__}: {text!r}")
    # Bytes that are not UTF-8, and lone surrogates, count as spaces.
    return re.sub("[\ud800-\udfff]", " ", text)
