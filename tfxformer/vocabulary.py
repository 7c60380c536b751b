"""Text to token ids and back in plain Python: SentencePiece, without TensorFlow."""

import hashlib
import io
import random
import re
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
import sentencepiece

from tfxformer.corpora.cleaning import INVISIBLE
from tfxformer.errors import UserError
from tfxformer.outputs import write_file
from tfxformer.special_ids import END_ID, PAD_ID, START_ID, UNK_ID
from tfxformer.subwords import SubwordSampler

# What SentencePiece does to text first. Both rules are Unicode NFKC; the second also
# makes it lower case.
CASINGS = {"keep": "nfkc", "lower": "nfkc_cf"}

# Control characters, and the white space that NFKC leaves as it is.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u1680\u2028\u2029]")
# Halves of UTF-16 pairs, which a Python string may hold and UTF-8 may not.
_SURROGATES = re.compile("[\ud800-\udfff]")


class Vocabulary:
    """The pieces of both languages, and how text is cut into them.

    `Tokenizer` does the same, to the last id, inside a TensorFlow graph.

    Args:
        model: the bytes of a SentencePiece model, trained by `Vocabulary.train`.

    Raises:
        UserError: when the bytes are no SentencePiece model, or one whose special
            pieces stand elsewhere than 0 (padding), 1 (unknown), 2 (start), 3 (end).

    Example:
        >>> lines = ["o gato bebe leite", "a casa é azul"] * 50
        >>> vocabulary = Vocabulary.train(lines, vocab_size=300)
        >>> ids = vocabulary.encode(["a casa é azul", ""])
        >>> vocabulary.decode(ids)
        ['a casa é azul', '']
    """

    def __init__(self, model):
        self.model = model
        self.processor = sentencepiece.SentencePieceProcessor()
        try:
            self.processor.LoadFromSerializedProto(model)
        except (RuntimeError, UnicodeDecodeError):  # not UTF-8, in a damaged piece
            raise UserError("not a SentencePiece model") from None
        special = tuple(
            getattr(self.processor, name)()
            for name in ("pad_id", "unk_id", "bos_id", "eos_id")
        )
        if special != (PAD_ID, UNK_ID, START_ID, END_ID):
            raise UserError(
                "the SentencePiece model must have pad, unk, bos and eos as pieces "
                f"0, 1, 2 and 3, not {special}: train one with `tfxformer train`"
            )
        self.vocab_size = self.processor.GetPieceSize()
        self.digest = hashlib.sha256(model).hexdigest()

    @classmethod
    def train(cls, lines, vocab_size, casing="keep", seed=0):
        """Learns the pieces (unigram language model, Kudo 2018).

        Args:
            lines: strings of both languages.
            vocab_size: the most pieces to learn, the 4 special ones and the 256
                bytes included; a small corpus may give fewer.
            casing: "keep", or "lower" for a translator that reads and writes lower
                case only.
            seed: which lines are drawn where there are more than 2 million.

        Returns:
            A `Vocabulary`.

        Raises:
            UserError: when there is no text, or ``vocab_size`` is too small for the
                text's characters.
        """
        lines = [line for line in lines if line.strip()]
        if not lines:
            raise UserError("there is no text to learn a vocabulary from")
        if len(lines) > 2_000_000:
            lines = random.Random(seed).sample(lines, 2_000_000)
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.Train(
                sentence_iterator=iter(lines),
                model_writer=model,
                vocab_size=vocab_size,
                hard_vocab_limit=False,
                model_type="unigram",
                byte_fallback=True,
                character_coverage=0.9998,  # rare characters are spelt in bytes
                normalization_rule_name=CASINGS[casing],
                pad_id=PAD_ID,
                unk_id=UNK_ID,
                bos_id=START_ID,
                eos_id=END_ID,
                num_threads=4,  # the same pieces on every machine
                max_sentence_length=100_000,
                minloglevel=2,
            )
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            raise UserError(
                f"no vocabulary of {vocab_size} pieces could be learnt from "
                f"{len(lines):,} lines: {reason}"
            ) from None
        return cls(model.getvalue())

    @classmethod
    def load(cls, path):
        """Reads a vocabulary from a file.

        Args:
            path: a SentencePiece model, as `save` wrote it.

        Returns:
            A `Vocabulary`.

        Raises:
            UserError: when the file is not there or is no SentencePiece model.
        """
        try:
            return cls(Path(path).read_bytes())
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from None
        except UserError as error:
            raise UserError(f"{path}: {error}") from None

    def save(self, path):
        """Writes the vocabulary to one file, a SentencePiece model.

        A reader sees the whole file or none.

        Args:
            path: the file.

        Raises:
            UserError: when it cannot be written.
        """
        write_file(path, self.model)

    def encode(self, texts):
        """Cuts texts into their best pieces.

        Args:
            texts: a list of strings.

        Returns:
            A list of ids for each, without start and end. An empty string has none.
        """
        return self.processor.encode([_clean(text) for text in texts], num_threads=1)

    def sample(self, texts, alpha, seed):
        """Cuts texts into pieces at random: subword regularisation (Kudo 2018).

        Args:
            texts: a list of strings.
            alpha: the smaller, the freer: a segmentation is drawn from all as its
                probability to the power of ``alpha`` is; 0.1 is usual.
            seed: an integer from 0 on, or a tuple of them. It settles the draws, in
                every process and whatever was drawn before.

        Returns:
            A list of ids for each, without start and end.
        """
        best = self.encode(texts)
        ids = np.fromiter(chain.from_iterable(best), np.int32)
        drawn, lengths = self.resample(ids, [len(row) for row in best], alpha, seed)
        rows = np.split(drawn, np.cumsum(lengths)[:-1]) if len(texts) else []
        return [row.tolist() for row in rows]

    def resample(self, ids, lengths, alpha, seed):
        """The same for texts that are ids already, in one array.

        Args:
            ids: the ids of all texts, one text after the other.
            lengths: how many of them each text has.
            alpha: see `sample`.
            seed: see `sample`.

        Returns:
            The ids and the lengths that were drawn, int32 and int64.
        """
        return self._sampler.sample(ids, lengths, alpha, seed)

    @cached_property
    def _sampler(self):
        return SubwordSampler(self.processor)

    def decode(self, ids):
        """Ids to texts.

        Args:
            ids: a list of ids for each text. Padding, start and end are left out; an
                id outside the vocabulary is shown as U+2047.

        Returns:
            A list of strings. What is no character, or a control character, is
            U+FFFD.
        """
        if not len(ids):  # SentencePiece takes it for one text
            return []
        size = self.vocab_size
        ids = [[int(i) if 0 <= i < size else UNK_ID for i in row] for row in ids]
        return [
            _CONTROL.sub("\ufffd", text)
            for text in self.processor.decode(ids, num_threads=1)
        ]

    def ids_of(self, pieces):
        """The ids of pieces that are given as SentencePiece spells them, or as ids.

        Args:
            pieces: strings and integers.

        Returns:
            A tuple of as many integers.

        Raises:
            UserError: naming the piece that the vocabulary does not have.
        """
        ids = []
        for piece in pieces:
            id = piece if isinstance(piece, int) else self.processor.PieceToId(piece)
            known = 0 <= id < self.vocab_size
            if not known or (id == UNK_ID and piece not in (UNK_ID, "<unk>")):
                raise UserError(
                    f"the vocabulary has no piece {piece!r}; a word's first piece "
                    "begins with \u2581, as in \u2581casa"
                )
            ids.append(id)
        return tuple(ids)

    def pieces(self, ids):
        """The pieces of a list of ids, as SentencePiece spells them.

        Args:
            ids: integers below ``vocab_size``.

        Returns:
            A list of as many strings.
        """
        return [self.processor.IdToPiece(int(i)) for i in ids]


def _clean(text):
    """What `Tokenizer.tokenize` does to text in the graph, for one string."""
    text = _CONTROL.sub(" ", text)
    return text if text.isascii() else re.sub(INVISIBLE, "", _SURROGATES.sub(" ", text))
