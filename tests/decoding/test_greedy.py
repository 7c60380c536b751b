"""Greedy decoding: the same ids as running the whole model again at each step."""

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

from tfxformer import Transformer
from tfxformer.decoding import greedy, length_limit
from tfxformer.special_ids import END_ID, PAD_ID, START_ID, UNK_ID

HEADS, VOCAB = oracle.TINY["num_heads"], 13
FORBIDDEN = (PAD_ID, UNK_ID, START_ID)
MAX_LENGTH = 18
# No token but the end; short ones; one whose limit is the model's own.
SENTENCES = [[3], [4, 3], [5, 6, 3], [8, 9, 10, 11, 12, 4, 3], [7, 7, 3], [9, 3]]

VARIANTS = [
    {"norm": "post"},
    {"norm": "pre", "tie_embeddings": True, "learned_positions": True},
]


@functools.cache
def make(variant):
    options = {"input_vocab_size": VOCAB, "target_vocab_size": VOCAB}
    options |= {"max_length": MAX_LENGTH} | VARIANTS[variant]
    model = oracle.tiny_transformer(seed=3, **options)
    if model.final_layer is not None:
        # What is forbidden would often be the likeliest, and some sentences end.
        add_bias(model, [*FORBIDDEN, END_ID], 1)
    return model


def add_bias(model, ids, amount):
    bias = np.array(model.final_layer.bias)
    bias[ids] += amount
    model.final_layer.bias.assign(bias)


@functools.cache
def in_a_graph(variant):
    return tf.function(
        functools.partial(greedy, make(variant)),
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
    )


@pytest.fixture
def with_end_bias(request):
    """The first model's decoding, with the end token likelier by so much."""
    before = make(0).final_layer.bias.numpy()
    add_bias(make(0), END_ID, request.param)
    yield in_a_graph(0)
    make(0).final_layer.bias.assign(before)


def pad(sentences, width=None):
    source = np.zeros((len(sentences), width or max(map(len, sentences))), np.int32)
    for row, sentence in zip(source, sentences, strict=True):
        row[: len(sentence)] = sentence
    return tf.constant(source)


def written(ids):
    """The ids without padding, which may only stand at the end."""
    ids = np.asarray(ids)
    count = np.count_nonzero(ids)
    assert (ids[count:] == PAD_ID).all()
    return ids[:count].tolist()


@pytest.mark.parametrize(("variant", "graph"), [(0, False), (0, True), (1, True)])
def test_agrees_with_numpy(variant, graph):
    model = make(variant)
    decode = in_a_graph(variant) if graph else functools.partial(greedy, model)
    decoded = decode(pad(SENTENCES))
    assert decoded.ids.dtype == "int32" and decoded.score.dtype == "float32"
    weights = oracle.transformer_weights(model)
    limits = [0, 14, 16, MAX_LENGTH, 16, 14]
    for sentence, limit, ids, score in zip(
        SENTENCES, limits, decoded.ids, decoded.score, strict=True
    ):
        expected, log_probabilities = numpy_version.greedy(
            sentence,
            weights,
            HEADS,
            START_ID,
            END_ID,
            limit,
            norm=VARIANTS[variant]["norm"],
            forbidden=FORBIDDEN,
        )
        assert written(ids) == expected
        mean = np.mean(log_probabilities) if log_probabilities else 0.0
        assert_allclose(score, mean, rtol=1e-4, atol=1e-4)


def test_the_comparison_is_of_something():
    """Sentences that end, that are cut off, and that would write what they may not."""
    model = make(0)
    decoded = [written(ids) for ids in in_a_graph(0)(pad(SENTENCES)).ids]
    ended = [END_ID in ids for ids in decoded]
    assert any(ended) and not all(ended[1:])
    assert len({tuple(ids) for ids in decoded}) > 3
    weights = oracle.transformer_weights(model)
    free, _ = numpy_version.greedy([5, 6, 3], weights, HEADS, START_ID, END_ID, 16)
    assert set(free) & set(FORBIDDEN)


# --- Neighbours ---------------------------------------------------------------------

sentences = st.lists(st.integers(END_ID + 1, VOCAB - 1), max_size=6).map(
    lambda tokens: [*tokens, END_ID]
)


@settings(max_examples=15, deadline=None)
@given(
    batch=st.lists(sentences, min_size=1, max_size=4),
    more=st.integers(0, 5),
    variant=st.integers(0, len(VARIANTS) - 1),
)
def test_a_sentence_does_not_depend_on_its_neighbours(batch, more, variant):
    decode = in_a_graph(variant)
    width = max(map(len, batch)) + more
    together = decode(pad(batch, width))
    for sentence, ids, score in zip(batch, together.ids, together.score, strict=True):
        alone = decode(pad([sentence]))
        assert written(ids) == written(alone.ids[0])
        assert_allclose(score, alone.score[0], rtol=1e-4, atol=1e-5)


# --- Limits -------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.lists(sentences, min_size=1, max_size=4), st.integers(1, 40))
def test_length_limit(batch, max_length):
    expected = [
        min(2 * len(sentence) + 10, max_length) if len(sentence) > 1 else 0
        for sentence in batch
    ]
    source = pad(batch, 9)
    assert_array_equal(length_limit(source, max_length), expected)


@pytest.mark.parametrize("with_end_bias", [-1e9], indirect=True)
def test_a_translation_that_never_ends_is_cut_off(with_end_bias):
    decoded = with_end_bias(pad(SENTENCES))
    assert decoded.ids.shape == (6, MAX_LENGTH)
    lengths = [len(written(ids)) for ids in decoded.ids]
    assert lengths == [0, 14, 16, MAX_LENGTH, 16, 14]
    assert not np.isin(decoded.ids, END_ID).any()
    assert np.isfinite(decoded.score).all()


@pytest.mark.parametrize("with_end_bias", [1e9], indirect=True)
def test_a_translation_that_ends_at_once(with_end_bias):
    decoded = with_end_bias(pad(SENTENCES))
    assert [written(ids) for ids in decoded.ids] == [[], *[[END_ID]] * 5]
    assert_allclose(decoded.score, 0, atol=1e-5)


def test_a_source_as_long_as_the_model_allows():
    source = pad([[4] * (MAX_LENGTH - 1) + [END_ID]])
    assert 1 <= len(written(in_a_graph(0)(source).ids[0])) <= MAX_LENGTH


# --- Nothing ------------------------------------------------------------------------


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("shape", [(0, 5), (0, 1), (2, 1), (2, 3)])
def test_nothing_gives_nothing(shape, graph):
    decode = in_a_graph(0) if graph else functools.partial(greedy, make(0))
    source = np.zeros(shape, np.int32)
    source[:, :1] = END_ID
    decoded = decode(tf.constant(source))
    assert decoded.ids.shape == (shape[0], 0)
    assert_array_equal(decoded.score, np.zeros(shape[0]))


# --- The rest -----------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["float16", "mixed_bfloat16"])
def test_half_precision(policy):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = oracle.tiny_transformer()
        decoded = greedy(model, pad(SENTENCES[:2]))
    finally:
        keras.config.set_dtype_policy(before)
    assert decoded.score.dtype == "float32"
    assert np.isfinite(decoded.score).all() and (np.asarray(decoded.score) <= 0).all()
    assert not np.isin(decoded.ids, [UNK_ID, START_ID]).any()


def test_source_ids_of_64_bits():
    source = pad(SENTENCES[:3])
    decoded = greedy(make(0), tf.cast(source, "int64"))
    assert_array_equal(decoded.ids, in_a_graph(0)(source).ids)
    assert decoded.ids.dtype == "int32"


def test_a_model_that_was_never_called():
    """Its weights are random, but it has to have them."""
    model = Transformer(**oracle.TINY, input_vocab_size=13, target_vocab_size=13)
    assert greedy(model, pad(SENTENCES[:2])).ids.shape[0] == 2
