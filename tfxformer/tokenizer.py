"""Text to token ids and back: SentencePiece, in Python and in a TensorFlow graph."""

import functools
import hashlib
import io
import re
import reprlib
from pathlib import Path

import sentencepiece

from tfxformer.corpora.pairs import INVISIBLE
from tfxformer.errors import UserError, write_file
from tfxformer.special_tokens import END_ID, PAD_ID, START_ID, UNK_ID

# Control characters, and white space that NFKC keeps. Python and TensorFlow read this
# pattern and INVISIBLE alike.
_CONTROL = "[\\x00-\\x1f\\x7f-\u009f\u1680\u2028\u2029]"
# What an imported model's texts spell out: this mark goes before it.
SPELT = "\ufdd0"
# The default of a model whose texts must begin with a language.
ANY_LANGUAGE = ">><<"
_SPELT_LANGUAGE = f"^\u2581{SPELT}>>"
# For the ops in a graph: no start and end tokens, and no reversed text.
_AS_IS = {"add_bos": False, "add_eos": False, "reverse": False}


class Tokenizer:
    """A vocabulary of subword tokens, by SentencePiece: one for both languages, or two.

    `encode` and `decode` work on Python lists without TensorFlow; `tokenize` and
    `detokenize` give the same results in a graph. Characters outside the vocabulary are
    spelt in bytes, so any text survives a round trip, up to Unicode NFKC and white
    space: control characters, bytes that are not UTF-8 and "▁" (U+2581) become spaces,
    and runs of spaces become one. `corpora.pairs.INVISIBLE` marks are dropped. See
    Kudo and Richardson 2018.

    Args:
        model: the bytes of a SentencePiece model, from `Tokenizer.train` or from
            `exporting.marian.import_marian`. The latter's texts are cut as in Marian's
            own tokenizer.
        target: the `Tokenizer` of the translations; None if it is this one.

    Attributes:
        target: the `Tokenizer` of the translations.
        sides: this tokenizer and ``target``.
        vocab_size: the number of tokens, those of ``target`` not counted.
        digest: a hash of this tokenizer and ``target``.
        languages: what a text may begin with, such as ">>por<<", to choose the language
            that an imported model writes.
        default: what begins the texts that name no language; ``ANY_LANGUAGE`` if each
            must name one, or "".

    Raises:
        UserError: the bytes are not a SentencePiece model, or its special tokens are
            not 0 (padding), 1 (unknown), 2 (start) and 3 (end).

    Example:
        >>> lines = ["o gato bebe leite", "a casa é azul"] * 50
        >>> tokenizer = Tokenizer.train(lines, vocab_size=300)
        >>> tokenizer.decode(tokenizer.encode(["a casa é azul", ""]))
        ['a casa é azul', '']
        >>> ids = tokenizer.tokenize(["a casa é azul", ""])  # a RaggedTensor
        >>> tokenizer.detokenize(ids).numpy()[0].decode()
        'a casa é azul'
    """

    def __init__(self, model, target=None):
        self.model = model
        self.target = target if target and target.model != model else self
        self.sides = self, self.target
        self.processor = sp = sentencepiece.SentencePieceProcessor()
        try:
            sp.LoadFromSerializedProto(model)
        except (RuntimeError, UnicodeDecodeError):  # a damaged token may not be UTF-8
            raise UserError("not a SentencePiece model") from None
        special = (sp.pad_id(), sp.unk_id(), sp.bos_id(), sp.eos_id())
        if special != (PAD_ID, UNK_ID, START_ID, END_ID):
            raise UserError(
                "the SentencePiece model must have pad, unk, bos and eos as tokens "
                f"0, 1, 2 and 3, not {special}: train one with `tfxformer train`"
            )
        self.vocab_size = sp.GetPieceSize()
        self.languages, self.default = [], ""
        self.rules = [(_CONTROL, " "), (INVISIBLE, "")]
        # Marian's tokens end with a control token, which has the default language.
        ends = [*filter(sp.IsControl, range(END_ID + 1, self.vocab_size))][:1]
        self.imported = bool(ends)
        if self.imported:
            self.vocab_size = ends[0]
            self.default = sp.IdToPiece(ends[0]).removeprefix(SPELT)
            tokens = self.tokens(range(END_ID + 1, self.vocab_size))
            self.languages = sorted(x for x in tokens if re.fullmatch(">>.*<<", x))
            self.rules = _spelling_rules(self.languages)
        both = model if self.target is self else model + self.target.model
        self.digest = hashlib.sha256(both).hexdigest()

    @classmethod
    def train(cls, lines, vocab_size, casing="keep"):
        """Learn a vocabulary (unigram language model, Kudo 2018).

        Args:
            lines: an iterable of strings in both languages. SentencePiece samples 2
                million if there are more.
            vocab_size: the most tokens to learn, including 4 special tokens and 256
                bytes; a small corpus may give fewer.
            casing: "keep", or "lower" for a translator that reads and writes lower
                case only.

        Returns:
            A `Tokenizer`.

        Raises:
            UserError: there is no text, or ``vocab_size`` is too small for the
                text's characters.
        """
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.Train(
                sentence_iterator=(line for line in lines if line.strip()),
                model_writer=model,
                input_sentence_size=2_000_000,
                vocab_size=vocab_size,
                hard_vocab_limit=False,
                byte_fallback=True,
                character_coverage=0.9998,  # rare characters are spelt in bytes
                normalization_rule_name={"keep": "nfkc", "lower": "nfkc_cf"}[casing],
                pad_id=PAD_ID,
                unk_id=UNK_ID,
                bos_id=START_ID,
                eos_id=END_ID,
                num_threads=4,  # the same tokens on every machine
                max_sentence_length=100_000,
                minloglevel=2,
            )
        except RuntimeError as error:
            problem = f"cannot learn a vocabulary of {vocab_size} tokens from this text"
            reason = str(error).strip().splitlines()[-1]
            raise UserError(f"{problem}: {reason}") from None
        return cls(model.getvalue())

    @classmethod
    def load(cls, path):
        """Read a `Tokenizer` from the file, or the two files, of `save`.

        Raises:
            UserError: the file does not exist or is not a SentencePiece model.
        """
        file = _target_file(path)
        target = cls.load(file) if file.exists() else None
        try:
            return cls(Path(path).read_bytes(), target)
        except (OSError, UserError) as error:
            reason = getattr(error, "strerror", error)
            raise UserError(f"{path}: {reason}") from None

    def save(self, path):
        """Write the tokenizer to a file, as a SentencePiece model.

        A ``target`` of its own goes beside it: ``tokenizer.target.model`` beside
        ``tokenizer.model``. Without one, another tokenizer's file there is removed,
        since `load` would read it.
        """
        if self.target is self:
            _target_file(path).unlink(missing_ok=True)
        else:
            self.target.save(_target_file(path))
        write_file(path, self.model)

    def encode(self, texts, alpha=0.0):
        """Cut texts into tokens.

        Args:
            texts: a list of strings.
            alpha: 0 for the best segmentation. Otherwise SentencePiece samples one with
                its probability to the power of ``alpha`` (subword regularisation, Kudo
                2018; 0.1 is usual). You cannot seed the samples.

        Returns:
            A list of ids for each text, without start and end tokens.

        Raises:
            UserError: a text must begin with a language, and does not.
        """
        for pattern, by in self.rules:
            texts = [re.sub(pattern, by, text) for text in texts]
        options = {"enable_sampling": True, "nbest_size": -1, "alpha": alpha}
        options = options if alpha else {}
        if self.imported:
            options["out_type"] = str
        if len(texts) == 1:  # no threads: starting them takes much longer
            rows = [self.processor.encode(texts[0], **options)]
        else:
            rows = self.processor.encode(texts, num_threads=1, **options)
        return [*map(self._look_up, texts, rows)] if self.imported else rows

    def _look_up(self, text, tokens):
        """The ids of an imported model's tokens, the language among them."""
        tokens = [re.sub(_SPELT_LANGUAGE, ">>", token) for token in tokens]
        if tokens and self.default and not text.startswith(f"{SPELT}>>"):
            if self.default == ANY_LANGUAGE:
                raise UserError(f"{reprlib.repr(text)}: {self._choose()}")
            tokens = [self.default, *tokens]
        ids = self.processor.piece_to_id(tokens)
        return [i if i < self.vocab_size else UNK_ID for i in ids]

    def _choose(self):
        some = ", ".join(self.languages[:5])
        return f"must begin with a language to write, such as {some}"

    def language(self, text):
        """What chooses the language at the beginning of a text, or ""."""
        return next(filter(text.startswith, self.languages), "")

    def decode(self, ids):
        """Turn ids into texts.

        Args:
            ids: a list of ids for each text. Padding, start and end tokens are left
                out; an id outside the vocabulary becomes U+2047.

        Returns:
            A list of strings, with U+FFFD for control characters and broken UTF-8.
        """
        if not len(ids):  # SentencePiece would treat it as one text
            return []
        known = range(self.vocab_size)
        ids = [[int(i) if int(i) in known else UNK_ID for i in row] for row in ids]
        texts = self.processor.decode(ids, num_threads=1)
        return [re.sub(_CONTROL, "\ufffd", text) for text in texts]

    def tokens(self, ids):
        """Return the token strings of some ids, as SentencePiece spells them."""
        return [self.processor.IdToPiece(int(i)) for i in ids]

    def spellings(self, words):
        """Return the tokens that write some words, each also with a capital.

        Example:
            >>> tokenizer = Tokenizer.train(["o gato", "the cat"] * 50, vocab_size=300)
            >>> tokenizer.decode(tokenizer.spellings(["cat"]))
            ['cat', 'Cat']
        """
        forms = (form for word in words for form in (word, word[:1].upper() + word[1:]))
        return [ids for ids in self.encode([*dict.fromkeys(forms)]) if ids]

    @functools.cached_property
    def resource(self):
        """The SentencePiece model as a TensorFlow resource, which an export tracks.

        TensorFlow Text's own resource is lost when TensorFlow clears its kernel cache,
        for example when you set the global seed. A named resource stays.
        """
        import tensorflow as tf

        class Resource(tf.saved_model.experimental.TrackableResource):
            def _create_resource(_):
                return _ops().sentencepiece_op(self.model, shared_name=self.digest)

        with tf.init_scope():  # outside any graph that is being traced
            resource = Resource()
            _ = resource.resource_handle  # creates it
        return resource

    def tokenize(self, text):
        """Cut texts into tokens, in the graph or outside it.

        Args:
            text: strings ``(batch,)``.

        Returns:
            Ragged int32 ``(batch, length)``, without start and end tokens.
        """
        import tensorflow as tf

        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", replacement_char=32)
        for pattern, by in self.rules:
            text = tf.strings.regex_replace(text, pattern, by)
        tokens, splits = _ops().sentencepiece_tokenize_op(
            self.resource.resource_handle,
            text,
            nbest_size=0,
            alpha=1.0,
            out_type=tf.string if self.imported else tf.int32,
            **_AS_IS,
        )
        tokens = tf.RaggedTensor.from_row_splits(tokens, splits, validate=False)
        return self._look_up_in_graph(text, tokens) if self.imported else tokens

    def _look_up_in_graph(self, text, tokens):
        """`_look_up` for a batch: the tokens ``(batch, length)`` are strings."""
        import tensorflow as tf

        values = tf.strings.regex_replace(tokens.values, _SPELT_LANGUAGE, ">>")
        ids = _ops().sentencepiece_string_to_id_op(
            self.resource.resource_handle, values
        )
        ids = tf.where(ids < self.vocab_size, ids, UNK_ID)
        ids = tokens.with_values(ids)
        if not self.default:
            return ids
        named = tf.strings.regex_full_match(text, f"(?s){SPELT}>>.*")
        lacks = ~named & (ids.row_lengths() > 0)
        if self.default == ANY_LANGUAGE:
            tf.debugging.Assert(~tf.reduce_any(lacks), [self._choose()])
            return ids
        lacks = tf.cast(lacks, tf.int64)
        default = self.processor.PieceToId(self.default)
        first = tf.fill([tf.reduce_sum(lacks)], default)
        first = tf.RaggedTensor.from_row_lengths(first, lacks, validate=False)
        return tf.concat([first, ids], axis=1)

    def detokenize(self, ids):
        """Turn ids into texts, in the graph or outside it; see `decode`.

        Args:
            ids: ragged or padded int32 ``(batch, length)``.

        Returns:
            Strings ``(batch,)``, valid UTF-8 for any ids.
        """
        import tensorflow as tf

        if not isinstance(ids, tf.RaggedTensor):
            ids = tf.RaggedTensor.from_tensor(ids)
        known = (ids.values >= 0) & (ids.values < self.vocab_size)
        values = tf.where(known, ids.values, UNK_ID)
        text = _ops().sentencepiece_detokenize_op(
            self.resource.resource_handle, values, ids.row_splits, **_AS_IS
        )
        return tf.strings.regex_replace(text, _CONTROL, "\ufffd")


def _spelling_rules(languages):
    """What marks the special tokens and languages that a text spells out.

    Special tokens may be anywhere. A language begins a text, or what follows a special
    token; one that the model does not know is the unknown token.
    """
    special = "</s>|<unk>|<pad>"
    begins = f"(^|{SPELT}(?:{special}) )"
    known = "|".join(re.escape(language) for language in languages)
    # White space at the end of what is before one does not count.
    rules = [(f"[ \u2581]*({special})", f" {SPELT}\\1 ")]
    if known:
        rules.append((f"{begins}({known})", f"\\1{SPELT}\\2 "))
    return [*rules, (f"{begins}>>[^{SPELT}]*?<<", f"\\1{SPELT}<unk> ")]


def encode_source(tokenizer, text, longest=None):
    """Give the encoder's input: tokens and the end token.

    Takes the arguments of `encode_target`; returns padded int32 ``(batch, source)``.
    """
    return encode_target(tokenizer, text, longest)[1]


def encode_target(tokenizer, text, longest=None):
    """Give the decoder's input and its labels: the same tokens, shifted by one.

    Args:
        tokenizer: a `Tokenizer`.
        text: strings ``(batch,)``.
        longest: the most tokens besides start and end; the rest is cut off.

    Returns:
        Two padded int32 ``(batch, target)``: the start token and all tokens, and all
        tokens and the end token.

    Example:
        >>> tokenizer = Tokenizer.train(["o gato", "the cat"] * 50, vocab_size=300)
        >>> target_in, labels = encode_target(tokenizer, ["the cat"])
        >>> int(target_in[0, 0]), int(labels[0, -1])  # start, end
        (2, 3)
    """
    import tensorflow as tf

    ids = tokenizer.tokenize(text)
    lengths, ids = ids.row_lengths(), ids.to_tensor()[:, :longest]
    lengths = tf.minimum(lengths, tf.shape(ids, tf.int64)[1])
    target_in = tf.pad(ids, [[0, 0], [1, 0]], constant_values=START_ID)
    labels = tf.pad(ids, [[0, 0], [0, 1]])
    ends = tf.one_hot(lengths, tf.shape(labels)[1], dtype=tf.int32)
    return target_in, labels + END_ID * ends


def _target_file(path):
    """The file beside a tokenizer's, for a target of its own."""
    return Path(path).with_suffix(f".target{Path(path).suffix}")


def _ops():
    """TensorFlow Text's SentencePiece graph ops."""
    from tensorflow_text.python.ops import sentencepiece_tokenizer

    return sentencepiece_tokenizer.gen_sentencepiece_tokenizer


# --- The file of a model ---

# The fields of SentencePiece's message that this package reads or changes; it keeps the
# others. (SentencePiece's own module needs a newer protobuf than TensorFlow allows.)
MESSAGE = r"""name: "sentencepiece_model" message_type { name: "SentencePiece"
  field { name: "piece" number: 1 type: TYPE_STRING }
  field { name: "score" number: 2 type: TYPE_FLOAT }
  field { name: "type" number: 3 type: TYPE_INT32 default_value: "1" }
} message_type { name: "TrainerSpec"
  field { name: "model_type" number: 3 type: TYPE_INT32 default_value: "1" }
  field { name: "treat_whitespace_as_suffix" number: 24 type: TYPE_BOOL }
  field { name: "byte_fallback" number: 35 type: TYPE_BOOL }
  field { name: "unk_surface" number: 44 type: TYPE_STRING
    default_value: " \342\201\207 " }
  field { name: "unk_piece" number: 45 type: TYPE_STRING }
  field { name: "bos_piece" number: 46 type: TYPE_STRING }
  field { name: "eos_piece" number: 47 type: TYPE_STRING }
  field { name: "pad_piece" number: 48 type: TYPE_STRING }
} message_type { name: "NormalizerSpec"
  field { name: "precompiled_charsmap" number: 2 type: TYPE_BYTES }
  field { name: "add_dummy_prefix" number: 3 type: TYPE_BOOL default_value: "true" }
  field { name: "remove_extra_whitespaces" number: 4 type: TYPE_BOOL
    default_value: "true" }
  field { name: "escape_whitespaces" number: 5 type: TYPE_BOOL default_value: "true" }
} message_type { name: "ModelProto"
  field { name: "pieces" number: 1 type_name: "SentencePiece" label: LABEL_REPEATED }
  field { name: "trainer_spec" number: 2 type_name: "TrainerSpec" }
  field { name: "normalizer_spec" number: 3 type_name: "NormalizerSpec" }
  field { name: "denormalizer_spec" number: 5 type_name: "NormalizerSpec" }
}"""
# The types of models, and of tokens.
UNIGRAM = 1
NORMAL, UNKNOWN = 1, 2
CONTROL, USER_DEFINED = 3, 4
UNUSED, BYTE = 5, 6


def read_model(data):
    """Reads the bytes of a SentencePiece model.

    Args:
        data: bytes, such as `Tokenizer.model`.

    Returns:
        A protobuf message with the fields of `MESSAGE`.

    Raises:
        UserError: the bytes are something else.

    Example:
        >>> tokenizer = Tokenizer.train(["o gato", "the cat"] * 50, vocab_size=300)
        >>> [token.piece for token in read_model(tokenizer.model).pieces[:4]]
        ['<pad>', '<unk>', '<s>', '</s>']
    """
    from google.protobuf.message import DecodeError

    try:
        return _message().FromString(data)
    except DecodeError as error:
        raise UserError(f"not a SentencePiece model: {error}") from None


@functools.cache
def _message():
    """The class of `MESSAGE`."""
    from google.protobuf import descriptor_pb2, message_factory, text_format

    file = text_format.Parse(MESSAGE, descriptor_pb2.FileDescriptorProto())
    return message_factory.GetMessages([file])["ModelProto"]
