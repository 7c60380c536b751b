"""Hypotheses: what a search keeps of them, and what it gives."""

from typing import NamedTuple

from keras import ops

from tfxformer.layers.kernels import take_rows


class Decoded(NamedTuple):
    """Translations as ids, best first.

    Attributes:
        ids: int32 ``(batch, n_best, target)``: the tokens without start, with the
            end token where one was written, then padding.
        score: float32 ``(batch, n_best)``: the mean log-probability of those tokens,
            the end token included; 0 where there is none.
        rank: float32 ``(batch, n_best)``: what the translations are ordered by: the
            score, or with a length or coverage penalty log-probability and penalties.
        attention: cross-attention's weights when each token was written,
            ``(batch, n_best, layers, heads, target, source)``; or None.

    Example:
        >>> found = Decoded([[[7, 3, 0]]], [[-0.1]], rank=[[-0.1]], attention=None)
        >>> found.ids[0][0]
        [7, 3, 0]
    """

    ids: object
    score: object
    rank: object
    attention: object


def take_hypotheses(x, order):
    """Takes hypotheses ``(sentences, count)`` of ``(sentences, hypotheses, ...)``."""
    if isinstance(x, tuple):  # () where nothing is kept
        return x
    sentences, hypotheses, *rest = ops.shape(x)
    first = ops.arange(sentences, dtype="int32")[:, None] * hypotheses
    flat = ops.reshape(x, (sentences * hypotheses, *rest))
    return take_rows(flat, ops.cast(order, "int32") + first)
