"""Encoder and decoder, and their layers."""

import functools

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
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    PositionalEmbedding,
)

# What Keras says where a layer loses a mask.
pytestmark = pytest.mark.filterwarnings("error:.*destroy the mask information")

TINY, VOCAB = oracle.TINY, 20
HEADS = TINY["num_heads"]
IDS = np.array([[7, 8, 3, 0, 0], [9, 4, 5, 6, 3]])
TARGET = np.array([[2, 8, 0], [2, 4, 5]])
X_MASK, CONTEXT_MASK = TARGET != 0, IDS != 0
RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 16)).astype("float32")
CONTEXT = RNG.normal(size=(2, 5, 16)).astype("float32")

norms = pytest.mark.parametrize("norm", ["post", "pre"])
positions = pytest.mark.parametrize("learned", [False, True], ids=["sines", "learned"])


@functools.cache
def make(kind, **options):
    options |= {name: TINY[name] for name in ("d_model", "num_heads", "dff")}
    if kind in (Encoder, Decoder):
        options |= {"num_layers": 2, "vocab_size": VOCAB}
    layer = kind(**options)
    if kind in (Encoder, Decoder):
        shapes = [(None, None), (None, None, 16)][: 1 + (kind is Decoder)]
    else:
        shapes = [(None, None, 16)] * (1 + (kind is DecoderLayer))
    layer.build(*shapes)
    return oracle.randomise(layer)


@functools.cache
def embedding():
    layer = PositionalEmbedding(VOCAB, 16)
    layer.build((None, None))
    return oracle.randomise(layer, seed=1)


# --- Against NumPy ------------------------------------------------------------------


@norms
@pytest.mark.parametrize("mask", [None, CONTEXT_MASK], ids=["no mask", "mask"])
def test_encoder_layer(norm, mask):
    layer = make(EncoderLayer, norm=norm)
    expected = numpy_version.encoder_layer(
        CONTEXT,
        oracle.encoder_layer_weights(layer),
        HEADS,
        None if mask is None else numpy_version.key_mask(mask),
        norm,
    )
    assert_allclose(layer(CONTEXT, mask=mask), expected, rtol=1e-5, atol=1e-5)


@norms
@pytest.mark.parametrize("masked", [False, True], ids=["no mask", "mask"])
def test_decoder_layer(norm, masked):
    layer = make(DecoderLayer, norm=norm)
    self_mask, cross_mask = numpy_version.causal_mask(3), None
    masks = {}
    if masked:
        masks = {"x_mask": X_MASK, "context_mask": CONTEXT_MASK}
        self_mask = self_mask & numpy_version.key_mask(X_MASK)
        cross_mask = numpy_version.key_mask(CONTEXT_MASK)
    expected, scores = numpy_version.decoder_layer(
        X,
        CONTEXT,
        oracle.decoder_layer_weights(layer),
        HEADS,
        self_mask,
        cross_mask,
        norm,
    )
    actual = layer(X, CONTEXT, **masks)
    assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    assert_allclose(layer.last_attn_scores, scores, rtol=1e-5, atol=1e-5)


@norms
@positions
@pytest.mark.parametrize("mask", [None, RNG.random(IDS.shape) < 0.7])
def test_encoder(norm, learned, mask):
    encoder = make(Encoder, norm=norm, learned_positions=learned, max_length=9)
    weights = oracle.stack_weights(encoder)
    expected = numpy_version.encoder(IDS, weights, HEADS, mask, norm)
    assert_allclose(encoder(IDS, mask=mask), expected, rtol=1e-5, atol=1e-5)


@norms
@positions
@pytest.mark.parametrize("masked", [False, True], ids=["ids", "explicit masks"])
def test_decoder(norm, learned, masked):
    decoder = make(Decoder, norm=norm, learned_positions=learned, max_length=9)
    x_mask = np.array([[1, 1, 1], [1, 0, 1]], bool) if masked else None
    context_mask = CONTEXT_MASK if masked else None
    expected, scores = numpy_version.decoder(
        TARGET,
        CONTEXT,
        oracle.stack_weights(decoder),
        HEADS,
        x_mask,
        context_mask,
        norm,
    )
    actual = decoder(TARGET, CONTEXT, x_mask=x_mask, context_mask=context_mask)
    assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    assert_allclose(decoder.last_attn_scores, scores[-1], rtol=1e-5, atol=1e-5)
    for layer, expected in zip(decoder.dec_layers, scores, strict=True):
        assert_allclose(layer.last_attn_scores, expected, rtol=1e-5, atol=1e-5)


# --- Keras's own mask ---------------------------------------------------------------


@norms
def test_keras_mask_of_the_encoder_layer(norm):
    layer, x = make(EncoderLayer, norm=norm), embedding()(IDS)
    output = layer(x)
    assert_array_equal(output, layer(np.asarray(x), mask=IDS != 0))
    assert_array_equal(output._keras_mask, IDS != 0)
    everything = np.ones(IDS.shape, bool)
    assert_array_equal(layer(x, mask=everything), layer(np.asarray(x)))
    assert np.abs(output - layer(x, mask=everything))[0].max() > 0.01


@norms
@pytest.mark.parametrize("keywords", [False, True])
def test_keras_masks_of_the_decoder_layer(norm, keywords):
    embed, layer = embedding(), make(DecoderLayer, norm=norm)
    # The padding stands first, where the look-ahead mask does not hide it as well.
    x, context = embed(TARGET[:, ::-1]), embed(IDS)
    output = layer(x=x, context=context) if keywords else layer(x, context)
    plain = np.asarray(x), np.asarray(context)
    masks = {"x_mask": X_MASK[:, ::-1], "context_mask": CONTEXT_MASK}
    assert_array_equal(output, layer(*plain, **masks))
    assert_array_equal(output._keras_mask, X_MASK[:, ::-1])
    everything = {
        "x_mask": np.ones(TARGET.shape, bool),
        "context_mask": np.ones(IDS.shape, bool),
    }
    assert_array_equal(layer(x, context, **everything), layer(*plain))
    for name, mask in masks.items():
        other = layer(*plain, **{name: mask})
        assert np.abs(output - other)[0].max() > 1e-3, f"{name} alone is not enough"


@norms
def test_keras_mask_goes_on_from_the_encoder_to_the_decoder(norm):
    encoder, decoder = make(Encoder, norm=norm), make(Decoder, norm=norm)
    context = encoder(IDS)
    assert_array_equal(context._keras_mask, IDS != 0)
    output = decoder(TARGET, context)
    expected = decoder(TARGET, np.asarray(context), context_mask=IDS != 0)
    assert_array_equal(output, expected)
    assert np.abs(output - decoder(TARGET, np.asarray(context)))[0].max() > 1e-3
    everything = np.ones(IDS.shape, bool)
    assert_array_equal(
        decoder(TARGET, context, context_mask=everything),
        decoder(TARGET, np.asarray(context)),
    )


@norms
@pytest.mark.parametrize(
    "mask", [[[1, 1, 1, 1, 1]] * 2, [[0, 1, 1, 0, 0]] * 2], ids=["all", "less"]
)
def test_an_explicit_mask_goes_on_too(norm, mask):
    """What the encoder was told to hide stays hidden from the decoder."""
    encoder, decoder = make(Encoder, norm=norm), make(Decoder, norm=norm)
    mask = np.array(mask, bool)
    context = encoder(IDS, mask=mask)
    expected = decoder(TARGET, np.asarray(context), context_mask=mask)
    assert_array_equal(context._keras_mask, mask)
    assert_array_equal(decoder(TARGET, context), expected)


@norms
def test_an_explicit_mask_goes_on_from_layer_to_layer(norm):
    first = second = make(EncoderLayer, norm=norm)
    x, mask = embedding()(IDS), np.array([[1, 0, 1, 1, 0]] * 2, bool)
    y = first(x, mask=mask)
    assert_array_equal(second(y), second(np.asarray(y), mask=mask))


@pytest.mark.parametrize(
    "call",
    [
        lambda: EncoderLayer(16, 2, 32)(CONTEXT, mask=CONTEXT_MASK),
        lambda: DecoderLayer(16, 2, 32)(
            X, CONTEXT, x_mask=X_MASK, context_mask=CONTEXT_MASK
        ),
        lambda: Encoder(1, 16, 2, 32, VOCAB)(IDS, mask=CONTEXT_MASK),
        lambda: Decoder(1, 16, 2, 32, VOCAB)(
            TARGET, CONTEXT, x_mask=X_MASK, context_mask=CONTEXT_MASK
        ),
    ],
    ids=["encoder layer", "decoder layer", "encoder", "decoder"],
)
def test_an_explicit_mask_may_come_with_the_very_first_call(call):
    assert call().shape[2] == 16


def test_a_functional_model_keeps_the_mask():
    ids = keras.Input((None,), dtype="int32")
    x = FeedForward(16, 32)(make(EncoderLayer)(embedding()(ids)))
    model = keras.Model(ids, x)
    output = model(IDS)
    assert_array_equal(output._keras_mask, IDS != 0)
    assert_allclose(output[:1, :3], model(IDS[:1, :3]), rtol=0, atol=1e-5)


# --- Padding ------------------------------------------------------------------------

padding = given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    more=st.integers(1, 8),
    norm=st.sampled_from(["post", "pre"]),
)


def padded_ids(lengths, more):
    ids = oracle.random_ids(np.random.default_rng(more), lengths, VOCAB)
    return ids, np.pad(ids, ((0, 0), (0, more)))


def assert_same(longer, expected):
    longer = longer[:, : expected.shape[1]]
    assert_allclose(longer, expected, rtol=0, atol=1e-5)


@settings(max_examples=10, deadline=None)
@padding
def test_padding_changes_nothing_in_the_encoder(lengths, more, norm):
    ids, padded = padded_ids(lengths, more)
    encoder, layer = make(Encoder, norm=norm), make(EncoderLayer, norm=norm)
    assert_same(encoder(padded), encoder(ids))
    embed = embedding()
    assert_same(layer(embed(padded)), layer(embed(ids)))


@settings(max_examples=10, deadline=None)
@padding
def test_padding_changes_nothing_in_the_decoder(lengths, more, norm):
    ids, padded = padded_ids(lengths, more)
    embed = embedding()
    decoder, layer = make(Decoder, norm=norm), make(DecoderLayer, norm=norm)
    assert_same(decoder(padded, embed(padded)), decoder(ids, embed(ids)))
    assert_same(layer(embed(padded), embed(padded)), layer(embed(ids), embed(ids)))


# --- Order --------------------------------------------------------------------------


@settings(max_examples=6, deadline=None)
@given(
    order=st.permutations(range(5)),
    norm=st.sampled_from(["post", "pre"]),
)
def test_without_positions_the_encoder_knows_no_order(order, norm):
    encoder = make(Encoder, norm=norm, use_positions=False)
    expected = encoder(IDS).numpy()[:, order]
    assert_allclose(encoder(IDS[:, order]), expected, rtol=0, atol=1e-5)


@positions
def test_with_positions_it_does(learned):
    encoder = make(Encoder, learned_positions=learned, max_length=9)
    order = [1, 0, 2, 3, 4]
    moved = np.abs(encoder(IDS[:, order]) - encoder(IDS).numpy()[:, order])
    assert (moved.max(axis=(1, 2)) > 0.01).all()


@norms
@pytest.mark.parametrize("step", [0, 2])
def test_the_decoder_does_not_see_the_future(norm, step):
    decoder, target = make(Decoder, norm=norm), np.array([[2, 8, 9, 10]])
    context = CONTEXT[:1]
    table = decoder.pos_embedding.embedding.embeddings
    with tf.GradientTape() as tape:
        output = decoder(target, context)[0, step] * RNG.normal(size=16)
    gradient = tf.convert_to_tensor(tape.gradient(output, table.value)).numpy()
    assert (gradient[target[0, step + 1 :]] == 0).all()
    assert (np.abs(gradient[target[0, : step + 1]]).max(-1) > 1e-6).all()
    changed = target.copy()
    changed[:, step + 1 :] = 5
    assert_allclose(
        decoder(changed, context)[:, : step + 1],
        decoder(target, context)[:, : step + 1],
        rtol=0,
        atol=1e-6,
    )


# --- Errors -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [EncoderLayer, DecoderLayer])
def test_heads_that_do_not_divide_d_model(kind):
    with pytest.raises(ValueError, match=r"d_model=16 .* num_heads=3"):
        kind(d_model=16, num_heads=3, dff=32)


@pytest.mark.parametrize("kind", [Encoder, Decoder])
def test_settings_that_cannot_be(kind):
    with pytest.raises(ValueError, match=r"d_model=16 .* num_heads=3"):
        kind(num_layers=1, d_model=16, num_heads=3, dff=32, vocab_size=9)
    with pytest.raises(ValueError, match="'post' or 'pre', not 'middle'"):
        kind(1, 16, 2, 32, 9, norm="middle")
    stack = make(kind, max_length=4)
    with pytest.raises(ValueError, match=r"5 positions.*max_length=4"):
        stack(IDS, CONTEXT) if kind is Decoder else stack(IDS)
