"""The learning rate."""

import keras
import numpy as np
import numpy_transformer as numpy_version
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tfxformer import CustomSchedule


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 2048), st.integers(1, 20_000))
def test_agrees_with_numpy(step, d_model, warmup_steps):
    """Keras counts steps from 0, the paper from 1."""
    schedule = CustomSchedule(d_model, warmup_steps)
    expected = numpy_version.learning_rate(step + 1, d_model, warmup_steps)
    assert_allclose(schedule(step), expected, rtol=1e-5)


def test_up_and_down():
    schedule = CustomSchedule(np.int32(512))
    rates = schedule(tf.range(40_000, dtype=tf.float32)).numpy()
    assert rates.argmax() == 4000 - 1
    assert_allclose(rates.max(), (512 * 4000) ** -0.5, rtol=1e-5)
    assert (rates > 0).all()
    assert_allclose(rates[:4000], rates[0] * np.arange(1, 4001), rtol=1e-5)
    # Four times the step, half the rate.
    assert_allclose(rates[4 * 4500 - 1], rates[4500 - 1] / 2, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_steps_of_any_type(dtype):
    rate = CustomSchedule(128, 100)(tf.constant(7, dtype))
    assert rate.dtype == "float32"
    assert_allclose(rate, numpy_version.learning_rate(8, 128, 100), rtol=1e-6)


def test_the_optimizer_follows_it():
    weight = keras.Variable(0.0)
    schedule = CustomSchedule(16, 3)
    optimizer = keras.optimizers.Adam(schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9)
    value = 0.0
    for step in range(1, 8):
        optimizer.apply([tf.constant(1.0)], [weight])
        # With a gradient that never changes, Adam moves by the learning rate.
        rate = numpy_version.learning_rate(step, 16, 3)
        assert_allclose(value - float(weight), rate, rtol=1e-3)
        value = float(weight)


@pytest.mark.parametrize("integer", [int, np.int32, tf.constant])
def test_config_round_trip(integer):
    schedule = CustomSchedule(d_model=integer(64), warmup_steps=integer(10))
    config = {"d_model": 64, "warmup_steps": 10}
    assert schedule.get_config() == config
    optimizer = keras.optimizers.Adam(schedule)
    written = keras.saving.serialize_keras_object(optimizer)
    copy = keras.saving.deserialize_keras_object(written)._learning_rate
    assert type(copy) is CustomSchedule and copy.get_config() == config
    assert CustomSchedule.from_config(config)(5) == schedule(5)
