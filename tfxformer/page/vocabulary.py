"""A SentencePiece model as plain values, for a tokenizer in another language."""

import base64

import numpy as np

from tfxformer.errors import UserError
from tfxformer.sentencepiece_model import BYTE, UNIGRAM, USER_DEFINED, read_model


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
    model = read_model(tokenizer.model)
    training, spelling = model.trainer_spec, model.normalizer_spec
    types = [piece.type for piece in model.pieces]
    unknown = {
        "a vocabulary that is not a unigram model": training.model_type != UNIGRAM,
        "tokens of the user": USER_DEFINED in types,
        "spaces after words": training.treat_whitespace_as_suffix,
        "spaces as they are": not spelling.escape_whitespaces,
        "rules after decoding": model.denormalizer_spec.precompiled_charsmap,
        "bytes that are no fallback": training.byte_fallback != (BYTE in types),
    }
    for what, found in unknown.items():
        if found:
            raise UserError(f"the tokenizer has {what}, which the page does not know")
    return {
        "pieces": [piece.piece for piece in model.pieces],
        # As short as float32 allows: the page makes float32 of them again.
        "scores": [float(str(np.float32(piece.score))) for piece in model.pieces],
        "types": types,
        "rules": base64.b64encode(spelling.precompiled_charsmap).decode(),
        "add_dummy_prefix": spelling.add_dummy_prefix,
        "remove_extra_whitespaces": spelling.remove_extra_whitespaces,
        "unk_surface": training.unk_surface,
    }
