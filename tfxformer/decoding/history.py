"""How tensors take one more position a step, and how the steps are repeated.

TensorFlow's graphs do best with tensors that grow and with sentences that leave the
batch when they have ended. XLA and JAX compile for shapes that never change: there,
room is made for all positions at once. These two classes are all that differs.
"""

import keras
from keras import ops

from tfxformer.layers.attention import MASKED
from tfxformer.layers.kernels import shrinking_while_loop, take_rows, unseen


class Growing:
    """Tensors as long as what has been written, for TensorFlow's own graphs.

    Args:
        room: the most positions to be written, an int32 scalar computed from data,
            so that no shape is taken for known.
    """

    def __init__(self, room):
        self.none = unseen(ops.minimum(room, 0))

    def empty(self, shape, dtype):
        """A tensor without positions yet; None in the shape stands for them."""
        return ops.zeros([self.none if n is None else n for n in shape], dtype)

    def append(self, written, new, position, axis):
        """What has been written, with one more position."""
        return ops.concatenate([written, new], axis=axis)

    def unwritten(self, position, dtype):
        """What hides the positions not written yet: nothing, there are none."""
        return None

    def repeat(self, step, going, results, source, state):
        """Repeats a step until every sentence has ended.

        When a quarter of the sentences have ended they leave the batch, so that no
        step works for them.

        Args:
            step: ``(position, source, state)`` to the next state.
            going: state to a boolean ``(sentences,)``, False once one has ended.
            results: state to a tuple of tensors that lead with the sentences, their
                last axis the positions written or of a fixed size.
            source: a structure of tensors that lead with the sentences and stay.
            state: a structure of tensors that lead with the sentences.

        Returns:
            The results of all the sentences.
        """
        sentences = ops.shape(keras.tree.flatten(source)[0])[0]
        whole = ops.arange(sentences)
        collected = results(state)

        def unfinished(position, places, source, state, collected):
            return ops.any(going(state))

        def some_leave(position, places, source, state, collected):
            began = position

            def enough(position, state):
                left = ops.sum(ops.cast(going(state), "int32"))
                most = 4 * left > 3 * ops.shape(places)[0]
                # One step at least, also where many are empty from the beginning.
                return ops.logical_or(ops.equal(position, began), most)

            def once_more(position, state):
                return position + 1, step(position, source, state)

            position, state = shrinking_while_loop(enough, once_more, (position, state))
            collected = keras.tree.map_structure(
                lambda old, new: _write_rows(old, places, new),
                collected,
                results(state),
            )
            stay = ops.nonzero(going(state))[0]
            places, source, state = keras.tree.map_structure(
                lambda x: take_rows(x, stay), (places, source, state)
            )
            return position, places, source, state, collected

        start = (ops.zeros((), "int32"), whole, source, state, collected)
        return shrinking_while_loop(unfinished, some_leave, start)[-1]


class Fixed:
    """Tensors with room for every position, for XLA and JAX.

    Args:
        room: the most positions to be written, an int or a scalar that XLA knows
            when it compiles.
    """

    def __init__(self, room):
        self.room = room

    def empty(self, shape, dtype):
        """A tensor without positions yet; None in the shape stands for their room."""
        return ops.zeros([self.room if n is None else n for n in shape], dtype)

    def append(self, written, new, position, axis):
        """What has been written, with one more position."""
        start = [0] * len(written.shape)
        start[axis] = position
        return ops.slice_update(written, start, new)

    def unwritten(self, position, dtype):
        """What hides the positions not written yet, ``(room,)``."""
        later = ops.cast(ops.arange(self.room) > position, dtype)
        return later * MASKED[dtype]

    def repeat(self, step, going, results, source, state):
        """Repeats a step until every sentence has ended; see `Growing.repeat`.

        The batch may shrink to a size that is known beforehand only: when no more
        than a quarter of the sentences go on, the others leave.
        """

        def until(few, position, source, state):
            def unfinished(position, state):
                left = ops.sum(ops.cast(going(state), "int32"))
                return ops.logical_and(position < self.room, left > few)

            def once_more(position, state):
                return position + 1, step(position, source, state)

            return ops.while_loop(unfinished, once_more, (position, state))

        sentences = ops.shape(keras.tree.flatten(source)[0])[0]
        quarter = -(-sentences // 4)
        position, state = until(quarter, ops.zeros((), "int32"), source, state)
        collected = results(state)
        stay = ops.top_k(ops.cast(going(state), "int32"), quarter)[1]
        source, state = keras.tree.map_structure(
            lambda x: take_rows(x, stay), (source, state)
        )
        _, state = until(0, position, source, state)
        return keras.tree.map_structure(
            lambda old, new: ops.scatter_update(old, stay[:, None], new),
            collected,
            results(state),
        )


def _write_rows(old, rows, new):
    """Puts new rows, which may have more positions, where the old ones are."""
    more = ops.shape(new)[-1] - ops.shape(old)[-1]
    old = ops.concatenate([old, ops.zeros((*ops.shape(old)[:-1], more), old.dtype)], -1)
    return ops.scatter_update(old, rows[:, None], new)
