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


def stack_weights(attention):
    """Each layer's weights to ``(sentences, beams, layers * heads, source, 1)``."""
    return ops.cast(ops.concatenate(attention, axis=2), "float32")[..., None]


def no_weights(sources, step, beams, history):
    """Room for the weights of all steps."""
    sentences, length = ops.shape(sources.ids)
    rows = len(step.layers) * step.heads
    return history.empty((sentences, beams, rows, length, None), "float32")


def best_first(rank, count, found):
    """The best of each sentence's hypotheses, best first.

    Args:
        rank: float32 ``(sentences, hypotheses)``.
        count: how many.
        found: a tuple of what there is of the hypotheses,
            ``(sentences, hypotheses, ...)``, or ().

    Returns:
        The tuple, ``(sentences, count, ...)``.
    """
    order = ops.top_k(rank, count)[1]
    return tuple(take_hypotheses(x, order) for x in found)


def take_hypotheses(x, order):
    """Takes hypotheses ``(sentences, count)`` of ``(sentences, hypotheses, ...)``."""
    if isinstance(x, tuple):  # nothing is kept
        return x
    order = ops.cast(order, "int32")
    shape = ops.shape(x)
    rows = order + ops.arange(shape[0], dtype="int32")[:, None] * shape[1]
    flat = ops.reshape(x, (shape[0] * shape[1], *shape[2:]))
    return take_rows(flat, rows)
