"""One decoding step equals the full forward pass; which tokens are allowed next.

The exhaustive search of `test_beam` tests n-grams and prefixes.
"""

import numpy as np
import oracle
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer.decoding import DecodingOptions
from tfxformer.decoding.folded import FoldedTransformer
from tfxformer.decoding.options import NEVER
from tfxformer.decoding.step import DecoderStep, next_token
from tfxformer.special_tokens import END_ID

SOURCE = np.array([[7, 8, 9, 3, 0, 0], [4, 3, 0, 0, 0, 0], [5, 6, 7, 8, 9, 3]])
TARGET = np.array([[2, 8, 9, 10, 11], [2, 4, 5, 6, 7], [2, 7, 9, 3, 4]])
TIED = {"norm": "pre", "tie_embeddings": True, "learned_positions": True}
SHALLOW = {"norm": "pre", "num_layers": 3, "num_decoder_layers": 1}


def step_by_step(model, source, target):
    """Logits ``(rows, target, vocab)`` for targets ``(batch, beams, target)``."""
    batch, beams, length = target.shape
    folded = FoldedTransformer(model)
    encoded = folded.encode(source)
    cache = DecoderStep(folded, beams, DecodingOptions()).empty_cache(batch)
    logits = []
    for position in range(length):
        tokens = target[..., position]
        x, cache = folded.step(tokens, position, encoded, cache)
        logits.append(folded.project(x))
    return np.stack(logits, axis=1)


@pytest.mark.parametrize(
    "variant", [{"norm": "post"}, TIED, SHALLOW, {"use_positions": False}]
)
def test_decoder_steps_equal_the_full_forward_pass(variant):
    """With three hypotheses for each sentence, and padding in the source."""
    model = oracle.tiny_transformer(max_length=12, **variant)
    target = np.random.default_rng(0).integers(4, oracle.TARGET_VOCAB, (3, 3, 5))
    target[:, 0] = TARGET
    logits = step_by_step(model, SOURCE, target)
    source, rows = SOURCE.repeat(3, axis=0), target.reshape(9, 5)
    expected = model((source, rows)).numpy()
    assert_allclose(logits, expected, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float16", "mixed_bfloat16", "float64"])
def test_decoder_steps_in_half_and_double_precision_equal_the_forward_pass(dtype):
    model = oracle.tiny_transformer(max_length=12, dtype=dtype)
    expected = tf.cast(model((SOURCE, TARGET)), "float32").numpy()
    logits = step_by_step(model, SOURCE, TARGET[:, None])
    assert logits.dtype == model.compute_dtype
    difference = logits.astype("float32") - expected
    assert difference.std() < (1e-5 if dtype == "float64" else 0.05)


VOCAB, ROWS = 8, 6
LOGITS = np.random.default_rng(0).normal(0, 2, size=(ROWS, VOCAB)).astype("float32")
LOG_TOTAL = np.log(np.exp(LOGITS.astype("float64")).sum(-1))


def check(expected, position, ids, dtype="float32", forbidden=(), **options):
    """Checks the logits of allowed tokens, and the sum over all tokens."""
    tolerance = 1e-5 if dtype == "float32" else 0.05
    options = DecodingOptions(**options)
    logits = tf.cast(LOGITS, dtype)
    found = next_token(logits, position, ids, None, options, forbidden)
    expected = np.broadcast_to(expected, LOGITS.shape)
    logits, log_total = map(np.asarray, found)
    assert logits.dtype == log_total.dtype == "float32"
    assert_array_equal(logits > NEVER / 2, expected)
    assert_allclose(logits[expected], LOGITS[expected], atol=tolerance)
    assert_allclose(log_total, LOG_TOTAL, atol=tolerance)


def without(*ids):
    return ~np.isin(np.arange(VOCAB), [0, 1, 2, *ids])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_special_tokens_are_never_written(dtype):
    check(without(), 0, np.zeros((ROWS, 0), "int32"), dtype=dtype)


def test_the_last_token_of_a_forbidden_sequence_is_not_written():
    forbidden = [[4], [5, 6], [3, 5, 7]]
    ids = np.array([[3, 5, 0], [5, 3, 0], [6, 5, 0]], "int32").repeat(2, 0)
    expected = [without(4, 6, 7), without(4), without(4, 6)]
    check(np.stack(expected).repeat(2, 0), 2, ids, forbidden=forbidden)
    check(without(4), 0, ids[:, :0], forbidden=forbidden)


def test_only_the_end_token_is_allowed_where_any_other_would_repeat_an_ngram():
    ids = np.array([[3, 4, 5, 6, 7], [3, 4, 5, 6, 6], [4] * 5], "int32").repeat(2, 0)
    expected = [np.arange(VOCAB) == END_ID, without(3, 4, 5, 6), without(4)]
    check(np.stack(expected).repeat(2, 0), 5, ids, no_repeat_ngram=1)
