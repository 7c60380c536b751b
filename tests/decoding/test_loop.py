"""Loops and growing buffers, with a search that only counts."""

import numpy as np
import tensorflow as tf
from keras import ops
from numpy.testing import assert_array_equal

from tfxformer.decoding.loop import FixedBuffers, GrowingBuffers


class Counting:
    """A search: each sentence writes 10 * its limit + position, up to its limit."""

    def __init__(self, buffers, seen):
        self.buffers, self.seen = buffers, seen

    def start(self, limits):
        ids = self.buffers.empty((ops.shape(limits)[0], None), "int32")
        return ids, ops.zeros_like(limits), limits > 0

    def step(self, position, limits, state):
        ids, count, going = state
        if self.seen is not None:
            self.seen.append(int(ops.shape(limits)[0]))
        new = ops.where(going, 10 * limits + position, 0)
        ids = self.buffers.append(ids, new[:, None], position, axis=1)
        count = count + ops.cast(going, "int32")
        return ids, count, count < limits

    def going(self, state):
        return state[2]

    def results(self, state):
        return state[0], state[1][:, None]


def count_up_to(buffers, limits, seen=None):
    limits = ops.convert_to_tensor(limits, "int32")
    return buffers.repeat(Counting(buffers, seen), limits)


def expected(limits, width):
    ids = np.zeros((len(limits), width), np.int32)
    for row, limit in zip(ids, limits, strict=True):
        row[:limit] = 10 * limit + np.arange(limit)
    return ids


in_a_graph = tf.function(
    lambda limits: count_up_to(GrowingBuffers(ops.max(limits, initial=0)), limits),
    input_signature=[tf.TensorSpec([None], tf.int32)],
    autograph=False,
)


def test_sentences_that_have_ended_leave_the_batch():
    seen = []
    count_up_to(GrowingBuffers(np.int32(9)), [1, 2, 2, 3, 6, 9, 9, 9], seen)
    # 1 ended sentence of 8 stays, 3 of 8 leave, 1 of 5 stays, 2 of 5 leave.
    assert seen == [8, 8, 5, 5, 5, 5, 3, 3, 3]
    seen.clear()
    count_up_to(GrowingBuffers(np.int32(2)), [0, 0, 0, 2], seen)
    assert seen == [4, 1]  # at least one step with all sentences
    seen.clear()
    ids, _ = count_up_to(FixedBuffers(50), [1, 5, 1, 2, 1, 3, 2, 1], seen)
    assert seen == [8, 8, 2, 2, 2]  # with fixed shapes, three quarters leave at once
    assert_array_equal(ids, expected([1, 5, 1, 2, 1, 3, 2, 1], 50))


def test_a_batch_of_constants():
    """Shape inference evaluates constants, and the shapes still grow."""
    graph = tf.function(lambda: in_a_graph.python_function(tf.constant([2, 3])))
    assert_array_equal(graph()[0], expected([2, 3], 3))
