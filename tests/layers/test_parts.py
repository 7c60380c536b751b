"""Positions and normalisation; the layers made of them are in `test_model`."""

import keras
import numpy as np
import numpy_transformer as numpy_version
import oracle
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer import PositionalEmbedding, positional_encoding
from tfxformer.layers.kernels import LayerNorm

RNG = np.random.default_rng(0)
IDS = np.array([[7, 8, 3, 0, 0], [9, 4, 5, 6, 3]])
X = RNG.normal(size=(2, 3, 16)).astype("float32")


def close(actual, expected):
    assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


# --- Positions ----------------------------------------------------------------------


@pytest.mark.parametrize(("length", "depth"), [(0, 4), (1, 1), (300, 65), (2048, 16)])
def test_encoding_agrees_with_numpy(length, depth):
    encoding = positional_encoding(length, depth)
    expected = numpy_version.positional_encoding(length, depth)
    assert encoding.dtype == np.float32
    assert_allclose(encoding, expected, rtol=0, atol=1e-6)
    assert_allclose(
        positional_encoding(1, depth, length)[0],
        np.asarray(positional_encoding(length + 1, depth))[-1],
        atol=1e-6,
    )


def test_a_shift_is_linear():
    """One matrix, the same for all positions, turns PE(pos) into PE(pos + k)."""
    encoding = np.asarray(positional_encoding(300, 16), "float64")
    matrix, *_ = np.linalg.lstsq(encoding[:-7], encoding[7:], rcond=None)
    assert_allclose(encoding[:-7] @ matrix, encoding[7:], atol=1e-5)


@pytest.mark.parametrize("learned", [False, True])
def test_positional_embedding(learned):
    layer = PositionalEmbedding(20, 16, max_length=5, learned_positions=learned)
    layer.build((None, None))
    oracle.randomise(layer)
    weights = {"embedding": np.asarray(layer.embedding.embeddings)}
    if learned:
        weights["positions"] = np.asarray(layer.positions)
    expected = numpy_version.embed(IDS, weights)
    output = layer(IDS)
    close(output, expected)
    assert_array_equal(output._keras_mask, IDS != 0)
    close(layer.step(IDS[:, 3], 3), expected[:, 3])


# --- Normalisation, and what is around every sublayer -------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_layer_norm_and_its_gradients_are_kerass(dtype):
    ours, kerass = (
        kind(epsilon=1e-6, dtype=dtype)
        for kind in (LayerNorm, keras.layers.LayerNormalization)
    )
    for layer in (ours, kerass):
        layer.build(X.shape)
        oracle.randomise(layer)
    x, found = tf.cast(X * 3 + 1, dtype), []
    for layer in (ours, kerass):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True) if layer is ours else layer(x)
            loss = tf.reduce_sum(tf.cast(y, "float32") ** 3)
        variables = [x, *(v.value for v in layer.trainable_variables)]
        found.append([y, *tape.gradient(loss, variables)])
    tolerance = 1e-4 if dtype == "float32" else 0.1
    for actual, expected in zip(*found, strict=True):
        actual, expected = (tf.cast(x, "float32").numpy() for x in (actual, expected))
        assert_allclose(actual, expected, atol=tolerance * np.abs(expected).max())
    assert_allclose(
        tf.cast(ours(x), "float32"), tf.cast(found[0][0], "float32"), atol=1e-6
    )
