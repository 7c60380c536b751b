"""Dropout whose draws a step can fix."""

import keras
import numpy as np
import oracle
import pytest
import tensorflow as tf
from keras import ops
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer.layers.dropout import Dropout, drawn_from

X = np.random.default_rng(0).normal(1, 0.1, (40, 50)).astype("float32")


def dropped(layer, seed=None, x=X):
    if seed is None:
        return ops.convert_to_numpy(layer(x, training=True))
    with drawn_from(seed):
        return ops.convert_to_numpy(layer(x, training=True))


def test_what_is_left_has_the_same_mean():
    for rate in (0.1, 0.5):
        for seed in (None, 3):
            y = dropped(Dropout(rate, seed=1), seed)
            # Within a step the rate is a multiple of 2^-16.
            assert_allclose(y[y != 0], X[y != 0] / (1 - rate), rtol=2e-5)
            # Of 2,000 numbers: four deviations.
            assert abs((y == 0).mean() - rate) < 4 * (rate * (1 - rate) / X.size) ** 0.5


def test_the_step_and_the_layer_decide_what_is_dropped():
    first, second = Dropout(0.5, seed=1), Dropout(0.5, seed=2)
    assert_array_equal(dropped(first, 7), dropped(first, 7))
    assert_array_equal(dropped(first, 7), dropped(Dropout(0.5, seed=1), 7))
    patterns = [
        dropped(layer, seed) == 0 for layer in (first, second) for seed in (7, 8)
    ]
    for i, one in enumerate(patterns):
        for other in patterns[:i]:
            # Two that have nothing to do with one another agree in every second place.
            assert abs((one == other).mean() - 0.5) < 0.05


def test_neither_seed_may_stand_for_the_other():
    """A layer's seed and a step's add up to the same as another's: no matter."""
    assert (dropped(Dropout(0.5, seed=1), 2) != dropped(Dropout(0.5, seed=2), 1)).any()


def test_outside_of_a_step_it_is_kerass_own():
    layer, kerass = Dropout(0.5, seed=1), keras.layers.Dropout(0.5, seed=1)
    first = dropped(layer)
    assert_array_equal(first, dropped(kerass))
    second = dropped(layer)
    assert (first != second).any()
    dropped(layer, 7)  # moves nothing on
    third = dropped(layer)
    dropped(kerass)
    assert_array_equal(third, dropped(kerass))


def test_a_step_ends_where_it_ends():
    layer = Dropout(0.5, seed=1)
    with pytest.raises(ZeroDivisionError), drawn_from(7):
        1 / 0  # noqa: B018
    assert (dropped(layer) != dropped(layer)).any()
    with drawn_from(7):
        inner = dropped(layer, 8)
        outer = ops.convert_to_numpy(layer(X, training=True))
    assert_array_equal(inner, dropped(layer, 8))
    assert_array_equal(outer, dropped(layer, 7))


def test_nothing_is_dropped_where_nothing_is_to_be():
    with drawn_from(7):
        assert_array_equal(Dropout(0.5)(X, training=False), X)
        assert_array_equal(Dropout(0.5)(X), X)
        assert_array_equal(Dropout(0.0)(X, training=True), X)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_one_graph_takes_all_seeds(dtype):
    layer = Dropout(0.5, seed=1, dtype=dtype)

    def call(seed, x):
        with drawn_from(seed):
            return layer(x, training=True)

    graph, x = tf.function(call), ops.cast(X, dtype)
    for seed in (0, 7, 2**31 - 1):
        y = graph(ops.convert_to_tensor(seed, "int32"), x)
        assert keras.backend.standardize_dtype(y.dtype) == dtype
        y, expected = (
            ops.convert_to_numpy(ops.cast(z, "float32")) for z in (y, call(seed, x))
        )
        assert_allclose(y, expected, rtol=1e-2)
        assert_array_equal(y == 0, expected == 0)


def test_a_config_round_trip_keeps_the_draws():
    layer = Dropout(0.5, name="mine")
    written = keras.saving.serialize_keras_object(layer)
    copy = keras.saving.deserialize_keras_object(written)
    assert type(copy) is Dropout and copy.get_config() == layer.get_config()
    assert_array_equal(dropped(copy, 7), dropped(layer, 7))


def test_the_seed_of_all_random_numbers_is_that_of_the_layers():
    def seeds(seed):
        keras.utils.set_random_seed(seed)
        return [Dropout(0.5).seed for _ in range(20)]

    assert seeds(3) == seeds(3) != seeds(4)
    assert len({*seeds(3)}) == 20


def test_no_two_layers_of_a_model_drop_the_same():
    model = oracle.tiny_transformer(activation_dropout=0.1)
    found = [x for x in model._flatten_layers() if isinstance(x, keras.layers.Dropout)]
    # Of each encoder layer 4, of each decoder layer 6, and of both embeddings.
    assert len(found) == 2 * 4 + 2 * 6 + 2
    assert all(type(layer) is Dropout for layer in found)
    assert len({layer.seed for layer in found}) == len(found)
