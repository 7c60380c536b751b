"""Strings to strings."""

import logging
import re
import reprlib
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from tfxformer import sentences
from tfxformer.decoding import DecodingOptions, decode_steps
from tfxformer.decoding.options import NEVER
from tfxformer.errors import UserError
from tfxformer.exporting.repository import find_model, read_export, read_metadata
from tfxformer.exporting.signatures import signatures
from tfxformer.tokenizer import encode_source
from tfxformer.training.run import Run

log = logging.getLogger("tfxformer")

# Each sentence of a batch counts as this many tokens at least: a batch of very short
# sentences would hold very many of them.
LEAST_TOKENS = 16


class Translator:
    r"""Translates text.

    Args:
        tokenizer: a `Tokenizer`.
        transformer: the `Transformer` that was trained with it.
        options: `DecodingOptions`; None decodes greedily.
        xla: compile decoding with XLA: faster once it is compiled, which takes
            seconds for each of a few shapes.

    Raises:
        UserError: when the tokenizer and the model do not belong together.

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
        >>> translator.parts("Um gato. Um cão.")
        ['', 'Um gato.', ' ', 'Um cão.', '']
        >>> *_, whole = translator.stream("um gato")
        >>> whole == translator("um gato")
        True
        >>> translator.score(["um gato"], ["a cat"]).shape
        (1,)
    """

    def __init__(self, tokenizer, transformer, options=None, xla=False):
        if tokenizer.vocab_size != transformer.target_vocab_size:
            raise UserError(
                f"the tokenizer has {tokenizer.vocab_size} tokens, the model "
                f"{transformer.target_vocab_size}: they do not belong together"
            )
        if not transformer.built:
            transformer.build()
        self.tokenizer = tokenizer
        self.transformer = transformer
        self.max_length = transformer.max_length
        self.options = options or DecodingOptions()
        self.xla = xla
        self.signatures = signatures(tokenizer, transformer, self.options, xla)
        translate = self.signatures["translate"].python_function
        texts = tf.TensorSpec([None], tf.string)
        self._complete = tf.function(translate, [texts, texts], autograph=False)

    @classmethod
    def load(cls, path=None, checkpoint="best", options=None, xla=False):
        """Opens a run folder or an exported model.

        Args:
            path: a run folder; or an exported model: the folder of one version, or
                that of all, whose newest is taken; None for the model that comes with
                the package.
            checkpoint: "best" or "last", for a run folder.
            options: `DecodingOptions`; None decodes as was chosen at the export, and
                greedily from a run folder.
            xla: compile decoding with XLA.

        Returns:
            A `Translator` with its Keras model. The matrices of an export that stores
            float16 have the rounded values with which the export answers.

        Raises:
            UserError: when nothing at the path translates.

        Example:
            >>> Translator.load("nowhere")
            Traceback (most recent call last):
            ...
            tfxformer.errors.UserError: nowhere: there is no such run folder
        """
        path = find_model(path)
        if not (path / "saved_model.pb").exists():
            return cls(*Run.open(path).load(checkpoint), options, xla)
        if checkpoint != "best":
            raise UserError(
                f"checkpoint {checkpoint!r}: {path} is an exported model, which has "
                "one set of weights: leave the checkpoint out, or give a run folder"
            )
        model = read_export(path)
        if options is None:
            chosen = read_metadata(path)["decoding"]["translate"]
            options = DecodingOptions.described(chosen)
        return cls(*model, options, xla)

    def answers(self, signature, inputs):
        """Runs one signature of the exported model's contract.

        Args:
            signature: its name, such as "translate".
            inputs: arrays by input name.

        Returns:
            NumPy arrays by output name; strings are bytes.
        """
        inputs = {name: tf.constant(value) for name, value in inputs.items()}
        outputs = self.signatures[signature](**inputs)
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

        The model reads sentences, those of like length together and each that occurs
        several times once. They come back in their places, with the white space
        between them as it was: spaces, line breaks and blank lines. A sentence of
        more than ``max_length - 1`` tokens is cut at the best places
        (`sentences.split_to_fit`), and its parts are translated.

        Args:
            texts: a list of strings; bytes are taken as UTF-8.
            tokens_per_batch: the most source tokens, padding included, that are
                translated at once; a sentence counts as 16 at least.
            split_sentences: False reads each line that fits the model's limit as one
                sentence, as the lines of a test set are.
            first: the number of the first text in messages.

        Returns:
            The translations, a list of strings, and their scores, a float array
            ``(texts,)``: the mean log-probability of a translation's tokens, over
            all its sentences; 0 where there is nothing to translate.

        Raises:
            TypeError: for anything but strings.
        """
        split = sentences.split_sentences if split_sentences else sentences.split_lines
        documents = [split(text) for text in as_texts(texts, first)]
        documents, lengths = self._fit(documents, first)
        unique, found = [*lengths], {}
        for rows, answer in self._by_batches(
            "translate", tokens_per_batch, [*lengths.values()], text=unique
        ):
            answers = zip(rows, answer["translation"], answer["score"], strict=True)
            found |= {unique[i]: (line.decode(), mean) for i, line, mean in answers}
        # The mean over the tokens of several sentences weighs each by its own: nearly
        # always those of the text that they make.
        several = [pieces[1::2] for pieces in documents if len(pieces) > 3]
        weighed = [*{found[text][0] for parts in several for text in parts}]
        tokens = dict(zip(weighed, self._lengths(weighed) + 1, strict=True))
        scores = np.zeros(len(documents), "float32")
        for i, pieces in enumerate(documents):
            answers = [found[text] for text in pieces[1::2]]
            weights = [tokens.get(line, 1) * (mean != 0) for line, mean in answers]
            if any(weights):
                scores[i] = np.average([mean for _, mean in answers], weights=weights)
            pieces[1::2] = [line for line, _ in answers]
            # Where nothing parts two sentences, as in Chinese, their translations
            # would run together.
            pieces[2:-1:2] = [space or " " for space in pieces[2:-1:2]]
        return ["".join(pieces) for pieces in documents], scores

    def n_best(self, texts, tokens_per_batch=2048, first=1):
        """Several translations of each text, best first.

        Args:
            texts: a list of strings, each read as one sentence.
            tokens_per_batch: see `translate`.
            first: the number of the first text in warnings.

        Returns:
            For each text a list of pairs, a translation and its score: the mean
            log-probability of its tokens, or with penalties GNMT's. The options'
            ``n_best`` says how many, 4 by default; a search may find fewer.
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
        for rows, answer in self._by_batches(
            "translate_nbest", tokens_per_batch, lengths, text=texts
        ):
            columns = answer["translations"], answer["scores"]
            for i, lines, scores in zip(rows, *columns, strict=True):
                lists[i] = [
                    (line.decode(), float(score))
                    for line, score in zip(lines, scores, strict=True)
                    if score > NEVER / 2  # else the place is empty
                ]
        return lists

    def score(self, texts, translations, tokens_per_batch=2048, first=1):
        """How likely the model finds translations that are given.

        Args:
            texts: a list of strings, each read as one sentence.
            translations: as many strings, of the same places.
            tokens_per_batch: see `translate`.
            first: the number of the first text in warnings.

        Returns:
            A float array ``(texts,)``: the mean log-probability of a translation's
            tokens, the end token among them. NaN, with a warning, where the text or
            its translation has more than ``max_length - 1`` tokens: the score of
            what fits would mislead.

        Raises:
            ValueError: when there are not as many translations as texts.
        """
        texts = as_texts(texts, first)
        translations = as_texts(translations, first, "translation")
        if len(texts) != len(translations):
            raise ValueError(f"{len(translations)} translations for {len(texts)} texts")
        lengths = np.maximum(self._lengths(texts), self._lengths(translations))
        scores = np.full(len(texts), np.nan, "float32")
        fits = lengths < self.max_length
        for i in np.flatnonzero(~fits):
            log.warning(
                "text %d is not scored: it or its translation has %d tokens, more "
                "than the %d that the model reads",
                first + i,
                lengths[i],
                self.max_length - 1,
            )
        short = np.flatnonzero(fits)
        for rows, answer in self._by_batches(
            "score",
            tokens_per_batch,
            lengths[short],
            text=[texts[i] for i in short],
            translation=[translations[i] for i in short],
        ):
            scores[short[rows]] = answer["score"]
        return scores

    def complete(self, texts, prefixes):
        """Translations that begin with given words.

        Args:
            texts: a list of strings, each read as one sentence.
            prefixes: as many strings: what each translation begins with; an empty
                one leaves it free.

        Returns:
            A list of strings.

        Raises:
            ValueError: when there are not as many prefixes as texts.
        """
        texts, prefixes = as_texts(texts), as_texts(prefixes, name="prefix")
        if len(texts) != len(prefixes):
            raise ValueError(f"{len(prefixes)} prefixes for {len(texts)} texts")
        if not texts:
            return []
        found = self._complete(tf.constant(texts), tf.constant(prefixes))
        return [text.decode() for text in found["translation"].numpy()]

    def stream(self, text):
        r"""Translates while you watch: yields what there is after each token.

        A text of any length, its sentences one after the other. Hypotheses of a beam
        overtake one another, so options of a beam decode greedily here.

        Args:
            text: a string; bytes are taken as UTF-8.

        Yields:
            The translation so far, a string, after each token; and at last the whole,
            also where there is nothing to translate.
        """
        pieces = self.parts(text)
        done = pieces[0]
        for place in range(1, len(pieces), 2):
            so_far = ""
            for so_far in self._stream_sentence(pieces[place]):
                # A character of several tokens is not seen before it is whole.
                yield done + so_far.rstrip("\ufffd")
            space = pieces[place + 1]
            # Where nothing parts two sentences, as `translate` does.
            done += so_far + (space if place + 2 == len(pieces) else space or " ")
        yield done

    def parts(self, text):
        """What the model reads of a text, one at a time, and what is between.

        Args:
            text: a string; bytes are taken as UTF-8.

        Returns:
            A list of strings: white space at even places, the first and the last among
            them, and at odd ones sentences, or parts of those that are too long.
        """
        (text,) = as_texts([text])
        (pieces,), _ = self._fit([sentences.split_sentences(text)], first=1)
        return pieces

    def explain(self, text):
        """A sentence's translation and what each of its tokens attended to.

        Args:
            text: a string, read as one sentence.

        Returns:
            An `Explanation`, with the very weights that wrote the translation.
        """
        answer = self.answers("attention", {"text": as_texts([text])})
        source, target = (
            [token.decode() for token in answer[name][0] if token]  # "" is padding
            for name in ("source_tokens", "target_tokens")
        )
        attention = answer["attention"][0, :, :, : len(target), : len(source)]
        return Explanation(source, target, attention)

    def _stream_sentence(self, text):
        options = self.options.updated(n_best=1)
        if options.beam_size > 1:
            options = options.updated(
                beam_size=1, length_penalty=None, coverage_penalty=0.0
            )
        longest = self.max_length - 1
        source = encode_source(self.tokenizer, tf.constant([text]), longest=longest)
        for ids in decode_steps(self.transformer, source, options):
            yield self.tokenizer.detokenize(ids[:, 0])[0].numpy().decode()

    def _lengths(self, texts):
        """How many tokens each text has, without start and end: an int array."""
        return self.tokenizer.tokenize(texts).row_lengths().numpy()

    def _fit(self, documents, first):
        """Cuts the sentences of documents that the model cannot read at once.

        Returns the documents, and the lengths of their sentences by their text.
        """
        lengths = {}

        def count(texts):
            lengths.update(zip(texts, self._lengths(texts), strict=True))
            return [lengths[text] for text in texts]

        unique = dict.fromkeys(text for pieces in documents for text in pieces[1::2])
        parts = sentences.split_to_fit([*unique], count, self.max_length - 1)
        parts = dict(zip(unique, parts, strict=True))
        for number, pieces in enumerate(documents, first):
            for text in pieces[1::2]:
                if len(parts[text]) > 1:
                    log.info(
                        "text %d: a sentence of %d characters is more than the model "
                        "reads at once, %d tokens: translated in %d parts",
                        number,
                        len(text),
                        self.max_length - 1,
                        len(parts[text][::2]),
                    )
            pieces[:] = [x for piece in pieces for x in parts.get(piece, [piece])]
        read = dict.fromkeys(text for pieces in documents for text in pieces[1::2])
        return documents, {text: lengths[text] for text in read}

    def _by_batches(self, signature, limit, lengths, **inputs):
        """Runs a signature on rows of like length, the short ones first.

        Yields the row numbers of each batch and its answers. The longest row, its end
        token included, times the rows of a batch stays in the limit.
        """
        batches = [[]]
        for row in np.argsort(lengths, kind="stable"):
            width = max(lengths[row] + 1, LEAST_TOKENS)
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
        source_tokens: the source's tokens, the end token included.
        target_tokens: the translation's tokens, the end token included if written.
        attention: float32 ``(layers, heads, target, source)``; each row sums to 1:
            what the decoder attended to when it wrote that token.

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
        """Which source word each word of the translation comes from.

        The weights are averaged over layers and heads and summed over the tokens of a
        word; a word comes from the one that it attended to most. The end token is no
        word. With attention this is a good guess, not a proof (Jain and Wallace 2019).

        Returns:
            A list of triples: a word of the translation, the source's word, and the
            share of attention that it had; empty where either side has no word.
        """
        source, target = _words(self.source_tokens), _words(self.target_tokens)
        mean = self.attention.mean(axis=(0, 1))  # (target, source)
        aligned = []
        for word, rows in target:
            weights = [
                mean[np.ix_(rows, columns)].sum(axis=1).mean() for _, columns in source
            ]
            if weights:
                best = int(np.argmax(weights))
                aligned.append((word, source[best][0], float(weights[best])))
        return aligned


def _words(tokens):
    """The words that tokens make, each with the places of its tokens."""
    words = []
    for place, token in enumerate(tokens):
        if token == "</s>":
            continue
        if token.startswith("\u2581") or not words:  # the beginning of a word
            words.append(("", []))
        text, places = words[-1]
        words[-1] = (text + token.replace("\u2581", ""), [*places, place])
    return [(text, places) for text, places in words if text]


def as_texts(texts, first=1, name="text"):
    r"""Strings of valid Unicode, of strings or UTF-8.

    Args:
        texts: a list of strings or bytes.
        first: the number of the first in messages.
        name: what messages call each of them.

    Returns:
        A list of strings; a space replaces what is no character.

    Raises:
        TypeError: for one text instead of a list, and for anything but strings in it.

    Example:
        >>> as_texts([b"ol\xc3\xa1 \xff!"])
        ['olá  !']
        >>> as_texts(["Bom dia!", None])
        Traceback (most recent call last):
        ...
        TypeError: text 2: a text must be a string, not NoneType: None
    """
    if isinstance(texts, (str, bytes, bytearray)) or not np.iterable(texts):
        given = f"{type(texts).__name__}: {reprlib.repr(texts)}"
        raise TypeError(f"give a list of strings, not {given}")
    found = []
    for number, text in enumerate(texts, first):
        if isinstance(text, bytes):
            text = text.decode("utf-8", errors="surrogateescape")
        if not isinstance(text, str):
            given = f"{type(text).__name__}: {reprlib.repr(text)}"
            raise TypeError(f"{name} {number}: a text must be a string, not {given}")
        # Bytes that are not UTF-8, and lone surrogates, count as spaces.
        found.append(re.sub("[\ud800-\udfff]", " ", text))
    return found
