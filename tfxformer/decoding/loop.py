"""The loop that repeats a search's step until every sentence has ended.

A step writes one position of each sentence: token ids, and the keys and values of the
KV cache. These tensors grow with the positions, and sentences that have ended leave the
batch, so that no step works on what is not needed.
"""

from typing import Protocol

import keras
from keras import ops

from tfxformer.layers.kernels import shrinking_while_loop, take_rows


class Search(Protocol):
    """What the loop repeats: a `GreedySearch` or a `BeamSearch`.

    The first axis of every tensor is the sentences.
    """

    def start(self, sources):
        """The first state, a structure of tensors."""

    def step(self, position, sources, state):
        """The state after the token at a position, an int32 scalar."""

    def going(self, state):
        """Boolean ``(sentences,)``, False once a sentence has ended."""

    def results(self, state):
        """Ids ``(sentences, n_best, positions)``, and scores ``(sentences, n_best)``.

        The scores are two: the mean log-probability, and the rank.
        """


def repeat(search, sources):
    """The results of all sentences, after repeating a search's step to their ends.

    When a quarter of the sentences have ended, they leave the batch.

    Args:
        search: a `Search`.
        sources: a structure of tensors; the first axis of each is the sentences.

    Returns:
        The results of the search for all sentences, in their order.
    """
    rows = ops.arange(_count(sources))  # the numbers of the sentences in the batch
    state = search.start(sources)

    def unfinished(position, rows, sources, state, collected):
        return ops.any(search.going(state))

    def write_until_some_leave(first, rows, sources, state, collected):
        def enough_go_on(position, state):
            left = ops.sum(ops.cast(search.going(state), "int32"))
            enough = 4 * left > 3 * ops.shape(rows)[0]
            # At least one step, even if many sentences are empty.
            return ops.logical_or(ops.equal(position, first), enough)

        def write_one(position, state):
            return position + 1, search.step(position, sources, state)

        position, state = shrinking_while_loop(enough_go_on, write_one, (first, state))
        collected = keras.tree.map_structure(
            lambda old, new: _write_rows(old, rows, new),
            collected,
            search.results(state),
        )
        stay = ops.nonzero(search.going(state))[0]
        rows, sources, state = _take((rows, sources, state), stay)
        return position, rows, sources, state, collected

    start = (ops.zeros((), "int32"), rows, sources, state, search.results(state))
    *_, collected = shrinking_while_loop(unfinished, write_until_some_leave, start)
    return collected


def append_ids(ids, tokens):
    """The ids ``(sentences, hypotheses, positions)``, and one more position."""
    return ops.concatenate([ids, tokens[..., None]], axis=-1)


def take_hypotheses(x, order):
    """Takes hypotheses ``(sentences, count)`` of ``(sentences, hypotheses, ...)``."""
    sentences, hypotheses, *rest = ops.shape(x)
    first = ops.arange(sentences, dtype="int32")[:, None] * hypotheses
    flat = ops.reshape(x, (sentences * hypotheses, *rest))
    return take_rows(flat, ops.cast(order, "int32") + first)


def _count(sources):
    """The number of sentences."""
    return ops.shape(keras.tree.flatten(sources)[0])[0]


def _take(structure, rows):
    """Rows of each tensor."""
    return keras.tree.map_structure(lambda x: take_rows(x, rows), structure)


def _write_rows(old, rows, new):
    """Replaces rows by new ones, which may have more positions."""
    more = ops.shape(new)[-1] - ops.shape(old)[-1]
    old = ops.concatenate([old, ops.zeros((*ops.shape(old)[:-1], more), old.dtype)], -1)
    return ops.scatter_update(old, rows[:, None], new)
