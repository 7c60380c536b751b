"""A SentencePiece model as plain values, for a tokenizer in another language."""

import base64
import functools

import numpy as np

from tfxformer.errors import UserError

# The fields of SentencePiece's message that cutting a text needs. (SentencePiece's own
# module needs a newer protobuf than TensorFlow allows.)
MESSAGE = r"""name: "vocabulary" package: "tfxformer.page" message_type { name: "Piece"
  field { name: "piece" number: 1 type: TYPE_STRING }
  field { name: "score" number: 2 type: TYPE_FLOAT }
  field { name: "type" number: 3 type: TYPE_INT32 default_value: "1" }
} message_type { name: "Training"
  field { name: "model_type" number: 3 type: TYPE_INT32 default_value: "1" }
  field { name: "treat_whitespace_as_suffix" number: 24 type: TYPE_BOOL }
  field { name: "byte_fallback" number: 35 type: TYPE_BOOL }
  field { name: "unk_surface" number: 44 type: TYPE_STRING
    default_value: " \342\201\207 " }
} message_type { name: "Spelling"
  field { name: "rules" number: 2 type: TYPE_BYTES }
  field { name: "add_dummy_prefix" number: 3 type: TYPE_BOOL default_value: "true" }
  field { name: "remove_extra_whitespaces" number: 4 type: TYPE_BOOL
    default_value: "true" }
  field { name: "escape_whitespaces" number: 5 type: TYPE_BOOL default_value: "true" }
} message_type { name: "Model"
  field { name: "pieces" number: 1 type_name: "Piece" label: LABEL_REPEATED }
  field { name: "training" number: 2 type_name: "Training" }
  field { name: "spelling" number: 3 type_name: "Spelling" }
  field { name: "undo" number: 5 type_name: "Spelling" }
}"""
UNIGRAM = 1  # its types of models and of tokens
USER_DEFINED, BYTE = 4, 6


def vocabulary(tokenizer):
    """The vocabulary of a `Tokenizer`, as JSON holds it.

    Args:
        tokenizer: a `Tokenizer`.

    Returns:
        A dict: ``pieces``, ``scores`` and ``types`` by id, ``rules`` (SentencePiece's
        rules of normalisation in base64), and how it treats spaces and unknown tokens.

    Raises:
        UserError: the model has a part that the page does not know.

    Example:
        >>> from tfxformer import Tokenizer
        >>> tokenizer = Tokenizer.train(["o gato", "the cat"] * 50, vocab_size=300)
        >>> vocabulary(tokenizer)["pieces"][:4]
        ['<pad>', '<unk>', '<s>', '</s>']
    """
    model = _message().FromString(tokenizer.model)
    types = [piece.type for piece in model.pieces]
    unknown = {
        "a vocabulary that is not a unigram model": model.training.model_type
        != UNIGRAM,
        "tokens of the user": USER_DEFINED in types,
        "spaces after words": model.training.treat_whitespace_as_suffix,
        "spaces as they are": not model.spelling.escape_whitespaces,
        "rules after decoding": bool(model.undo.rules),
        "bytes that are no fallback": model.training.byte_fallback != (BYTE in types),
    }
    for what, found in unknown.items():
        if found:
            raise UserError(f"the tokenizer has {what}, which the page does not know")
    return {
        "pieces": [piece.piece for piece in model.pieces],
        # As short as float32 allows: the page makes float32 of them again.
        "scores": [float(str(np.float32(piece.score))) for piece in model.pieces],
        "types": types,
        "rules": base64.b64encode(model.spelling.rules).decode(),
        "add_dummy_prefix": model.spelling.add_dummy_prefix,
        "remove_extra_whitespaces": model.spelling.remove_extra_whitespaces,
        "unk_surface": model.training.unk_surface,
    }


@functools.cache
def _message():
    """The class of `MESSAGE`."""
    from google.protobuf import descriptor_pb2, message_factory, text_format

    file = text_format.Parse(MESSAGE, descriptor_pb2.FileDescriptorProto())
    return message_factory.GetMessages([file])["tfxformer.page.Model"]
