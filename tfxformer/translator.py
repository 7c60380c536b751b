"""Strings to strings."""

import logging
import re
import reprlib
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from tfxformer import sentences
from tfxformer.decoding import DecodingOptions
from tfxformer.decoding.folded import FoldedTransformer, fold
from tfxformer.decoding.options import NEVER
from tfxformer.errors import UserError
from tfxformer.repository import find_model, read_export, read_metadata
from tfxformer.signatures import Signatures
from tfxformer.training.run import Run

log = logging.getLogger("tfxformer")

# A sentence counts as at least this many tokens, to limit short sentences in a batch.
_LEAST_TOKENS = 16


class Translator:
    """Translates text.

    Args:
        tokenizer: a `Tokenizer`.
        transformer: the `Transformer` that was trained with it.
        options: `DecodingOptions`; None is greedy.

    Attributes:
        origin: the source, licence and languages of an imported model, a dict for the
            metadata of exports; else None.

    Raises:
        UserError: the tokenizer and the model have different vocabularies.

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
        >>> translator.parts("Um gato. Um cão.")
        ['', 'Um gato.', ' ', 'Um cão.', '']
    """

    def __init__(self, tokenizer, transformer, options=None):
        sizes = tuple(side.vocab_size for side in tokenizer.sides)
        names = ("input_vocab_size", "target_vocab_size")
        theirs = tuple(transformer.config[name] for name in names)
        if sizes != theirs:
            raise UserError(
                f"the tokenizer has {sizes} source and target tokens, the model "
                f"{theirs}: use the model's own tokenizer"
            )
        if not transformer.built:
            transformer.build()
        self.tokenizer = tokenizer
        self.transformer = transformer
        self.max_length = transformer.max_length
        self.options = options or DecodingOptions()
        self.origin = None
        self._weights = keras.tree.map_structure(tf.Variable, fold(transformer))
        signatures = Signatures(tokenizer, transformer, self.options, self.folded)
        self.signatures = signatures.functions()
        self._complete = signatures.completion()

    @classmethod
    def load(cls, path=None, checkpoint="best", options=None):
        """Opens a run folder or an exported model.

        Args:
            path: a run folder, one version of an exported model, or the folder of its
                versions (the newest counts); None for the model that comes with the
                package.
            checkpoint: "best" or "last", for a run folder.
            options: `DecodingOptions`; None uses the export's own, and greedy decoding
                for a run folder.

        Returns:
            A `Translator`; its weights have the values in the export, float16 included.

        Raises:
            UserError: there is no usable model at the path.

        Example:
            >>> Translator.load()("Bom dia!")
            'Good morning!'
        """
        path = find_model(path)
        if not (path / "saved_model.pb").exists():
            return cls(*Run.open(path).load(checkpoint), options)
        if checkpoint != "best":
            raise UserError(
                f"checkpoint {checkpoint!r}: {path} is an exported model, which has no "
                "checkpoints: leave the checkpoint out, or give a run folder"
            )
        metadata = read_metadata(path)
        if options is None:
            options = DecodingOptions.described(metadata["decoding"]["translate"])
        translator = cls(*read_export(path), options)
        translator.origin = metadata.get("origin")
        return translator

    def fold_weights(self):
        """Takes over the transformer's weights. Call it after you have changed them.

        Decoding uses a copy of the weights in another form; see `fold`.
        """
        keras.tree.map_structure(
            lambda variable, value: variable.assign(value),
            self._weights,
            fold(self.transformer),
        )

    def folded(self):
        """The model in the form that decoding uses: a `FoldedTransformer`."""
        weights = keras.tree.map_structure(tf.convert_to_tensor, self._weights)
        return FoldedTransformer(self.transformer, weights)

    def answers(self, signature, inputs):
        """Runs one signature of the exported model's contract.

        Args:
            signature: its name, such as "translate".
            inputs: arrays by input name.

        Returns:
            NumPy arrays by output name; strings are bytes.
        """
        inputs = {name: tf.constant(value) for name, value in inputs.items()}
        function = (
            self._complete if signature == "complete" else self.signatures[signature]
        )
        outputs = function(**inputs)
        return {name: value.numpy() for name, value in outputs.items()}

    def __call__(self, text, tokens_per_batch=2048, split_sentences=True):
        """Translates a string, or a list of strings; see `translate`.

        Returns:
            A string, or a list of strings in the same order.
        """
        texts = [text] if isinstance(text, (str, bytes)) else text
        translations, _ = self.translate(texts, tokens_per_batch, split_sentences)
        return translations[0] if isinstance(text, (str, bytes)) else translations

    def translate(self, texts, tokens_per_batch=2048, split_sentences=True, first=1):
        """Translates texts of any length: a word, a sentence, a document.

        Texts are split into sentences, and each distinct sentence is translated once,
        in batches of similar lengths. Translations keep the white space between
        sentences. A sentence of more than ``max_length - 1`` tokens is cut at the best
        places (`sentences.split_to_fit`), and its parts are translated.

        Args:
            texts: a list of strings; bytes are decoded as UTF-8.
            tokens_per_batch: the most source tokens in a batch, including padding; a
                sentence counts as at least 16.
            split_sentences: False reads each line that fits into the model as one
                sentence, as in a test set.
            first: the number of the first text in messages.

        Returns:
            The translations, a list of strings, and their scores, a float array
            ``(texts,)``: the mean log-probability of the tokens of all sentences; 0 for
            an empty text.

        Raises:
            TypeError: a text is not a string.
        """
        split = sentences.split_sentences if split_sentences else sentences.split_lines
        documents = [
            self._fit(text, split, number)
            for number, text in enumerate(_as_texts(texts, first), first)
        ]
        unique = [*dict.fromkeys(x for pieces in documents for x in pieces[1::2])]
        answer_of = {}
        for rows, answer in self._by_batches(
            "translate", tokens_per_batch, self._lengths(unique), text=unique
        ):
            answers = zip(rows, answer["translation"], answer["score"], strict=True)
            answer_of |= {unique[i]: (line.decode(), mean) for i, line, mean in answers}
        scores = np.zeros(len(documents), "float32")
        for i, pieces in enumerate(documents):
            answers = [answer_of[text] for text in pieces[1::2]]
            pieces[1::2] = [line for line, _ in answers]
            scores[i] = self._mean_score(answers)
        return ["".join(pieces) for pieces in documents], scores

    def n_best(self, texts, tokens_per_batch=2048, first=1):
        """Several translations of each text, best first.

        Takes arguments of `translate`, with each text read as one sentence.

        Returns:
            For each text, a list of pairs: a translation and its score, the mean
            log-probability of its tokens, or with a length penalty GNMT's. The list has
            the options' ``n_best`` pairs, 4 by default, or fewer if the search finds
            fewer.
        """
        texts = _as_texts(texts, first)
        lengths = self._lengths(texts)
        self._warn(lengths, first, "the rest is cut off; give single sentences")
        lists = [[] for _ in texts]
        for rows, answer in self._by_batches(
            "translate_nbest", tokens_per_batch, lengths, text=texts
        ):
            columns = answer["translations"], answer["scores"]
            for i, lines, scores in zip(rows, *columns, strict=True):
                lists[i] = [
                    (line.decode(), float(score))
                    for line, score in zip(lines, scores, strict=True)
                    if score > NEVER / 2  # otherwise the place is empty
                ]
        return lists

    def score(self, texts, translations, tokens_per_batch=2048, first=1):
        """Scores given translations by the model's probability.

        Args:
            texts: a list of strings, each read as one sentence.
            translations: a list of strings, one for each text.
            tokens_per_batch: see `translate`.
            first: the number of the first text in warnings.

        Returns:
            A float array ``(texts,)``: the mean log-probability of a translation's
            tokens, including the end token. NaN, with a warning, if the text or its
            translation has more than ``max_length - 1`` tokens: a score of the part
            that fits would mislead.

        Raises:
            ValueError: the numbers of translations and texts differ.
        """
        texts = _as_texts(texts, first)
        translations = _as_texts(translations, first, "translation")
        if len(texts) != len(translations):
            raise ValueError(f"{len(translations)} translations for {len(texts)} texts")
        lengths = np.maximum(self._lengths(texts), self._lengths(translations, 1))
        self._warn(lengths, first, "it is not scored", "or its translation ")
        scores = np.full(len(texts), np.nan, "float32")
        short = np.flatnonzero(lengths < self.max_length)
        for rows, answer in self._by_batches(
            "score",
            tokens_per_batch,
            lengths[short],
            text=[texts[i] for i in short],
            translation=[translations[i] for i in short],
        ):
            scores[short[rows]] = answer["score"]
        return scores

    def complete(self, texts, prefixes, tokens_per_batch=2048, first=1):
        """Completes translations that begin with given words.

        Args:
            texts: a list of strings, each read as one sentence.
            prefixes: a list of strings, the beginning of each translation or "".
            tokens_per_batch: see `translate`.
            first: the number of the first text in messages.

        Returns:
            A list of strings.

        Raises:
            ValueError: the numbers of prefixes and texts differ.
            UserError: a text or its prefix is too long for the model.
        """
        texts = _as_texts(texts, first)
        prefixes = _as_texts(prefixes, first, "prefix")
        if len(texts) != len(prefixes):
            raise ValueError(f"{len(prefixes)} prefixes for {len(texts)} texts")
        sides = (self._lengths(texts), self._lengths(prefixes, 1))
        for name, lengths in zip(("text", "the prefix of text"), sides, strict=True):
            for i in np.flatnonzero(lengths >= self.max_length)[:1]:
                raise UserError(
                    f"{name} {first + i}: has {lengths[i]} tokens, the model reads "
                    f"{self.max_length - 1}: with a prefix, give single sentences"
                )
        translations = [""] * len(texts)
        for rows, answer in self._by_batches(
            "complete",
            tokens_per_batch,
            np.maximum(*sides),
            text=texts,
            prefix=prefixes,
        ):
            for i, line in zip(rows, answer["translation"], strict=True):
                translations[i] = line.decode()
        return translations

    def parts(self, text):
        """Splits a text into the parts that the model translates.

        Args:
            text: a string; bytes are decoded as UTF-8.

        Returns:
            A list of strings: white space at even places, first and last included; at
            odd places sentences, or parts of sentences that are too long. Each begins
            with the language that the text begins with, such as ">>por<<".
        """
        (text,) = _as_texts([text])
        return self._fit(text, sentences.split_sentences)

    def explain(self, text):
        """Translates one sentence and shows what each token attended to.

        Args:
            text: a string, read as one sentence.

        Returns:
            An `Explanation` with the attention weights of this translation.
        """
        answer = self.answers("attention", {"text": _as_texts([text])})
        source, target = (
            [token.decode() for token in answer[name][0] if token]  # "" is padding
            for name in ("source_tokens", "target_tokens")
        )
        attention = answer["attention"][0, :, :, : len(target), : len(source)]
        return Explanation(source, target, attention)

    def _lengths(self, texts, side=0):
        """The number of tokens in each source (side 0) or translation: an int array."""
        encode = self.tokenizer.sides[side].encode
        return np.array([*map(len, encode(texts))], int)

    def _fit(self, text, split, number=1):
        """Splits a text, and the sentences that are too long for the model."""
        language = self.tokenizer.language(text)  # such as ">>por<<", for each part
        pieces = split(text.removeprefix(language))
        limit, fitting = self.max_length - 1, pieces[:1]
        for sentence, space in zip(pieces[1::2], pieces[2::2], strict=True):
            parts = sentences.split_to_fit(
                sentence, lambda part: self._lengths([language + part])[0], limit
            )
            if len(parts) > 1:
                long = f"a sentence of more than {limit} tokens"
                log.info("text %d: %s becomes %d parts", number, long, len(parts[::2]))
            parts[::2] = [language + part for part in parts[::2]]
            fitting += [*parts, space]
        # Sentences without white space between them, as in Chinese, get a space.
        fitting[2:-1:2] = [space or " " for space in fitting[2:-1:2]]
        return fitting

    def _warn(self, lengths, first, so, which=""):
        """Warns about texts that are too long for the model."""
        most = self.max_length - 1
        for i in np.flatnonzero(lengths > most):
            what = f"has {lengths[i]} tokens, the model reads {most}"
            log.warning(f"text {first + i} {which}{what}: {so}")

    def _mean_score(self, answers):
        """The mean score over the tokens of several translations."""
        answers = [(line, score) for line, score in answers if score]  # 0: empty text
        if len(answers) < 2:
            return sum(score for _, score in answers)
        lines, scores = zip(*answers, strict=True)
        return np.average(scores, weights=self._lengths(lines, 1) + 1)  # with the end

    def _by_batches(self, signature, limit, lengths, **inputs):
        """Runs a signature on batches of rows of similar lengths, short ones first.

        Yields the row numbers of each batch and its answers. The number of rows times
        the longest row, including its end token, is within the limit.
        """
        batches = [[]]
        for row in np.argsort(lengths, kind="stable"):
            width = max(lengths[row] + 1, _LEAST_TOKENS)
            if batches[-1] and (len(batches[-1]) + 1) * width > limit:
                batches.append([])
            batches[-1].append(row)
        for rows in filter(None, batches):
            batch = {name: [x[i] for i in rows] for name, x in inputs.items()}
            yield rows, self.answers(signature, batch)


@dataclass(frozen=True)
class Explanation:
    """A translation and its cross-attention.

    Attributes:
        source_tokens: the source's tokens, including the end token.
        target_tokens: the translation's tokens, including the end token if written.
        attention: float32 ``(layers, heads, target, source)``; each row sums to 1: the
            attention of the decoder when it wrote that token.

    Example:
        >>> weights = np.array([[[[0.9, 0.05, 0.05], [0.3, 0.6, 0.1]]]])
        >>> source = ["\u2581gato", "\u2581preto", "</s>"]
        >>> Explanation(source, ["\u2581cat", "</s>"], weights).alignment()
        [('cat', 'gato', 0.9)]
    """

    source_tokens: list
    target_tokens: list
    attention: np.ndarray

    def alignment(self):
        """Aligns each word of the translation with a source word.

        A word is aligned with the source word that it attended to most. The weights are
        averaged over layers and heads and summed over the tokens of a word; the end
        token does not count. Attention is a good guess, not a proof (Jain and Wallace
        2019).

        Returns:
            A list of triples: a word of the translation, its source word, and the share
            of attention on it. It is empty if either side has no word.
        """
        source, target = _words(self.source_tokens), _words(self.target_tokens)
        mean = self.attention.mean(axis=(0, 1))  # (target, source)
        aligned = []
        for word, rows in target if source else ():
            shares = [mean[rows][:, places].sum(axis=1).mean() for _, places in source]
            best = int(np.argmax(shares))
            aligned.append((word, source[best][0], float(shares[best])))
        return aligned


def _words(tokens):
    """The words of some tokens, each with the places of its tokens."""
    words = []
    for place, token in enumerate(tokens):
        if token == "</s>":
            continue
        if token.startswith("\u2581") or not words:  # a word begins
            words.append(("", []))
        text, places = words[-1]
        words[-1] = (text + token.replace("\u2581", ""), [*places, place])
    return [(text, places) for text, places in words if text]


def _as_texts(texts, first=1, name="text"):
    """A list of strings of valid Unicode, with spaces for invalid characters."""
    if isinstance(texts, (str, bytes)):
        given = f"{type(texts).__name__}: {reprlib.repr(texts)}"
        raise TypeError(f"give a list of strings, not {given}")
    valid = []
    for number, text in enumerate(texts, first):
        if isinstance(text, bytes):
            text = text.decode("utf-8", errors="surrogateescape")
        if not isinstance(text, str):
            given = f"{type(text).__name__}: {reprlib.repr(text)}"
            raise TypeError(f"{name} {number}: must be a string, not {given}")
        valid.append(re.sub("[\ud800-\udfff]", " ", text))
    return valid
