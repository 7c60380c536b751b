"""The loop, with a search that only counts."""

import numpy as np
import tensorflow as tf
from keras import ops
from numpy.testing import assert_array_equal

from tfxformer.decoding.loop import repeat
from tfxformer.layers.kernels import unseen


class Counting:
    """A search: each sentence writes 10 * its limit + position, up to its limit."""

    def __init__(self, seen=None):
        self.seen = seen  # gets the number of sentences in each step

    def start(self, limits):
        ids = ops.zeros((ops.shape(limits)[0], unseen(0)), "int32")
        return ids, ops.zeros_like(limits), limits > 0

    def step(self, position, limits, state):
        ids, count, going = state
        if self.seen is not None:
            self.seen.append(int(ops.shape(limits)[0]))
        new = ops.where(going, 10 * limits + position, 0)
        ids = ops.concatenate([ids, new[:, None]], axis=1)
        count = count + ops.cast(going, "int32")
        return ids, count, count < limits

    def going(self, state):
        return state[2]

    def results(self, state):
        return state[0], state[1][:, None]


def expected(limits):
    ids = np.zeros((len(limits), max(limits)), np.int32)
    for row, limit in zip(ids, limits, strict=True):
        row[:limit] = 10 * limit + np.arange(limit)
    return ids


in_a_graph = tf.function(
    lambda limits: repeat(Counting(), limits),
    input_signature=[tf.TensorSpec([None], tf.int32)],
    autograph=False,
)


def test_sentences_that_have_ended_leave_the_batch():
    seen, limits = [], [1, 2, 2, 3, 6, 9, 9, 9]
    ids, _ = repeat(Counting(seen), tf.constant(limits))
    # 1 ended sentence of 8 stays, 3 of 8 leave, 1 of 5 stays, 2 of 5 leave.
    assert seen == [8, 8, 5, 5, 5, 5, 3, 3, 3]
    assert_array_equal(ids, expected(limits))
    seen.clear()
    repeat(Counting(seen), tf.constant([0, 0, 0, 2]))
    assert seen == [4, 1]  # at least one step with all sentences


def test_the_decoding_loop_grows_its_ids_for_constant_limits_in_a_graph():
    """Shape inference evaluates constants, and the shapes still grow."""
    graph = tf.function(lambda: in_a_graph.python_function(tf.constant([2, 3])))
    assert_array_equal(graph()[0], expected([2, 3]))
