"""Add & Norm and the feed-forward network."""

import numpy as np
import numpy_transformer as numpy_version
import oracle
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer import FeedForward
from tfxformer.layers import AddAndNorm

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 5, 16)).astype("float32")
Y = RNG.normal(size=(2, 5, 16)).astype("float32")


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_around_any_sublayer(norm):
    layer = AddAndNorm(0.1, norm)
    layer.build(X.shape)
    oracle.randomise(layer)
    weights = oracle.norm_weights(layer.layernorm)
    expected = numpy_version.residual(
        X, lambda x: np.tanh(3 * x) + 1, weights, norm, numpy_version.EPSILON
    )
    y = np.tanh(3 * np.asarray(layer.before(X))) + 1
    assert_allclose(layer(X, y), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_feed_forward(norm):
    layer = FeedForward(16, 32, norm=norm)
    layer.build(X.shape)
    oracle.randomise(layer)
    weights = oracle.feed_forward_weights(layer)
    expected = numpy_version.residual(
        X,
        lambda x: numpy_version.feed_forward(x, **weights),
        oracle.norm_weights(layer.add_and_norm.layernorm),
        norm,
        numpy_version.EPSILON,
    )
    assert_allclose(layer(X), expected, rtol=1e-5, atol=1e-5)


def test_dropout_is_of_the_sublayers_output_and_in_training_only():
    layer = AddAndNorm(0.999999, "pre")
    assert_allclose(layer(X, Y), X + Y, rtol=1e-6)
    assert_array_equal(layer(X, Y, training=True), X)


@pytest.mark.parametrize("make", [AddAndNorm, lambda **k: FeedForward(16, 32, **k)])
def test_unknown_norm(make):
    with pytest.raises(ValueError, match="'post' or 'pre', not 'middle'"):
        make(norm="middle")
