"""One token at a time is the full forward pass, and the shipped weights fit."""

import json
from pathlib import Path

import numpy as np
import oracle
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from tfxformer import Transformer
from tfxformer.decoding import DecodingOptions
from tfxformer.decoding.beam import _reorder
from tfxformer.decoding.kv_cache import FixedBuffers, GrowingBuffers
from tfxformer.decoding.step import DecoderStep

SOURCE = np.array([[7, 8, 9, 3, 0, 0], [4, 3, 0, 0, 0, 0], [5, 6, 7, 8, 9, 3]])
TARGET = np.array([[2, 8, 9, 10, 11], [2, 4, 5, 6, 7], [2, 7, 9, 3, 4]])
VARIANTS = {
    "post": {"norm": "post"},
    "pre, tied, learned": {
        "norm": "pre",
        "tie_embeddings": True,
        "learned_positions": True,
    },
    "pre, shallow": {"norm": "pre", "num_layers": 3, "num_decoder_layers": 1},
    "no positions": {"use_positions": False},
}
MODELS = Path(__file__).parents[2] / "shared" / "models"


def steps_of(model, beams, fixed, most=7):
    buffers = FixedBuffers(most) if fixed else GrowingBuffers(np.int32(most))
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


@pytest.mark.parametrize("fixed", [False, True], ids=["growing", "fixed"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_steps_are_the_full_forward_pass(variant, fixed):
    """For three hypotheses of each sentence, and with padding in the source."""
    model = oracle.tiny_transformer(max_length=12, **VARIANTS[variant])
    target = np.random.default_rng(0).integers(4, oracle.TARGET_VOCAB, (3, 3, 5))
    target[:, 0] = TARGET
    logits, weights = step_by_step(model, SOURCE, target, fixed)
    source, rows = SOURCE.repeat(3, axis=0), target.reshape(9, 5)
    expected = model((source, rows)).numpy()
    assert_allclose(logits, expected, atol=2e-5)
    attention = model.attention((source, rows))  # (rows, layers, heads, T, S)
    assert_allclose(weights.reshape(attention.shape), attention, atol=1e-5)
    assert expected.std() > 0.3


@pytest.mark.parametrize("fixed", [False, True], ids=["growing", "fixed"])
def test_hypotheses_continue_others(fixed):
    """After each step every hypothesis continues one of its sentence, chosen freely."""
    model, rng = oracle.tiny_transformer(max_length=12), np.random.default_rng(1)
    step, encoded = steps_of(model, 4, fixed), model.encode(SOURCE)
    cache, target = step.empty_cache(3), np.zeros((3, 4, 0), int)
    for position in range(4):
        token = rng.integers(4, oracle.TARGET_VOCAB, (3, 4))
        target = np.concatenate([target, token[..., None]], axis=-1)
        x, cache, _ = model.decode_step(
            token.reshape(-1), position, encoded, cache, step.buffers
        )
        rows = target.reshape(12, position + 1)
        expected = model((SOURCE.repeat(4, axis=0), rows))[:, -1]
        assert_allclose(model.project(x), expected, atol=2e-5)
        parent = rng.integers(0, 4, (3, 4)).astype("int32")
        cache = _reorder(cache, parent)
        target = np.take_along_axis(target, parent[..., None], axis=1)


@pytest.mark.parametrize("dtype", ["float16", "mixed_bfloat16", "float64"])
def test_other_precisions(dtype):
    model = oracle.tiny_transformer(max_length=12, dtype=dtype)
    expected = tf.cast(model((SOURCE, TARGET)), "float32").numpy()
    for fixed in (False, True):
        logits, _ = step_by_step(model, SOURCE, TARGET[:, None], fixed)
        assert logits.dtype == model.compute_dtype
        difference = logits.astype("float32") - expected
        assert difference.std() < (1e-5 if dtype == "float64" else 0.05)


def test_weights_saved_by_name_and_order_fit():
    """Renaming or moving a layer must not lose the weights of trained models."""
    folder = MODELS / "pt_en_continued"
    if not folder.is_dir():
        pytest.skip("no ../shared/models beside this checkout")
    model = Transformer(**json.loads((folder / "architecture.json").read_text()))
    model.build()
    saved = np.load(folder / "weights.npz")
    names = [name.split("/", 1)[1] for name in sorted(saved.files)]
    assert names == [weight.path.split("/", 1)[1] for weight in model.weights]
    model.set_weights([saved[name] for name in sorted(saved.files)])
