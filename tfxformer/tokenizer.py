"""Text to token ids and back: SentencePiece, the same in Python and in the graph."""

import hashlib
import io
import random
from pathlib import Path

import sentencepiece
import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_text.python.ops import sentencepiece_tokenizer

from tfxformer.errors import UserError
from tfxformer.special_ids import END_ID, PAD_ID, START_ID, UNK_ID

# What SentencePiece does to text first. Both rules are Unicode NFKC; the second also
# makes it lower case.
CASINGS = {"keep": "nfkc", "lower": "nfkc_cf"}


class Tokenizer(tf.Module):
    """One vocabulary of pieces for both languages (Kudo and Richardson 2018).

    Text that the vocabulary has no piece for is spelt in bytes, so any text
    survives the round trip, up to Unicode NFKC and white space: runs of it become
    one space, and control characters (tabs, newlines, NUL) and bytes that are not
    UTF-8 count as spaces. So does "▁" (U+2581), SentencePiece's sign for one.

    Args:
        model: the bytes of a SentencePiece model, trained by `Tokenizer.train`.

    Raises:
        UserError: when the bytes are no SentencePiece model, or one whose special
            pieces stand elsewhere than 0 (padding), 1 (unknown), 2 (start), 3 (end).

    Example:
        >>> lines = ["o gato bebe leite", "a casa é azul"] * 50
        >>> tokenizer = Tokenizer.train(lines, vocab_size=300)
        >>> ids = tokenizer.tokenize(["a casa é azul", ""])
        >>> tokenizer.detokenize(ids).numpy()[0].decode()
        'a casa é azul'
    """

    def __init__(self, model):
        super().__init__(name="tokenizer")
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
        self._vocabulary = _Vocabulary(model)
        self._pieces = self._ops()

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
            A `Tokenizer`.

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
        """Reads a tokenizer from a file.

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
        """Writes the tokenizer to one file, a SentencePiece model."""
        Path(path).write_bytes(self.model)

    def tokenize(self, text, alpha=0.0):
        """Text to ids, in the graph or outside it.

        Args:
            text: strings ``(batch,)``.
            alpha: 0 for the best segmentation; else one is drawn from all, the more
                freely the smaller alpha is (subword regularisation, Kudo 2018; 0.1
                is usual). The draws cannot be seeded.

        Returns:
            Ragged int32 ``(batch, length)``, without start and end. An empty string
            has no ids.
        """
        text = clean(tf.convert_to_tensor(text, tf.string))
        if not alpha:
            return self._pieces.tokenize(text)
        return self._ops(nbest_size=-1, alpha=alpha).tokenize(text)

    def detokenize(self, ids):
        """Ids to text, in the graph or outside it.

        Args:
            ids: ragged or padded int32 ``(batch, length)``. Padding, start and end
                are left out; an id outside the vocabulary is shown as U+2047.

        Returns:
            Strings ``(batch,)``, valid UTF-8 whatever the ids.
        """
        if not isinstance(ids, tf.RaggedTensor):
            ids = tf.RaggedTensor.from_tensor(ids)
        known = (ids.values >= 0) & (ids.values < self.vocab_size)
        ids = ids.with_values(tf.where(known, ids.values, UNK_ID))
        return clean(self._pieces.detokenize(ids), replacement=0xFFFD)

    def spell(self, ids):
        """Each token as SentencePiece spells it, in the graph or outside it.

        Args:
            ids: padded int32 ``(batch, length)``.

        Returns:
            Strings ``(batch, length)``, empty for padding.
        """
        spelt = self._pieces.id_to_string(ids)
        return tf.where(ids == PAD_ID, "", spelt)

    def ids_of(self, pieces):
        """The ids of pieces that are given as SentencePiece spells them, or as ids.

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
        """The pieces of a list of ids, as SentencePiece spells them."""
        return [self.processor.IdToPiece(int(i)) for i in ids]

    def _ops(self, **sampling):
        ops = tf_text.SentencepieceTokenizer(self.model, out_type=tf.int32, **sampling)
        ops._model_resource = self._vocabulary
        return ops


class _Vocabulary(tf.saved_model.experimental.TrackableResource):
    """The SentencePiece model where the graph's ops find it.

    tensorflow-text's own resource belongs to a cached kernel and is gone once
    TensorFlow clears that cache, as setting the global seed does: "Resource ... does
    not exist". One that has a name stays; it is named after what is in it, so that
    two tokenizers of the same model share it.
    """

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.name = f"sentencepiece-{hashlib.sha256(model).hexdigest()}"
        _ = self.resource_handle  # makes it

    def _create_resource(self):
        return sentencepiece_tokenizer.gen_sentencepiece_tokenizer.sentencepiece_op(
            model=self.model, shared_name=self.name
        )


def clean(text, replacement=0x20):
    """Makes any bytes valid UTF-8 without control characters, in the graph.

    Args:
        text: strings ``(batch,)``.
        replacement: the code point that takes the place of each, a space.

    Returns:
        Strings ``(batch,)``.
    """
    text = tf.strings.unicode_transcode(
        text,
        input_encoding="UTF-8",
        output_encoding="UTF-8",
        errors="replace",
        replacement_char=replacement,
        replace_control_characters=True,
    )
    # It takes only ASCII's for control characters.
    mark = chr(replacement)
    return tf.strings.regex_replace(text, r"[\x7f-\x{9f}\x{1680}\p{Zl}\p{Zp}]", mark)
