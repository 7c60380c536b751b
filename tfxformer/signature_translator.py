"""Strings to strings through a model's signatures, wherever they run."""

import logging
import re
import reprlib

import numpy as np

from tfxformer import sentences
from tfxformer.decoding.options import NEVER
from tfxformer.explanation import Explanation

log = logging.getLogger("tfxformer")

# A translation takes this many tokens' room at least: a batch of very short sentences
# would be very many of them.
_LEAST_TOKENS = 16
# The most characters, padding included, whose tokens are counted at once.
_CHARACTERS_PER_BATCH = 2**20


class SignatureTranslator:
    """Translates text with the signatures of an exported model's contract.

    What has them gives ``max_length``, the most positions that the model reads, and
    `answers`. `tfxformer.Translator` has the model itself.

    Example:
        A model that writes each text backwards, a character a token:

        >>> class Backwards(SignatureTranslator):
        ...     max_length = 64
        ...
        ...     def answers(self, signature, inputs):
        ...         texts = [text.encode() for text in inputs["text"]]
        ...         if signature == "count":
        ...             return {"tokens": np.array([len(text) for text in texts])}
        ...         scores = np.zeros(len(texts), "float32")
        ...         return {"translation": [x[::-1] for x in texts], "score": scores}
        >>> Backwards()("abc def")
        'fed cba'
    """

    def answers(self, signature, inputs):
        """Runs one signature of the exported model's contract.

        Args:
            signature: its name, such as "translate".
            inputs: arrays by input name.

        Returns:
            NumPy arrays by output name; strings are bytes.
        """
        raise NotImplementedError

    def all_answers(self, signature, batches):
        """Runs a signature once for each batch.

        Args:
            signature: its name.
            batches: an iterable of inputs, as `answers` takes them.

        Returns:
            An iterable of answers, in the same order.
        """
        return (self.answers(signature, inputs) for inputs in batches)

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
        documents = self._fit([*map(split, as_texts(texts, first))], first)
        unique = dict.fromkeys(part for pieces in documents for part in pieces[1::2])
        translations, means = self._translate_sentences([*unique], tokens_per_batch)
        means = dict(zip(unique, means, strict=True))
        translations = dict(zip(unique, translations, strict=True))
        # Of texts of several sentences: so the mean over all tokens weighs them.
        weighed = dict.fromkeys(
            part for pieces in documents if len(pieces) > 3 for part in pieces[1::2]
        )
        # Nearly always the tokens that were written: those of the text they make.
        tokens = self._tokens([translations[part] for part in weighed]) + 1
        tokens = dict(zip(weighed, tokens, strict=True))
        scores = np.zeros(len(documents), "float32")
        for i, pieces in enumerate(documents):
            parts = pieces[1::2]
            weights = [tokens.get(part, 1) for part in parts if means[part]]
            total = sum(means[part] * tokens.get(part, 1) for part in parts)
            scores[i] = total / max(sum(weights), 1)
            pieces[1::2] = [translations[part] for part in parts]
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
        texts = as_texts(texts, first)
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
        batches = [*_batches(lengths + 1, tokens_per_batch, _LEAST_TOKENS)]
        found = self._answers_by_rows("translate_nbest", batches, text=texts)
        for rows, answer in zip(batches, found, strict=True):
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

    def explain(self, text):
        """A sentence's translation and what each of its tokens attended to.

        The weights are those with which the translation was written: nothing is
        decoded twice.

        Args:
            text: a string, read as one sentence.

        Returns:
            An `Explanation`.

        Raises:
            TypeError: for anything but a string.
        """
        answer = self.answers("attention", {"text": [as_text(text)]})
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
        texts = as_texts(texts, first)
        translations = as_texts(translations, first, "translation")
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
        batches = [fits[rows] for rows in _batches(lengths[fits] + 1, tokens_per_batch)]
        found = self._answers_by_rows(
            "score", batches, text=texts, translation=translations
        )
        for rows, answer in zip(batches, found, strict=True):
            scores[rows] = answer["score"]
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
        unique = dict.fromkeys(text for pieces in documents for text in pieces[1::2])
        parts = sentences.split_to_fit([*unique], self._lengths, longest)
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
        """Gives a translation and its score for each sentence that fits the limit."""
        lengths = self._lengths(texts)
        for i in np.flatnonzero(lengths >= self.max_length):  # one character
            log.warning(
                "%r has %d tokens: the model reads the first %d",
                texts[i],
                lengths[i],
                self.max_length - 1,
            )
        translations, scores = [""] * len(texts), np.zeros(len(texts))
        batches = [*_batches(lengths + 1, tokens_per_batch, _LEAST_TOKENS)]
        found = self._answers_by_rows("translate", batches, text=texts)
        for rows, answer in zip(batches, found, strict=True):
            for i, translation in zip(rows, answer["translation"], strict=True):
                translations[i] = translation.decode()
            scores[rows] = answer["score"]
        return translations, scores

    def _answers_by_rows(self, signature, batches, **inputs):
        """`all_answers` for lists of row numbers of some inputs."""
        return self.all_answers(
            signature,
            (
                {name: [values[i] for i in rows] for name, values in inputs.items()}
                for rows in batches
            ),
        )

    def _tokens(self, texts):
        """How many tokens each text has, without start and end: an int array."""
        counts = np.zeros(len(texts), int)
        batches = [*_batches([len(text) for text in texts], _CHARACTERS_PER_BATCH)]
        found = self._answers_by_rows("count", batches, text=texts)
        for rows, answer in zip(batches, found, strict=True):
            counts[rows] = answer["tokens"]
        return counts

    # What batches are measured by: it may be rough where it is below ``max_length``.
    _lengths = _tokens


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


def as_text(text):
    r"""A string that is valid Unicode, of a string or of UTF-8.

    Args:
        text: a string or bytes.

    Returns:
        A string; what is no character is a space in it.

    Raises:
        TypeError: for anything else.

    Example:
        >>> as_text(b"ol\xc3\xa1 \xff!")
        'olá  !'
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="surrogateescape")
    if not isinstance(text, str):
        given = f"{type(text).__name__}: {reprlib.repr(text)}"
        raise TypeError(f"a text must be a string, not {given}")
    # Bytes that are not UTF-8, and lone surrogates, count as spaces.
    return re.sub("[\ud800-\udfff]", " ", text)


def as_texts(texts, first=1, name="text"):
    """`as_text` of each text of a list.

    Args:
        texts: strings or bytes.
        first: the number of the first in messages.
        name: what messages call each of them.

    Returns:
        A list of strings.

    Raises:
        TypeError: for one text instead of a list, and for anything but strings in it.

    Example:
        >>> as_texts(["Bom dia!", None])
        Traceback (most recent call last):
        ...
        TypeError: text 2: a text must be a string, not NoneType: None
    """
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"give a list of strings, not one: {reprlib.repr(texts)}")
    if isinstance(texts, bytearray) or not np.iterable(texts):
        return [as_text(texts)]  # which raises
    found = []
    for number, text in enumerate(texts, first):
        try:
            found.append(as_text(text))
        except TypeError as error:
            raise TypeError(f"{name} {number}: {error}") from None
    return found
