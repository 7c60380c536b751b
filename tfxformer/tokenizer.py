"""Text to token ids and back in the graph: SentencePiece as TensorFlow ops."""

import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_text.python.ops import sentencepiece_tokenizer

from tfxformer.corpora.cleaning import INVISIBLE
from tfxformer.special_ids import END_ID, PAD_ID, START_ID, UNK_ID
from tfxformer.vocabulary import Vocabulary


class Tokenizer(tf.Module):
    """One vocabulary of pieces for both languages (Kudo and Richardson 2018).

    Text that the vocabulary has no piece for is spelt in bytes, so any text
    survives the round trip, up to Unicode NFKC and white space: runs of it become
    one space, and control characters (tabs, newlines, NUL) and bytes that are not
    UTF-8 count as spaces. So does "▁" (U+2581), SentencePiece's sign for one.
    Invisible marks (zero-width space, word joiner, byte-order mark, soft hyphen)
    are dropped, as `corpora.normalize` drops them from training pairs.
    `Vocabulary` gives the same ids without TensorFlow.

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
        self.vocabulary = Vocabulary(model)
        self._resource = _Resource(self.vocabulary)
        self._pieces = self._ops()

    @property
    def model(self):
        """The bytes of the SentencePiece model."""
        return self.vocabulary.model

    @property
    def processor(self):
        """SentencePiece's own, outside the graph."""
        return self.vocabulary.processor

    @property
    def vocab_size(self):
        """How many pieces there are, the special ones included."""
        return self.vocabulary.vocab_size

    @classmethod
    def train(cls, lines, vocab_size, casing="keep", seed=0):
        """Learns the pieces, see `Vocabulary.train`.

        Args:
            lines: strings of both languages.
            vocab_size: the most pieces to learn.
            casing: "keep" or "lower".
            seed: which lines are drawn where there are very many.

        Returns:
            A `Tokenizer`.

        Raises:
            UserError: see `Vocabulary.train`.
        """
        return cls(Vocabulary.train(lines, vocab_size, casing, seed).model)

    @classmethod
    def load(cls, path):
        """Reads a tokenizer from a file.

        Args:
            path: a SentencePiece model, as `save` wrote it.

        Returns:
            A `Tokenizer`.

        Raises:
            UserError: when the file is not there or is no SentencePiece model.
        """
        return cls(Vocabulary.load(path).model)

    def save(self, path):
        """Writes the tokenizer to one file, a SentencePiece model.

        Args:
            path: the file.

        Raises:
            UserError: when it cannot be written.
        """
        self.vocabulary.save(path)

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
        text = tf.strings.regex_replace(text, INVISIBLE, "")
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
        """The ids of pieces, see `Vocabulary.ids_of`.

        Args:
            pieces: strings and integers.

        Returns:
            A tuple of as many integers.
        """
        return self.vocabulary.ids_of(pieces)

    def pieces(self, ids):
        """The pieces of ids, see `Vocabulary.pieces`.

        Args:
            ids: integers.

        Returns:
            A list of as many strings.
        """
        return self.vocabulary.pieces(ids)

    def _ops(self, **sampling):
        ops = tf_text.SentencepieceTokenizer(self.model, out_type=tf.int32, **sampling)
        ops._model_resource = self._resource
        return ops


class _Resource(tf.saved_model.experimental.TrackableResource):
    """The SentencePiece model where the graph's ops find it.

    tensorflow-text's own resource belongs to a cached kernel and is gone once
    TensorFlow clears that cache, as setting the global seed does: "Resource ... does
    not exist". One that has a name stays; it is named after what is in it, so that
    two tokenizers of the same model share it.
    """

    def __init__(self, vocabulary):
        super().__init__()
        self.model = vocabulary.model
        self.name = f"sentencepiece-{vocabulary.digest}"
        _ = self.resource_handle  # makes it

    def _create_resource(self):
        return sentencepiece_tokenizer.gen_sentencepiece_tokenizer.sentencepiece_op(
            model=self.model, shared_name=self.name
        )


def encode_source(tokenizer, text, longest=None):
    """What the encoder reads: the pieces and the end token.

    Args:
        tokenizer: a `Tokenizer`.
        text: strings ``(batch,)``.
        longest: the most pieces; those beyond it are left out.

    Returns:
        Padded int32 ``(batch, source)``, of at least one column.

    Example:
        >>> tokenizer = Tokenizer.train(["o gato", "the cat"] * 50, vocab_size=300)
        >>> encode_source(tokenizer, ["o gato", ""])[:, -1].numpy().tolist()
        [3, 0]
    """
    return _with_end(*_cut_pieces(tokenizer, text, longest))


def encode_target(tokenizer, text, longest=None):
    """What the decoder reads and what it is to write: the same, shifted by one.

    Args:
        tokenizer: a `Tokenizer`.
        text: strings ``(batch,)``.
        longest: the most pieces; those beyond it are left out.

    Returns:
        Two padded int32 ``(batch, target)``: from the start token to the last piece,
        and from the first piece to the end token.

    Example:
        >>> tokenizer = Tokenizer.train(["o gato", "the cat"] * 50, vocab_size=300)
        >>> target_in, labels = encode_target(tokenizer, ["the cat"])
        >>> int(target_in[0, 0]), int(labels[0, -1])  # start, end
        (2, 3)
        >>> bool(tf.reduce_all(target_in[:, 1:] == labels[:, :-1]))
        True
    """
    ids, lengths = _cut_pieces(tokenizer, text, longest)
    target_in = tf.pad(ids, [[0, 0], [1, 0]], constant_values=START_ID)
    return target_in, _with_end(ids, lengths)


def _with_end(ids, lengths):
    ids = tf.pad(ids, [[0, 0], [0, 1]])
    return ids + END_ID * tf.one_hot(lengths, tf.shape(ids)[1], dtype=tf.int32)


def _cut_pieces(tokenizer, text, longest):
    ids = tokenizer.tokenize(text)
    lengths = ids.row_lengths()
    if longest is not None:
        lengths = tf.minimum(lengths, longest)
    return ids.to_tensor()[:, :longest], lengths


def clean(text, replacement=0x20):
    r"""Makes any bytes valid UTF-8 without control characters, in the graph.

    Args:
        text: strings ``(batch,)``.
        replacement: the code point that takes the place of each, a space.

    Returns:
        Strings ``(batch,)``.

    Example:
        >>> clean([b"um\tgato", b"bom \xff dia"]).numpy().tolist()
        [b'um gato', b'bom   dia']
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
