"""Loops and growing tensors, with a step that only counts."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops
from numpy.testing import assert_array_equal

from tfxformer.decoding.history import Fixed, Growing


def count_up_to(history, limits, seen=None):
    """Each sentence writes 10 * its limit + position, until its limit is reached."""
    limits = ops.convert_to_tensor(limits, "int32")

    def step(position, limits, state):
        ids, count, going = state
        if seen is not None:
            seen.append(int(ops.shape(limits)[0]))
        new = ops.where(going, 10 * limits + position, 0)
        ids = history.append(ids, new[:, None], position, axis=1)
        count = count + ops.cast(going, "int32")
        return ids, count, count < limits

    def results(state):
        ids, count, _ = state
        return ids, count[:, None]

    start = (
        history.empty((ops.shape(limits)[0], None), "int32"),
        ops.zeros_like(limits),
        limits > 0,
    )
    return history.repeat(step, lambda state: state[2], results, limits, start)


def expected(limits, width):
    ids = np.zeros((len(limits), width), np.int32)
    for row, limit in zip(ids, limits, strict=True):
        row[:limit] = 10 * limit + np.arange(limit)
    return ids


in_a_graph = tf.function(
    lambda limits: count_up_to(Growing(ops.max(limits, initial=0)), limits),
    input_signature=[tf.TensorSpec([None], tf.int32)],
)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 7), max_size=9))
def test_each_sentence_ends_for_itself(limits):
    ids, count = in_a_graph(np.array(limits, "int32"))
    assert_array_equal(ids, expected(limits, max(limits, default=0)))
    assert_array_equal(count[:, 0], limits)


@pytest.mark.parametrize("limits", [[], [0], [0, 0], [3], [5, 0, 2, 2, 1, 4, 0, 5]])
def test_growing_and_fixed_agree_eagerly(limits):
    most = max(limits, default=0)
    for history, width in ((Growing(np.int32(most)), most), (Fixed(7), 7)):
        ids, count = count_up_to(history, np.array(limits, "int32"))
        assert_array_equal(ids, expected(limits, width))
        assert_array_equal(count[:, 0], limits)


def test_a_quarter_that_has_ended_leaves_the_batch():
    seen = []
    count_up_to(Growing(np.int32(9)), [1, 2, 2, 3, 6, 9, 9, 9], seen)
    # One of 8 that has ended stays; 3 of 8 leave; 1 of 5 stays, and 2 leave.
    assert seen == [8, 8, 5, 5, 5, 5, 3, 3, 3]
    seen.clear()
    count_up_to(Growing(np.int32(2)), [0, 0, 0, 2], seen)
    # A step is taken whatever the number that had ended before the first.
    assert seen == [4, 1]


def test_fixed_leaves_all_but_a_quarter_once_and_stops_when_all_have_ended():
    seen = []
    limits = [1, 5, 1, 2, 1, 3, 2, 1]
    ids, count = count_up_to(Fixed(50), limits, seen)
    assert seen == [8, 8, 2, 2, 2]
    assert_array_equal(ids, expected(limits, 50))
    assert_array_equal(count[:, 0], limits)


def test_fixed_stops_where_there_is_no_more_room():
    ids, _ = count_up_to(Fixed(2), [5, 1])
    assert_array_equal(ids, [[50, 51], [10, 0]])


def test_a_batch_of_constants():
    """Shape inference evaluates what is made of them, and the shapes still grow."""
    graph = tf.function(lambda: in_a_graph.python_function(tf.constant([2, 3])))
    assert_array_equal(graph()[0], expected([2, 3], 3))


def test_append_and_what_is_not_written_yet():
    growing, fixed = Growing(np.int32(4)), Fixed(4)
    new = np.arange(1, 7, dtype="float32").reshape(2, 1, 3)
    small = growing.empty((2, None, 3), "float32")
    large = fixed.empty((2, None, 3), "float32")
    assert small.shape == (2, 0, 3) and large.shape == (2, 4, 3)
    for position in range(2):
        small = growing.append(small, new + position, position, axis=1)
        large = fixed.append(large, new + position, position, axis=1)
    assert_array_equal(small, np.concatenate([new, new + 1], axis=1))
    assert_array_equal(large[:, :2], small)
    assert_array_equal(large[:, 2:], 0)
    assert growing.unwritten(1, "float32") is None
    assert_array_equal(np.asarray(fixed.unwritten(1, "float32")) < -1e4, [0, 0, 1, 1])
    assert np.isfinite(fixed.unwritten(1, "float16")).all()
