"""The file of a SentencePiece model, field by field.

SentencePiece's own module needs a newer protobuf than TensorFlow allows.
"""

import functools

from tfxformer.errors import UserError

# The fields of sentencepiece_model.proto that this package reads or changes. A message
# keeps the others.
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
        >>> from tfxformer import Tokenizer
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
