"""One decoding step equals the full forward pass; which tokens are allowed next."""

import json
from pathlib import Path

import numpy as np
import oracle
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer import Transformer
from tfxformer.decoding import DecodingOptions
from tfxformer.decoding.kv_cache import FixedBuffers, GrowingBuffers
from tfxformer.decoding.options import NEVER
from tfxformer.decoding.step import DecoderStep, next_token
from tfxformer.tokenizer import END_ID

SOURCE = np.array([[7, 8, 9, 3, 0, 0], [4, 3, 0, 0, 0, 0], [5, 6, 7, 8, 9, 3]])
TARGET = np.array([[2, 8, 9, 10, 11], [2, 4, 5, 6, 7], [2, 7, 9, 3, 4]])
TIED = {"norm": "pre", "tie_embeddings": True, "learned_positions": True}
SHALLOW = {"norm": "pre", "num_layers": 3, "num_decoder_layers": 1}
MODELS = Path(__file__).parents[3] / "shared" / "models"


def steps_of(model, beams, fixed):
    buffers = FixedBuffers(7) if fixed else GrowingBuffers(np.int32(7))
    return DecoderStep(model, beams, buffers, DecodingOptions())


def step_by_step(model, source, target, fixed):
    """Logits ``(rows, target, vocab)`` and weights, for ``(batch, beams, target)``."""
    batch, beams, length = target.shape
    step, encoded = steps_of(model, beams, fixed), model.encode(source)
    cache, logits, attention = step.empty_cache(batch), [], []
    for position in range(length):
        tokens = target[..., position].reshape(-1)
        x, cache, weights = model.decode_step(
            tokens, position, encoded, cache, step.buffers
        )
        logits.append(model.project(x, model.output_weights()))
        attention.append(weights)
    return np.stack(logits, axis=1), np.stack(attention, axis=-2)


@pytest.mark.parametrize(
    ("variant", "fixed"),
    [
        ({"norm": "post"}, False),
        ({"norm": "post"}, True),
        (TIED, True),
        (SHALLOW, False),
        ({"use_positions": False}, True),
    ],
)
def test_steps_are_the_full_forward_pass(variant, fixed):
    """With three hypotheses for each sentence, and padding in the source."""
    model = oracle.tiny_transformer(max_length=12, **variant)
    target = np.random.default_rng(0).integers(4, oracle.TARGET_VOCAB, (3, 3, 5))
    target[:, 0] = TARGET
    logits, weights = step_by_step(model, SOURCE, target, fixed)
    source, rows = SOURCE.repeat(3, axis=0), target.reshape(9, 5)
    expected = model((source, rows)).numpy()
    assert_allclose(logits, expected, atol=2e-5)
    attention = model.attention((source, rows))  # (rows, layers, heads, T, S)
    assert_allclose(weights.reshape(attention.shape), attention, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "mixed_bfloat16", "float64"])
def test_other_precisions(dtype):
    model = oracle.tiny_transformer(max_length=12, dtype=dtype)
    expected = tf.cast(model((SOURCE, TARGET)), "float32").numpy()
    logits, _ = step_by_step(model, SOURCE, TARGET[:, None], fixed=True)
    assert logits.dtype == model.compute_dtype
    difference = logits.astype("float32") - expected
    assert difference.std() < (1e-5 if dtype == "float64" else 0.05)


def test_weights_saved_by_name_and_order_fit():
    """Trained models must still load after a layer is renamed or moved."""
    folder = MODELS / "pt_en_continued"
    if not folder.is_dir():
        pytest.skip("no ../shared/models beside this checkout")
    model = Transformer(**json.loads((folder / "architecture.json").read_text()))
    model.build()
    saved = np.load(folder / "weights.npz")
    names = [name.split("/", 1)[1] for name in sorted(saved.files)]
    assert names == [weight.path.split("/", 1)[1] for weight in model.weights]
    model.set_weights([saved[name] for name in sorted(saved.files)])


VOCAB, ROWS = 8, 6
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(0, 2, size=(ROWS, VOCAB)).astype("float32")
LOG_TOTAL = np.log(np.exp(LOGITS.astype("float64")).sum(-1))


def check(expected, position, ids, prefix=None, dtype="float32", **options):
    """Checks the logits of allowed tokens, and the sum over all tokens."""
    tolerance = 1e-5 if dtype == "float32" else 0.05
    options = DecodingOptions(**options)
    found = next_token(tf.cast(LOGITS, dtype), position, ids, prefix, options)
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


def repeated(ids, n):
    """For each row, the tokens that would repeat an n-gram."""
    answer = np.zeros((len(ids), VOCAB), bool)
    for row, tokens in zip(answer, ids.tolist(), strict=True):
        grams = {tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)}
        for token in range(VOCAB):
            row[token] = len(tokens) >= n and (*tokens, token)[-n:] in grams
    return answer


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("position", [0, 3, 12])
def test_no_ngram_is_written_twice(n, position):
    for letters, places in ((1, 0), (2, 4), (3, 0)):
        ids = RNG.integers(4, 4 + letters, (ROWS, position)).astype("int32")
        expected = without() & ~repeated(ids, n)
        ids = np.pad(ids, [(0, 0), (0, places)])  # positions without a token yet
        check(expected, position, ids, no_repeat_ngram=n)


def test_where_all_is_repeated_the_translation_ends():
    ids = np.array([[3, 4, 5, 6, 7], [3, 4, 5, 6, 6], [4] * 5], "int32").repeat(2, 0)
    expected = [np.arange(VOCAB) == END_ID, without(3, 4, 5, 6), without(4)]
    check(np.stack(expected).repeat(2, 0), 5, ids, no_repeat_ngram=1)


@pytest.mark.parametrize("options", [{}, {"no_repeat_ngram": 1}])
def test_prefix_comes_whatever_is_allowed(options):
    prefix = np.array([0, 4, 5, 3, 1, 7], "int32")
    expected = np.arange(VOCAB) == prefix[:, None]
    expected[0] = without(4) if options else without()
    check(expected, 1, np.full((ROWS, 1), 4, "int32"), prefix, **options)
