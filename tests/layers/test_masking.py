"""Masks: True means "may be looked at"."""

import numpy as np
import numpy_transformer as numpy_version
import tensorflow as tf
from numpy.testing import assert_array_equal

from tfxformer.layers import look_ahead_mask, padding_mask
from tfxformer.layers.masking import key_mask

IDS = np.array([[5, 9, 0, 0], [0, 0, 0, 0], [7, 0, 8, 1]])


def test_padding_is_id_0_and_nothing_else():
    mask = np.asarray(padding_mask(IDS))
    assert mask.dtype == bool
    assert_array_equal(mask, IDS != 0)


def test_look_ahead_mask_is_the_lower_triangle():
    for length in (1, 2, 5):
        mask = np.asarray(look_ahead_mask(length))
        assert mask.dtype == bool
        assert_array_equal(mask, numpy_version.causal_mask(length))


def test_look_ahead_mask_of_a_length_that_is_a_tensor():
    traced = tf.function(look_ahead_mask, [tf.TensorSpec([], tf.int32)])
    assert_array_equal(traced(4), numpy_version.causal_mask(4))


def test_key_mask_is_the_same_for_each_head_and_query():
    mask = np.asarray(key_mask(IDS != 0))
    assert mask.shape == (3, 1, 1, 4)
    assert_array_equal(mask, numpy_version.key_mask(IDS != 0))
    assert_array_equal(key_mask((IDS != 0).astype("float32")), mask)
    assert key_mask(None) is None
