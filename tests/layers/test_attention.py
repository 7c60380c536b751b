"""Attention and its three kinds: against NumPy, and what masks promise."""

import keras
import numpy as np
import numpy_transformer as numpy_version
import oracle
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer import (
    CausalSelfAttention,
    CrossAttention,
    GlobalSelfAttention,
    MultiHeadAttention,
    PositionalEmbedding,
)
from tfxformer.layers import scaled_dot_product_attention

# What Keras says where a layer loses a mask.
pytestmark = pytest.mark.filterwarnings("error:.*destroy the mask information")

RNG = np.random.default_rng(0)
HEADS, KEY_DIM = 3, 5  # their product is not d_model
X = RNG.normal(size=(2, 4, 16)).astype("float32")
CONTEXT = RNG.normal(size=(2, 6, 16)).astype("float32")
X_MASK = np.array([[1, 1, 0, 0], [1, 0, 1, 1]], bool)
CONTEXT_MASK = np.array([[1, 1, 1, 1, 0, 0], [0, 1, 1, 0, 1, 0]], bool)


@pytest.fixture
def policy(request):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(request.param)
    yield request.param
    keras.config.set_dtype_policy(before)


all_policies = pytest.mark.parametrize(
    "policy",
    ["float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16"],
    indirect=True,
)


def make(kind, **options):
    layer = kind(num_heads=HEADS, key_dim=KEY_DIM, **options)
    shapes = [(None, None, 16)] * (1 if "SelfAttention" in kind.__name__ else 2)
    layer.build(*shapes)
    return oracle.randomise(layer)


# --- Against NumPy ------------------------------------------------------------------


@st.composite
def attentions(draw):
    """Queries, keys and values of any size, with any mask."""
    batch, heads, target, source, depth = (draw(st.integers(1, 4)) for _ in range(5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([1.0, 10.0]))
    mask = rng.random((batch, heads, target, source)) < draw(st.floats(0, 1))
    return (
        (scale * rng.normal(size=(batch, heads, target, depth))).astype("float32"),
        rng.normal(size=(batch, heads, source, depth)).astype("float32"),
        rng.normal(size=(batch, heads, source, depth)).astype("float32"),
        mask,
    )


@settings(max_examples=40, deadline=None)
@given(attentions())
def test_attention_agrees_with_numpy(case):
    *tensors, mask = case
    for some_mask in (mask, None):
        actual = scaled_dot_product_attention(*tensors, some_mask)
        expected = numpy_version.attention(*tensors, some_mask)
        assert_allclose(actual[0], expected[0], rtol=1e-5, atol=1e-5)
        assert_allclose(actual[1], expected[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@settings(max_examples=40, deadline=None)
@given(case=attentions())
def test_rows_sum_to_1_and_what_is_masked_is_exactly_0(dtype, case):
    *tensors, mask = case
    output, weights = scaled_dot_product_attention(
        *(tf.cast(x, dtype) for x in tensors), mask
    )
    assert output.dtype == weights.dtype == dtype
    output, weights = (tf.cast(x, "float32").numpy() for x in (output, weights))
    assert np.isfinite(output).all()
    assert (weights[~mask] == 0).all()
    tolerance = 1e-5 if dtype == "float32" else 2e-2
    assert_allclose(weights.sum(-1), mask.any(-1), rtol=0, atol=tolerance)
    assert (output[~mask.any(-1)] == 0).all()


@pytest.mark.parametrize(
    "mask",
    [
        None,
        X_MASK[:, None, :, None],
        CONTEXT_MASK[:, None, None, :],
        RNG.random((2, HEADS, 4, 6)) < 0.5,
        np.zeros((1, 1, 1, 1), bool),
    ],
    ids=["none", "by query", "by key", "each", "nothing visible"],
)
def test_multi_head_attention(mask):
    layer = make(MultiHeadAttention)
    weights = oracle.attention_weights(layer)
    expected = numpy_version.multi_head_attention(X, CONTEXT, weights, HEADS, mask)
    actual = layer(X, CONTEXT, mask=mask, return_attention_scores=True)
    assert_allclose(actual[0], expected[0], rtol=1e-5, atol=1e-5)
    assert_allclose(actual[1], expected[1], rtol=1e-5, atol=1e-5)
    assert_array_equal(layer(X, CONTEXT, mask=mask), actual[0])


def expected_residual(layer, norm, x, sublayer):
    mha = oracle.attention_weights(layer.mha)
    return numpy_version.residual(
        x,
        lambda y: sublayer(y, mha),
        oracle.norm_weights(layer.add_and_norm.layernorm),
        norm,
        numpy_version.EPSILON,
    )


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("mask", [None, X_MASK], ids=["no mask", "mask"])
@pytest.mark.parametrize("kind", [GlobalSelfAttention, CausalSelfAttention])
def test_self_attention(kind, mask, norm):
    layer = make(kind, norm=norm)
    visible = numpy_version.key_mask(np.ones((2, 4)) if mask is None else mask)
    if kind is CausalSelfAttention:
        visible = visible & numpy_version.causal_mask(4)
    expected = expected_residual(
        layer,
        norm,
        X,
        lambda y, w: numpy_version.multi_head_attention(y, y, w, HEADS, visible)[0],
    )
    assert_allclose(layer(X, mask=mask), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("mask", [None, CONTEXT_MASK], ids=["no mask", "mask"])
def test_cross_attention(mask, norm):
    layer = make(CrossAttention, norm=norm)
    visible = None if mask is None else numpy_version.key_mask(mask)
    scores = []

    def sublayer(y, w):
        output, weights = numpy_version.multi_head_attention(
            y, CONTEXT, w, HEADS, visible
        )
        scores.append(weights)
        return output

    expected = expected_residual(layer, norm, X, sublayer)
    actual = layer(X, CONTEXT, context_mask=mask)
    assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    assert_allclose(layer.last_attn_scores, scores[0], rtol=1e-5, atol=1e-5)


# --- What masks promise -------------------------------------------------------------


@all_policies
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(
    "kind", [GlobalSelfAttention, CausalSelfAttention, CrossAttention]
)
def test_a_sequence_without_a_token_gives_no_nan(kind, norm, policy):
    layer = make(kind, norm=norm)
    nothing = np.array([[0] * 6, [1] * 6], bool)
    if kind is CrossAttention:
        output = layer(X, CONTEXT, context_mask=nothing)
        weights = tf.cast(layer.last_attn_scores, "float32").numpy()
        assert (weights[0] == 0).all()
        assert_allclose(weights[1].sum(-1), 1, atol=2e-2)
    else:
        output = layer(CONTEXT, mask=nothing)
    assert output.dtype == keras.config.dtype_policy().compute_dtype
    assert np.isfinite(tf.cast(output, "float32")).all()


@pytest.mark.filterwarnings("error")
def test_a_sequence_of_one_token_is_nothing_to_warn_of():
    """Decoding starts with one; Keras's softmax asks whether that is meant."""
    make(CausalSelfAttention)(X[:, :1])
    make(CrossAttention)(X, CONTEXT[:, :1])


def test_no_nan_in_the_gradient_of_a_row_without_a_token():
    x = tf.constant(X)
    layer = make(GlobalSelfAttention)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(layer(x, mask=np.zeros((2, 4), bool)) ** 2)
    assert np.isfinite(tape.gradient(loss, x)).all()


@pytest.mark.parametrize("step", range(4))
def test_causal_attention_does_not_see_the_future(step):
    layer, x = make(CausalSelfAttention), tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = layer(x)[:, step] * RNG.normal(size=16)
    gradient = tape.gradient(output, x).numpy()
    assert (gradient[:, step + 1 :] == 0).all()
    assert (np.abs(gradient[:, : step + 1]).max(-1) > 1e-6).all()


IDS = np.array([[7, 8, 3, 0, 0], [9, 4, 5, 6, 3]])
OTHER_IDS = np.array([[5, 3, 0], [6, 7, 3]])


def embedding():
    layer = PositionalEmbedding(20, 16)
    layer.build((None, None))
    return oracle.randomise(layer)


def masked_keras_tensor():
    """Embeddings with a Keras mask, and the same numbers without one."""
    x = embedding()(IDS)
    assert_array_equal(x._keras_mask, IDS != 0)
    return x, np.asarray(x)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("kind", [GlobalSelfAttention, CausalSelfAttention])
def test_keras_mask_of_self_attention(kind, norm):
    layer = make(kind, norm=norm)
    x, plain = masked_keras_tensor()
    output = layer(x)
    assert_array_equal(output, layer(plain, mask=IDS != 0))
    assert_array_equal(output._keras_mask, IDS != 0)
    if kind is GlobalSelfAttention:
        assert np.abs(output - layer(plain))[0].max() > 0.01
    # Explicit masks win.
    everything = np.ones(IDS.shape, bool)
    assert_array_equal(layer(x, mask=everything), layer(plain, mask=everything))


@pytest.mark.parametrize("keywords", [False, True])
def test_keras_mask_of_cross_attention(keywords):
    layer = make(CrossAttention)
    context, plain = masked_keras_tensor()
    x = embedding()(OTHER_IDS)
    output = layer(x=x, context=context) if keywords else layer(x, context)
    assert (layer.last_attn_scores.numpy()[0, :, :, 3:] == 0).all()
    assert_array_equal(output, layer(np.asarray(x), plain, context_mask=IDS != 0))
    assert_array_equal(output._keras_mask, OTHER_IDS != 0)
    everything = np.ones(IDS.shape, bool)
    assert_array_equal(
        layer(x, context, context_mask=everything), layer(np.asarray(x), plain)
    )


def test_multi_head_attention_honours_the_keras_mask_of_its_keys():
    layer = make(MultiHeadAttention)
    context, plain = masked_keras_tensor()
    expected = layer(X, plain, mask=(IDS != 0)[:, None, None, :])
    assert_allclose(layer(X, context), expected, atol=1e-6)


def test_multi_head_attention_puts_no_mask_of_scores_on_its_output():
    """A Keras mask is (batch, length); one of the scores' shape would break what
    comes next."""
    layer = make(MultiHeadAttention)
    output = layer(X, CONTEXT, mask=CONTEXT_MASK[:, None, None, :])
    mask = getattr(output, "_keras_mask", None)
    assert mask is None or tuple(mask.shape) == (2, 4)
    make(GlobalSelfAttention)(output)


@pytest.mark.parametrize(
    "call",
    [
        lambda: MultiHeadAttention(2, 8)(X, X, mask=X_MASK[:, None, None, :]),
        lambda: GlobalSelfAttention(2, 8)(X, mask=X_MASK),
        lambda: CausalSelfAttention(2, 8)(X, mask=X_MASK),
        lambda: CrossAttention(2, 8)(X, CONTEXT, context_mask=CONTEXT_MASK),
    ],
    ids=["multi-head", "global", "causal", "cross"],
)
def test_an_explicit_mask_may_come_with_the_very_first_call(call):
    assert call().shape == X.shape


@settings(max_examples=10, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    more=st.integers(1, 8),
    norm=st.sampled_from(["post", "pre"]),
)
def test_padding_changes_nothing(lengths, more, norm):
    """Through Keras's own mask, from the embedding on, as in the tutorial."""
    embed = embedding()
    ids = oracle.random_ids(np.random.default_rng(more), lengths, 20)
    padded = np.pad(ids, ((0, 0), (0, more)))
    width = ids.shape[1]
    for kind in (GlobalSelfAttention, CausalSelfAttention):
        layer = make(kind, norm=norm)
        longer = layer(embed(padded))[:, :width]
        assert_allclose(longer, layer(embed(ids)), rtol=0, atol=1e-5)
    layer, x = make(CrossAttention, norm=norm), X[:1].repeat(len(lengths), axis=0)
    longer = layer(x, embed(padded))
    assert_allclose(longer, layer(x, embed(ids)), rtol=0, atol=1e-5)


# --- Scores, kept -------------------------------------------------------------------


def test_scores_are_kept_from_calls_that_are_not_traced():
    layer = make(CrossAttention)
    assert layer.last_attn_scores is None
    layer(X, CONTEXT)
    kept = layer.last_attn_scores.numpy()
    tf.function(lambda: layer(X, CONTEXT[:, :2]))()
    layer(keras.Input((None, 16)), keras.Input((None, 16)))
    assert_array_equal(layer.last_attn_scores.numpy(), kept)
    layer(X, CONTEXT[:, :2])
    assert layer.last_attn_scores.shape == (2, HEADS, 4, 2)


def test_dropout_of_the_weights_is_in_training_only():
    layer = make(CrossAttention, dropout=0.5)
    first, second = layer(X, CONTEXT), layer(X, CONTEXT, training=False)
    assert_array_equal(first, second)
    assert np.abs(layer(X, CONTEXT, training=True) - first).max() > 0.01
    # What is shown is the attention, not what dropout left of it.
    assert_allclose(layer.last_attn_scores.numpy().sum(-1), 1, rtol=1e-5)
