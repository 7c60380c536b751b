"""What may be written next, and with which probability: against loops in NumPy."""

import types

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer.decoding import DecodingOptions
from tfxformer.decoding.next_token import NEVER, NextToken
from tfxformer.errors import UserError
from tfxformer.special_ids import END_ID

DEPTH, VOCAB, ROWS = 5, 8, 6
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, DEPTH)).astype("float32")
KERNEL = RNG.normal(size=(DEPTH, VOCAB)).astype("float32")
BIAS = RNG.normal(size=VOCAB).astype("float32")
LOGITS = X @ KERNEL + BIAS
LOG_TOTAL = np.log(np.exp(LOGITS.astype("float64")).sum(-1))


def make(bias=BIAS, dtype="float32", **options):
    """A `NextToken` of a decoder of which only the output counts."""
    step = types.SimpleNamespace(
        output_kernel=tf.cast(KERNEL, dtype),
        output_bias=None if bias is None else tf.cast(bias, dtype),
        dtype=dtype,
    )
    return NextToken(step, DecodingOptions(**options))


def allowed(logits):
    return np.asarray(logits) > NEVER / 2


def check(found, expected_allowed, logits=LOGITS, log_total=LOG_TOTAL):
    """The logits where they are allowed, and the sum over all, whatever is."""
    expected_allowed = np.broadcast_to(expected_allowed, logits.shape)
    assert_array_equal(allowed(found[0]), expected_allowed)
    actual = np.asarray(found[0])[expected_allowed]
    assert_allclose(actual, logits[expected_allowed], rtol=1e-5, atol=1e-5)
    assert_allclose(found[1], log_total, rtol=1e-5, atol=1e-5)


def without(*ids):
    return ~np.isin(np.arange(VOCAB), [0, 1, 2, *ids])


NOTHING = np.zeros((ROWS, 0), "int32")


@pytest.mark.parametrize("forbidden", [(), (5,), (7, 4, 4, 1), (3,), (4, 5, 6, 7)])
@pytest.mark.parametrize("min_length", [0, 2])
def test_forbidden_and_min_length(forbidden, min_length):
    next_token = make(forbidden=forbidden, min_length=min_length)
    for position in range(4):
        ids = RNG.integers(4, VOCAB, (ROWS, position))
        expected = without(*forbidden, *([END_ID] if position < min_length else []))
        if not expected.any():
            # Where nothing is left to write, the translation ends after all.
            expected = np.arange(VOCAB) == END_ID
        check(next_token(X, position, ids), expected)


def test_tied_embeddings_have_no_bias():
    logits = X @ KERNEL
    found = make(bias=None, forbidden=(6,), min_length=1)(X, 0, NOTHING)
    log_total = np.log(np.exp(logits).sum(-1))
    check(found, without(6, END_ID), logits, log_total)


def test_ids_that_the_vocabulary_does_not_have():
    make(forbidden=(VOCAB - 1,))
    with pytest.raises(UserError, match="forbidden 8: the vocabulary has 8 ids"):
        make(forbidden=(4, VOCAB))


def repeated(ids, position, n):
    """For each row, which tokens would complete an n-gram written before."""
    answer = np.zeros((len(ids), VOCAB), bool)
    for row, tokens in zip(answer, ids, strict=True):
        tokens = list(tokens[:position])
        grams = {tuple(tokens[i : i + n]) for i in range(position - n + 1)}
        for token in range(VOCAB):
            row[token] = position >= n and (*tokens, token)[-n:] in grams
    return answer


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 5),
    position=st.integers(0, 12),
    room=st.integers(0, 5),
    letters=st.integers(1, 4),
)
def test_no_ngram_is_written_twice(seed, n, position, room, letters):
    """With what has been written alone (Growing), and with room after it (Fixed)."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(4, 4 + letters, (ROWS, position)).astype("int32")
    ids = np.pad(ids, [(0, 0), (0, room)])
    expected = without() & ~repeated(ids, position, n)
    check(make(no_repeat_ngram=n)(X, position, ids), expected)


def test_a_token_that_came_often_does_not_overflow():
    ids = np.full((ROWS, 2000), 5, "int32")
    logits, log_total = make(no_repeat_ngram=1)(X, 2000, ids)
    assert np.isfinite(logits).all() and np.isfinite(log_total).all()
    assert_array_equal(allowed(logits)[0], without(5))


def test_where_all_is_repeated_the_translation_ends():
    ids = np.array([[4, 5, 6, 7], [4, 5, 6, 6], [4, 4, 4, 4]], "int32").repeat(2, 0)
    found = make(no_repeat_ngram=1, min_length=9)(X, 4, ids)
    expected = np.stack(
        [np.arange(VOCAB) == END_ID, without(3, 4, 5, 6), without(3, 4)]
    )
    check(found, expected.repeat(2, 0))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"min_length": 3},
        {"forbidden": (5, 6)},
        {"no_repeat_ngram": 1, "min_length": 3},
    ],
)
@pytest.mark.parametrize("bias", [BIAS, None])
def test_prefix_comes_whatever_is_allowed(options, bias):
    logits = X @ KERNEL + (0 if bias is None else bias)
    log_total = np.log(np.exp(logits).sum(-1))
    prefix = np.array([0, 4, 5, 3, 1, 7], "int32")
    ids = np.full((ROWS, 1), 4, "int32")
    found = make(bias, **options)(X, 1, ids, prefix)
    free, _ = make(bias, **options)(X, 1, ids)
    expected = np.arange(VOCAB) == prefix[:, None]
    expected[0] = allowed(free)[0]
    check(found, expected, logits, log_total)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_precisions(dtype):
    next_token = make(dtype=dtype, min_length=2, forbidden=(5,), no_repeat_ngram=1)
    for position, ids in ((0, NOTHING), (3, np.full((ROWS, 3), 6, "int32"))):
        logits, log_total = next_token(tf.cast(X, dtype), position, ids)
        assert logits.dtype == log_total.dtype == "float32"
        expected = without(5, *([END_ID] if position == 0 else [6]))
        assert_array_equal(allowed(logits), np.broadcast_to(expected, LOGITS.shape))
        tolerance = 1e-5 if dtype == "float64" else 0.05
        actual = np.asarray(logits)[:, expected]
        assert_allclose(actual, LOGITS[:, expected], atol=tolerance)
        assert_allclose(log_total, LOG_TOTAL, atol=tolerance)
