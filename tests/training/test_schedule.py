"""The learning rate."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from tfxformer import CustomSchedule
from tfxformer.config import TrainingConfig
from tfxformer.training.schedule import make_optimizer, make_schedule


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
@pytest.mark.parametrize(("d_model", "warmup"), [(512, 4000), (1, 1), (128, 100)])
def test_custom_schedule_follows_the_formula_of_the_paper(d_model, warmup, dtype):
    """Keras counts steps from 0, the paper from 1; sizes may have any integer type."""
    schedule = CustomSchedule(np.int32(d_model), tf.constant(warmup))
    rates = schedule(tf.range(20_000, dtype=dtype)).numpy()
    n = np.arange(1.0, 10.0)
    expected = d_model**-0.5 * np.minimum(n**-0.5, n * warmup**-1.5)  # section 5.3
    assert rates.dtype == "float32"
    assert_allclose(rates[:9], expected, rtol=1e-5)
    assert rates.argmax() == warmup - 1 and (rates > 0).all()
    assert_allclose(rates.max(), (d_model * warmup) ** -0.5, rtol=1e-5)
    # At four times the step, the rate is half.
    assert_allclose(rates[4 * 4500 - 1], rates[4500 - 1] / 2, rtol=1e-5)


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine"])
def test_inverse_sqrt_and_cosine_schedules_warm_up_and_decay(schedule):
    settings = TrainingConfig(
        schedule=schedule, learning_rate=0.01, warmup_steps=100, steps=1000
    )
    rates = [float(make_schedule(settings, 64)(n)) for n in (49, 99, 400, 1000)]
    assert_allclose(rates[:2], [0.005, 0.01], rtol=0.03)
    assert rates[1] > rates[2] > rates[3]
    assert (rates[3] < 1e-6) == (schedule == "cosine")


def test_custom_schedule_survives_keras_serialization():
    schedule = CustomSchedule(d_model=64, warmup_steps=10)
    written = keras.saving.serialize_keras_object(schedule)
    assert keras.saving.deserialize_keras_object(written)(5) == schedule(5)


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_gradients_are_clipped_to_a_norm(optimizer):
    """A gradient beyond the norm is scaled down to it, over all variables together."""
    momentum = {}
    for norm, clip in ((1000.0, 1.0), (0.5, None)):
        settings = TrainingConfig(optimizer=optimizer, clip_norm=clip)
        made = make_optimizer(settings, 64)
        shapes = (4, 4), (4,)
        variables = [keras.Variable(np.zeros(shape, "float32")) for shape in shapes]
        made.build(variables)
        # Twenty equal components, whose norm is the square root of twenty.
        gradients = [np.full(shape, norm / 20**0.5, "float32") for shape in shapes]
        made.apply([tf.constant(gradient) for gradient in gradients], variables)
        momentum[norm] = made.variables[-2].numpy()  # of the vector
    assert_allclose(momentum[1000.0], momentum[0.5] / 0.5, rtol=1e-5)
