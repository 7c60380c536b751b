"""Attention and its three kinds: against NumPy, and what masks promise."""

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
)
from tfxformer.layers import look_ahead_mask, padding_mask, scaled_dot_product_attention

# What Keras says where a layer loses a mask.
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


def close(actual, expected):
    assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_masks():
    assert_array_equal(padding_mask(IDS), IDS != 0)
    assert_array_equal(look_ahead_mask(4)[0, 0], np.tri(4, dtype=bool))


@pytest.mark.parametrize("target", [2, 20], ids=["few rows", "many rows"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_attention_agrees_with_numpy(dtype, target):
    """Rows sum to 1, what is masked is exactly 0, and so is a row without a token."""
    shapes = (2, HEADS, target, 4), (2, HEADS, 7, 4), (2, HEADS, 7, 4)
    tensors = [RNG.normal(0, 3, shape).astype("float32") for shape in shapes]
    mask = RNG.random((2, HEADS, target, 7)) < 0.5
    mask[0, 0, 0] = False
    tolerance = 1e-5 if dtype == "float32" else 0.1
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


def expected_residual(layer, x, sublayer):
    return numpy_version.residual(
        x,
        lambda y: sublayer(y, oracle.attention_weights(layer.mha)),
        oracle.norm_weights(layer.add_and_norm.layernorm),
        layer.get_config()["norm"],
    )


@norms
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", [GlobalSelfAttention, CausalSelfAttention])
def test_self_attention(kind, masked, norm):
    layer = make(kind, norm=norm)
    mask = IDS[:, 1:] != 0 if masked else None
    visible = numpy_version.key_mask(np.ones((2, 4)) if mask is None else mask)
    if kind is CausalSelfAttention:
        visible = visible & numpy_version.causal_mask(4)

    def sublayer(y, weights):
        return numpy_version.multi_head_attention(y, y, weights, HEADS, visible)[0]

    close(layer(X, mask=mask), expected_residual(layer, X, sublayer))


@norms
def test_cross_attention(norm):
    layer, mask = make(CrossAttention, norm=norm), np.pad(IDS != 0, [(0, 0), (0, 1)])
    scores = []

    def sublayer(y, weights):
        output, attention = numpy_version.multi_head_attention(
            y, CONTEXT, weights, HEADS, numpy_version.key_mask(mask)
        )
        scores.append(attention)
        return output

    output, weights = layer(X, CONTEXT, mask, return_attention_scores=True)
    close(output, expected_residual(layer, X, sublayer))
    close(weights, scores[0])
    assert_array_equal(layer.last_attn_scores, weights)


# --- Masks that Keras carries -------------------------------------------------------


def masked_keras_tensor():
    """Embeddings with a Keras mask, and the same numbers without one."""
    layer = PositionalEmbedding(20, 16)
    layer.build((None, None))
    x = oracle.randomise(layer)(IDS)
    assert_array_equal(x._keras_mask, IDS != 0)
    return x, np.asarray(x)


@norms
@pytest.mark.parametrize("kind", [GlobalSelfAttention, CausalSelfAttention])
def test_keras_mask_of_self_attention(kind, norm):
    layer, (x, plain) = make(kind, norm=norm), masked_keras_tensor()
    output = layer(x)
    assert_array_equal(output, layer(plain, mask=IDS != 0))
    assert_array_equal(output._keras_mask, IDS != 0)
    everything = np.ones(IDS.shape, bool)  # explicit masks win
    assert_array_equal(layer(x, mask=everything), layer(plain, mask=everything))


def test_keras_mask_of_cross_attention():
    layer, (context, plain) = make(CrossAttention), masked_keras_tensor()
    output = layer(x=X, context=context)
    assert (layer.last_attn_scores.numpy()[0, :, :, 3:] == 0).all()
    assert_array_equal(output, layer(X, plain, context_mask=IDS != 0))
    # The output's positions are those of x: the source's mask is not its own.
    assert_array_equal(layer(context, X)._keras_mask, IDS != 0)


def test_multi_head_attention_honours_the_keras_mask_of_its_keys():
    layer, (context, plain) = make(MultiHeadAttention), masked_keras_tensor()
    expected = layer(X, plain, mask=(IDS != 0)[:, None, None, :])
    assert_allclose(layer(X, context), expected, atol=1e-6)


# --- Rows without a token, and the future -------------------------------------------


@norms
@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_a_sequence_without_a_token_gives_no_nan(norm, policy):
    mask = np.array([[0] * 6, [1] * 6], bool)
    for kind in (GlobalSelfAttention, CausalSelfAttention):
        output = make(kind, norm=norm, dtype=policy)(CONTEXT, mask=mask)
        assert np.isfinite(tf.cast(output, "float32")).all()
    layer = make(CrossAttention, norm=norm, dtype=policy)
    output = layer(X, CONTEXT, context_mask=mask)
    assert np.isfinite(tf.cast(output, "float32")).all()
    assert (tf.cast(layer.last_attn_scores, "float32").numpy()[0] == 0).all()


@pytest.mark.filterwarnings("error")
def test_a_sequence_of_one_token_is_nothing_to_warn_of():
    """Decoding starts with one; Keras's softmax asks whether that is meant."""
    make(CausalSelfAttention)(X[:, :1])
    make(CrossAttention)(X.repeat(5, axis=1), CONTEXT[:, :1])


def test_causal_attention_does_not_see_the_future():
    layer, x = make(CausalSelfAttention), tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = layer(x, mask=np.ones((2, 4), bool))[:, 1] * RNG.normal(size=16)
    gradient = tape.gradient(output, x).numpy()
    assert (gradient[:, 2:] == 0).all()
    assert (np.abs(gradient[:, :2]).max(-1) > 1e-6).all()


def test_scores_are_kept_from_calls_that_are_not_traced():
    layer = make(CrossAttention, dropout=0.5)
    assert layer.last_attn_scores is None
    layer(X, CONTEXT, training=True)
    kept = layer.last_attn_scores.numpy()
    # What is shown is the attention, not what dropout left of it.
    assert_allclose(kept.sum(-1), 1, rtol=1e-5)
    tf.function(lambda: layer(X, CONTEXT[:, :2]))()
    layer(keras.Input((None, 16)), keras.Input((None, 16)))
    assert_array_equal(layer.last_attn_scores.numpy(), kept)
