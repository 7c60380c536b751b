"""How the KV cache takes one more position a step, and how the steps are repeated.

TensorFlow's graphs do best with tensors that grow, and with sentences that leave the
batch once they have ended. XLA and JAX compile for shapes that never change: each
tensor has places for all positions from the beginning. Only these two classes differ.
"""

from typing import NamedTuple

import keras
from keras import ops

from tfxformer.layers.kernels import shrinking_while_loop, take_rows, unseen
from tfxformer.layers.masking import mask_bias


class Search(NamedTuple):
    """A search as its loop sees it; all its tensors lead with the sentences."""

    step: object  # (position, sources, state) to the next state
    going: object  # state to a boolean (sentences,), False once one has ended
    # State to a tuple of tensors; the last axis is the positions, or of a fixed size.
    results: object
    start: object  # the first state, a structure of tensors

    def left(self, state):
        """How many sentences go on."""
        return ops.sum(ops.cast(self.going(state), "int32"))

    def steps_of(self, sources):
        """The body of the loop: position and state to the next."""
        return lambda i, state: (i + 1, self.step(i, sources, state))


class GrowingBuffers:
    """Tensors as long as what has been written, for TensorFlow's own graphs.

    Args:
        most: the most positions to be written, an int32 scalar computed from data,
            so that TensorFlow takes no shape for known.
    """

    def __init__(self, most):
        self.none = unseen(ops.minimum(most, 0))

    def empty(self, shape, dtype):
        """A tensor without positions yet; None in the shape is their axis."""
        return ops.zeros([self.none if n is None else n for n in shape], dtype)

    def append(self, written, new, position, axis):
        """What has been written, with one more position."""
        return ops.concatenate([written, new], axis=axis)

    def unwritten_bias(self, position, dtype):
        """Hides positions that are not written yet: here, none."""
        return None

    def repeat(self, search, sources):
        """Repeats a search's step until every sentence has ended.

        When a quarter of the sentences have ended they leave the batch, so that no
        step works for them.

        Args:
            search: a `Search`.
            sources: a structure of tensors that lead with the sentences and stay.

        Returns:
            The results of all the sentences.
        """
        zero, everyone = ops.zeros((), "int32"), ops.arange(_count(sources))
        start = (zero, everyone, sources, search.start, search.results(search.start))

        def unfinished(position, rows, sources, state, collected):
            return ops.any(search.going(state))

        def some_leave(began, rows, sources, state, collected):
            def enough_go_on(position, state):
                enough = 4 * search.left(state) > 3 * ops.shape(rows)[0]
                # One step at least, also where many are empty from the beginning.
                return ops.logical_or(ops.equal(position, began), enough)

            position, state = shrinking_while_loop(
                enough_go_on, search.steps_of(sources), (began, state)
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
        most: the most positions to be written, an int or a scalar that XLA knows
            when it compiles.
    """

    def __init__(self, most):
        self.most = most

    def empty(self, shape, dtype):
        """A tensor without positions yet; None in the shape is their axis."""
        return ops.zeros([self.most if n is None else n for n in shape], dtype)

    def append(self, written, new, position, axis):
        """What has been written, with one more position."""
        start = [0] * len(written.shape)
        start[axis] = position
        return ops.slice_update(written, start, new)

    def unwritten_bias(self, position, dtype):
        """Hides positions that are not written yet, ``(most,)``."""
        return mask_bias(ops.arange(self.most) <= position, dtype)

    def repeat(self, search, sources):
        """Repeats a step until every sentence has ended; see `GrowingBuffers.repeat`.

        The batch may only shrink to a size that is known beforehand: once no more
        than a quarter of the sentences go on, the others leave.
        """

        def until(few, position, sources, state):
            def more_go_on(position, state):
                return ops.logical_and(position < self.most, search.left(state) > few)

            step = search.steps_of(sources)
            return ops.while_loop(more_go_on, step, (position, state))

        quarter = -(-_count(sources) // 4)
        position, state = until(quarter, ops.zeros((), "int32"), sources, search.start)
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
    """How many sentences there are."""
    return ops.shape(keras.tree.flatten(sources)[0])[0]


def _take(structure, rows):
    """Rows of each tensor."""
    return keras.tree.map_structure(lambda x: take_rows(x, rows), structure)


def _write_rows(old, rows, new):
    """Puts new rows, which may have more positions, where the old ones are."""
    more = ops.shape(new)[-1] - ops.shape(old)[-1]
    old = ops.concatenate([old, ops.zeros((*ops.shape(old)[:-1], more), old.dtype)], -1)
    return ops.scatter_update(old, rows[:, None], new)
