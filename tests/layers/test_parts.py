"""Compares the parts of a layer with NumPy and Keras, and tests masks."""

import keras
import numpy as np
import numpy_transformer as numpy_version
import oracle
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer import (
    CausalSelfAttention,
    CrossAttention,
    GlobalSelfAttention,
    MultiHeadAttention,
    PositionalEmbedding,
    positional_encoding,
)
from tfxformer.layers import scaled_dot_product_attention
from tfxformer.layers.kernels import LayerNorm

# Keras warns with this text when a layer drops a mask.
pytestmark = pytest.mark.filterwarnings("error:.*destroy the mask information")

RNG = np.random.default_rng(0)
HEADS, KEY_DIM = 3, 5  # their product is not d_model
X = RNG.normal(size=(2, 4, 16)).astype("float32")
CONTEXT = RNG.normal(size=(2, 6, 16)).astype("float32")
IDS = np.array([[7, 8, 3, 0, 0], [9, 4, 5, 6, 3]])
norms = pytest.mark.parametrize("norm", ["post", "pre"])


def make(kind, **options):
    layer = kind(num_heads=HEADS, key_dim=KEY_DIM, **options)
    layer.build((None, None, 16))
    return oracle.randomise(layer)


@pytest.mark.parametrize("target", [2, 20], ids=["few rows", "many rows"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_attention_agrees_with_numpy(dtype, target):
    """Masked weights are exactly 0, also in a row without a visible key."""
    rng = np.random.default_rng(0)
    shapes = (2, HEADS, target, 4), (2, HEADS, 7, 4), (2, HEADS, 7, 4)
    # Numbers that bfloat16 holds exactly, so that only the computation rounds.
    tensors = [
        np.asarray(tf.cast(rng.normal(size=shape), "bfloat16"), "float32")
        for shape in shapes
    ]
    mask = rng.random((2, HEADS, target, 7)) < 0.5
    mask[0, 0, 0] = False
    tolerance = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}[dtype]
    for some_mask in (mask, None):
        actual = scaled_dot_product_attention(
            *(tf.cast(x, dtype) for x in tensors), some_mask
        )
        assert actual[0].dtype == actual[1].dtype == dtype
        output, weights = (tf.cast(x, "float32").numpy() for x in actual)
        expected = numpy_version.attention(*tensors, some_mask)
        assert_allclose(output, expected[0], atol=tolerance)
        assert_allclose(weights, expected[1], atol=tolerance)
        visible = np.ones_like(mask) if some_mask is None else some_mask
        assert (weights[~visible] == 0).all()


def masked_keras_tensor():
    """Embeddings with a Keras mask, and the same numbers without one."""
    layer = PositionalEmbedding(20, 16)
    layer.build((None, None))
    x = oracle.randomise(layer)(IDS)
    assert_array_equal(x._keras_mask, IDS != 0)
    return x, np.asarray(x)


@norms
@pytest.mark.parametrize("kind", [GlobalSelfAttention, CausalSelfAttention])
def test_self_attention_applies_and_passes_on_the_keras_mask_of_its_input(kind, norm):
    layer, (x, plain) = make(kind, norm=norm), masked_keras_tensor()
    output = layer(x)
    assert_array_equal(output, layer(plain, mask=IDS != 0))
    assert_array_equal(output._keras_mask, IDS != 0)
    everything = np.ones(IDS.shape, bool)  # explicit masks have priority
    assert_array_equal(layer(x, mask=everything), layer(plain, mask=everything))


def test_cross_attention_applies_the_context_s_keras_mask_and_passes_on_that_of_x():
    layer, (context, plain) = make(CrossAttention), masked_keras_tensor()
    output = layer(x=X, context=context)
    assert (layer.last_attn_scores.numpy()[0, :, :, 3:] == 0).all()
    assert_array_equal(output, layer(X, plain, context_mask=IDS != 0))
    # The output has the positions of x, so it keeps the mask of x.
    assert_array_equal(layer(context, X)._keras_mask, IDS != 0)


def test_multi_head_attention_honours_the_keras_mask_of_its_keys():
    layer, (context, plain) = make(MultiHeadAttention), masked_keras_tensor()
    expected = layer(X, plain, mask=(IDS != 0)[:, None, None, :])
    assert_allclose(layer(X, context), expected, atol=1e-6)


def test_last_attn_scores_keeps_the_weights_of_the_last_eager_call():
    layer = make(CrossAttention, dropout=0.5)
    assert layer.last_attn_scores is None
    layer(X, CONTEXT, training=True)
    kept = layer.last_attn_scores.numpy()
    # The scores are the weights before dropout.
    assert_allclose(kept.sum(-1), 1, rtol=1e-5)
    tf.function(lambda: layer(X, CONTEXT[:, :2]))()
    layer(keras.Input((None, 16)), keras.Input((None, 16)))
    assert_array_equal(layer.last_attn_scores.numpy(), kept)


@pytest.mark.parametrize(
    "kind", [GlobalSelfAttention, CausalSelfAttention, CrossAttention]
)
def test_dropout_drops_a_sublayer_s_output_and_not_its_residual(kind):
    layer = make(kind, dropout=0.9, attention_dropout=0.0, norm="pre")
    args = (X, CONTEXT) if kind is CrossAttention else (X,)
    kept = np.asarray(layer(*args, training=True)) == X
    assert kept.mean() > 0.7  # where dropout takes the sublayer's output away


@pytest.mark.parametrize(("length", "depth"), [(0, 4), (1, 1), (300, 65), (2048, 16)])
def test_positional_encoding_agrees_with_numpy(length, depth):
    encoding = positional_encoding(length, depth)
    expected = numpy_version.positional_encoding(length, depth)
    assert encoding.dtype == np.float32
    assert_allclose(encoding, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "options", [{"center": False}, {"scale": False}, {"axis": 1}, {"axis": [1, 2]}]
)
def test_layer_norm_accepts_the_arguments_of_keras_layer_normalization(options):
    ours, kerass = LayerNorm(**options), keras.layers.LayerNormalization(**options)
    assert_allclose(ours(X, training=True), kerass(X), atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_layer_norm_and_its_gradients_equal_those_of_keras(dtype):
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
