"""Positions, normalisation, and the layers of encoder and decoder."""

import keras
import numpy as np
import numpy_transformer as numpy_version
import oracle
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    PositionalEmbedding,
    positional_encoding,
)
from tfxformer.layers import AddAndNorm
from tfxformer.layers.kernels import LayerNorm

RNG = np.random.default_rng(0)
IDS = np.array([[7, 8, 3, 0, 0], [9, 4, 5, 6, 3]])
X = RNG.normal(size=(2, 3, 16)).astype("float32")
CONTEXT = RNG.normal(size=(2, 5, 16)).astype("float32")
norms = pytest.mark.parametrize("norm", ["post", "pre"])


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
    with pytest.raises(ValueError, match=r"6 positions.*max_length=5"):
        layer(np.ones((1, 6), int))


# --- Normalisation, and what is around every sublayer -------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_layer_norm_and_its_gradients_are_kerass(dtype):
    import tensorflow as tf

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


@norms
def test_layers_agree_with_numpy(norm):
    options = {"d_model": 16, "num_heads": 4, "dff": 32, "norm": norm}
    x_mask, mask = np.array([[1, 1, 0], [1, 1, 1]], bool), IDS != 0
    encoder, decoder = EncoderLayer(**options), DecoderLayer(**options)
    encoder.build((None, None, 16))
    decoder.build((None, None, 16), (None, None, 16))
    expected = numpy_version.encoder_layer(
        CONTEXT,
        oracle.encoder_layer_weights(oracle.randomise(encoder)),
        4,
        numpy_version.key_mask(mask),
        norm,
    )
    close(encoder(CONTEXT, mask=mask), expected)
    expected, scores = numpy_version.decoder_layer(
        X,
        CONTEXT,
        oracle.decoder_layer_weights(oracle.randomise(decoder)),
        4,
        numpy_version.causal_mask(3) & numpy_version.key_mask(x_mask),
        numpy_version.key_mask(mask),
        norm,
    )
    close(decoder(X, CONTEXT, x_mask=x_mask, context_mask=mask), expected)
    close(decoder.last_attn_scores, scores)


def test_what_cannot_be():
    for make in (AddAndNorm, lambda **k: FeedForward(16, 32, **k)):
        with pytest.raises(ValueError, match="'post' or 'pre', not 'middle'"):
            make(norm="middle")
    for kind in (EncoderLayer, DecoderLayer):
        with pytest.raises(ValueError, match=r"d_model=16 .* num_heads=3"):
            kind(d_model=16, num_heads=3, dff=32)
