"""Sampling that depends on the sentence, never on its neighbours in the batch."""

import math

import numpy as np
from keras import ops

from tfxformer.decoding.options import NEVER
from tfxformer.layers.kernels import few_rows_softmax


def sample_token(logits, uniform, options):
    """Draws a token for each row.

    Args:
        logits: float32 ``(rows, vocab)``.
        uniform: float32 ``(rows,)``, numbers from 0 to 1, one for each draw.
        options: `DecodingOptions` with ``temperature``, ``top_k`` and ``top_p``.

    Returns:
        int32 ``(rows,)``.

    Example:
        >>> import numpy as np
        >>> from tfxformer.decoding import DecodingOptions
        >>> options = DecodingOptions(sampling=True, top_k=1)
        >>> logits, uniform = np.array([[1.0, 3.0, 2.0]]), np.array([0.9])
        >>> int(sample_token(logits, uniform, options)[0])
        1
    """
    vocab = logits.shape[-1]
    logits = ops.cast(logits, "float32")
    order = None
    if options.top_k or options.top_p < 1:
        count = min(options.top_k or vocab, vocab)
        logits, order = ops.top_k(logits, count)  # (rows, count), likeliest first
    # What is not allowed stays out of reach however high the temperature.
    lag = logits - ops.max(logits, axis=-1, keepdims=True)
    warm = lag / max(options.temperature, 1e-30)
    probability = few_rows_softmax(ops.where(logits > NEVER / 2, warm, -math.inf))
    below = ops.cumsum(probability, axis=-1)
    if options.top_p < 1:
        kept = ops.cast(below - probability < options.top_p, "float32")
        below = ops.cumsum(probability * kept, axis=-1)
    # The first token at which the sum passes the number drawn.
    mark = ops.cast(uniform, "float32")[:, None] * below[:, -1:]
    index = ops.sum(ops.cast(below <= mark, "int32"), axis=-1)
    index = ops.minimum(index, logits.shape[-1] - 1)
    if order is None:
        return ops.cast(index, "int32")
    return ops.cast(ops.take_along_axis(order, index[:, None], axis=1)[:, 0], "int32")


def fingerprint(source):
    """A number for each sentence ``(sentences, source)`` that its ids alone decide."""
    source = ops.cast(source, "uint32")
    place = ops.cast(ops.arange(ops.shape(source)[1]), "uint32")
    mixed = mix(source * np.uint32(0x9E3779B1) + mix(place + 1)[None])
    mixed = ops.where(ops.equal(source, 0), ops.zeros_like(mixed), mixed)
    # Signed sums wrap round on every backend; TensorFlow has no unsigned ones.
    return ops.cast(ops.sum(ops.cast(mixed, "int32"), axis=1), "uint32")


def uniform(sentence, seed, position):
    """A number from 0 to 1 for each row, the same wherever the row stands.

    Args:
        sentence: uint32 ``(rows,)``, what tells the rows apart.
        seed: an int.
        position: a scalar.

    Returns:
        float32 ``(rows,)``.
    """
    position = ops.cast(position, "uint32")
    bits = mix(mix(sentence + mix(position + 1)) + seed)
    return ops.cast(ops.right_shift(bits, 8), "float32") * 2.0**-24


def mix(bits):
    """Spreads every bit of uint32 numbers over all the others."""
    # "lowbias32", found by Chris Wellons's search for integer hashes.
    bits = ops.cast(bits, "uint32")
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        bits = ops.bitwise_xor(bits, ops.right_shift(bits, shift)) * np.uint32(factor)
    return ops.bitwise_xor(bits, ops.right_shift(bits, 16))
