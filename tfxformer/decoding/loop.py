"""The loop that repeats a search's step, and the buffers that it fills.

A search writes one position a step: token ids, and the keys and values of the KV
cache. TensorFlow's graphs are fastest with tensors that grow, and when finished
sentences leave the batch. XLA and JAX compile for fixed shapes, so each tensor has a
place for every position from the start. `GrowingBuffers` and `FixedBuffers` hold all of
this difference.
"""

from typing import Protocol

import keras
from keras import ops

from tfxformer.layers.kernels import shrinking_while_loop, take_rows, unseen
from tfxformer.layers.masking import mask_bias


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


def _left(search, state):
    """The number of unfinished sentences, a scalar."""
    return ops.sum(ops.cast(search.going(state), "int32"))


def _one_step(search, sources):
    """The body of a loop: position and state to the next."""
    return lambda position, state: (
        position + 1,
        search.step(position, sources, state),
    )


class GrowingBuffers:
    """Tensors that grow with the positions written, for TensorFlow's own graphs.

    Args:
        most: the most positions, an int32 scalar computed from data, so that
            TensorFlow does not treat any shape as fixed.
    """

    def __init__(self, most):
        self.none = unseen(ops.minimum(most, 0))

    def empty(self, shape, dtype):
        """A tensor without positions yet; None in the shape marks their axis."""
        return ops.zeros([self.none if n is None else n for n in shape], dtype)

    def append(self, written, new, position, axis):
        """The written positions and one more."""
        return ops.concatenate([written, new], axis=axis)

    def unwritten_bias(self, position, dtype):
        """The bias that hides unwritten positions: None, since there are none."""
        return None

    def repeat(self, search, sources):
        """The results of all sentences, after repeating a search's step to their ends.

        When a quarter of the sentences have ended, they leave the batch, so that later
        steps cost nothing for them.
        """
        position = ops.zeros((), "int32")
        rows = ops.arange(_count(sources))  # the numbers of the sentences in the batch
        state = search.start(sources)
        start = (position, rows, sources, state, search.results(state))

        def unfinished(position, rows, sources, state, collected):
            return ops.any(search.going(state))

        def some_leave(began, rows, sources, state, collected):
            def enough_go_on(position, state):
                enough = 4 * _left(search, state) > 3 * ops.shape(rows)[0]
                # At least one step, even if many sentences are empty.
                return ops.logical_or(ops.equal(position, began), enough)

            position, state = shrinking_while_loop(
                enough_go_on, _one_step(search, sources), (began, state)
            )
            collected = keras.tree.map_structure(
                lambda old, new: _write_rows(old, rows, new),
                collected,
                search.results(state),
            )
            stay = ops.nonzero(search.going(state))[0]
            rows, sources, state = _take((rows, sources, state), stay)
            return position, rows, sources, state, collected

        return shrinking_while_loop(unfinished, some_leave, start)[-1]


class FixedBuffers:
    """Tensors with a place for every position, for XLA and JAX.

    Args:
        most: the most positions, an int or a scalar that XLA knows at compile time.
    """

    def __init__(self, most):
        self.most = most

    def empty(self, shape, dtype):
        """As in `GrowingBuffers`."""
        return ops.zeros([self.most if n is None else n for n in shape], dtype)

    def append(self, written, new, position, axis):
        """As in `GrowingBuffers`."""
        start = [0] * len(written.shape)
        start[axis] = position
        return ops.slice_update(written, start, new)

    def unwritten_bias(self, position, dtype):
        """The bias ``(most,)`` that hides unwritten positions."""
        return mask_bias(ops.arange(self.most) <= position, dtype)

    def repeat(self, search, sources):
        """As in `GrowingBuffers`, but the batch shrinks once, to a fixed size.

        When at most a quarter of the sentences are unfinished, the others leave.
        """

        def until(few, position, sources, state):
            def more_go_on(position, state):
                unfinished = _left(search, state) > few
                return ops.logical_and(position < self.most, unfinished)

            return ops.while_loop(
                more_go_on, _one_step(search, sources), (position, state)
            )

        quarter = -(-_count(sources) // 4)
        position = ops.zeros((), "int32")
        position, state = until(quarter, position, sources, search.start(sources))
        collected = search.results(state)
        stay = ops.top_k(ops.cast(search.going(state), "int32"), quarter)[1]
        sources, state = _take((sources, state), stay)
        _, state = until(0, position, sources, state)
        return keras.tree.map_structure(
            lambda old, new: ops.scatter_update(old, stay[:, None], new),
            collected,
            search.results(state),
        )


def take_hypotheses(x, order):
    """Takes hypotheses ``(sentences, count)`` of ``(sentences, hypotheses, ...)``."""
    if isinstance(x, tuple):  # () where nothing is kept
        return x
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
