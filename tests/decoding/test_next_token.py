"""What may be written next, and with which probability: against loops in NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer.decoding import DecodingOptions
from tfxformer.decoding.next_token import next_token
from tfxformer.decoding.options import NEVER
from tfxformer.tokenizer import END_ID

VOCAB, ROWS = 8, 6
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(0, 2, size=(ROWS, VOCAB)).astype("float32")
LOG_TOTAL = np.log(np.exp(LOGITS.astype("float64")).sum(-1))
NOTHING = np.zeros((ROWS, 0), "int32")


def found(position, ids, prefix=None, logits=LOGITS, **options):
    return next_token(logits, position, ids, prefix, DecodingOptions(**options))


def allowed(logits):
    return np.asarray(logits) > NEVER / 2


def check(found, expected, tolerance=1e-5):
    """The logits of what is allowed, and the sum over all tokens, allowed or not."""
    expected = np.broadcast_to(expected, LOGITS.shape)
    logits, log_total = found
    assert logits.dtype == log_total.dtype == "float32"
    assert_array_equal(allowed(logits), expected)
    assert_allclose(np.asarray(logits)[expected], LOGITS[expected], atol=tolerance)
    assert_allclose(log_total, LOG_TOTAL, atol=tolerance)


def without(*ids):
    return ~np.isin(np.arange(VOCAB), [0, 1, 2, *ids])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_special_tokens_are_never_written(dtype):
    logits = tf.cast(LOGITS, dtype)
    check(found(0, NOTHING, logits=logits), without(), 1e-5 if "32" in dtype else 0.05)


def repeated(ids, position, n):
    """For each row, which tokens would complete an n-gram written before."""
    answer = np.zeros((len(ids), VOCAB), bool)
    for row, tokens in zip(answer, ids, strict=True):
        tokens = list(tokens[:position])
        grams = {tuple(tokens[i : i + n]) for i in range(position - n + 1)}
        for token in range(VOCAB):
            row[token] = position >= n and (*tokens, token)[-n:] in grams
    return answer


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("room", [0, 4], ids=["growing", "fixed"])
@pytest.mark.parametrize("position", [0, 1, 3, 12])
def test_no_ngram_is_written_twice(n, room, position):
    for letters in (1, 2, 3):
        ids = RNG.integers(4, 4 + letters, (ROWS, position)).astype("int32")
        expected = without() & ~repeated(ids, position, n)
        ids = np.pad(ids, [(0, 0), (0, room)])
        check(found(position, ids, no_repeat_ngram=n), expected)


def test_a_token_that_came_often_does_not_overflow():
    ids = np.full((ROWS, 2000), 5, "int32")
    check(found(2000, ids, no_repeat_ngram=1), without(5))


def test_where_all_is_repeated_the_translation_ends():
    ids = np.array([[3, 4, 5, 6, 7], [3, 4, 5, 6, 6], [4] * 5], "int32").repeat(2, 0)
    expected = [np.arange(VOCAB) == END_ID, without(3, 4, 5, 6), without(4)]
    check(found(5, ids, no_repeat_ngram=1), np.stack(expected).repeat(2, 0))


@pytest.mark.parametrize("options", [{}, {"no_repeat_ngram": 1}])
def test_prefix_comes_whatever_is_allowed(options):
    prefix = np.array([0, 4, 5, 3, 1, 7], "int32")
    ids = np.full((ROWS, 1), 4, "int32")
    expected = np.arange(VOCAB) == prefix[:, None]
    expected[0] = without(4) if options else without()
    check(found(1, ids, prefix, **options), expected)
