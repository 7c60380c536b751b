"""One token at a time is the full forward pass."""

import functools

import numpy as np
import oracle
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer.decoding.history import Fixed, Growing
from tfxformer.decoding.step import DecoderStep

SOURCE = np.array([[7, 8, 9, 3, 0, 0], [4, 3, 0, 0, 0, 0], [5, 6, 7, 8, 9, 3]])
TARGET = np.array([[2, 8, 9, 10, 11], [2, 4, 5, 6, 7], [2, 7, 9, 3, 4]])
VARIANTS = [
    {"norm": norm, "tie_embeddings": tied, **positions}
    for norm in ("post", "pre")
    for tied in (False, True)
    for positions in ({}, {"learned_positions": True}, {"use_positions": False})
]


def name(variant):
    tied = "tied" if variant["tie_embeddings"] else "untied"
    positions = "learned" if "learned_positions" in variant else "sines"
    positions = "none" if "use_positions" in variant else positions
    return f"{variant['norm']} {tied} {positions}"


variants = pytest.mark.parametrize("variant", VARIANTS, ids=name)
modes = pytest.mark.parametrize("fixed", [False, True], ids=["growing", "fixed"])


@functools.cache
def make(**options):
    return oracle.tiny_transformer(max_length=12, **options)


def history_with(room, fixed):
    return Fixed(room) if fixed else Growing(np.int32(room))


def step_by_step(model, source, target, fixed=False, room=7):
    """Logits ``(batch, target, vocab)`` and attention, one position after the other.

    ``target`` may be ``(batch, beams, positions)``: hypotheses side by side.
    """
    beams = target.shape[1] if len(target.shape) == 3 else 1
    step = DecoderStep(model, beams, room, history_with(room, fixed))
    memory, past = step.read(source), step.nothing_written(ops.shape(source)[0])
    logits, attention = [], []
    for position in range(target.shape[-1]):
        tokens = ops.reshape(target[..., position], (-1,))
        x, past, weights = step(tokens, position, memory, past)
        logits.append(model.project(x))
        attention.append(ops.stack(weights, axis=2))
    # (rows, target, vocab) and (sentences, beams, layers, heads, target, source)
    return ops.stack(logits, axis=1), ops.stack(attention, axis=4)


def full_attention(model):
    layers = [layer.last_attn_scores for layer in model.decoder.dec_layers]
    return np.stack([np.asarray(x) for x in layers], axis=1)


def close(actual, expected):
    assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@variants
@modes
def test_steps_are_the_full_forward_pass(variant, fixed):
    model = make(**variant)
    expected = model((SOURCE, TARGET)).numpy()
    weights = full_attention(model)
    logits, attention = step_by_step(model, SOURCE, TARGET, fixed)
    close(logits, expected)
    assert attention.shape == (3, 1, 2, 4, 5, 6)
    close(attention[:, 0], weights)
    assert_array_equal(np.asarray(attention)[:, 0, ..., 0, 4:][:2], 0)
    assert expected.std() > 0.3


@modes
@pytest.mark.parametrize("variant", VARIANTS[::4], ids=name)
def test_hypotheses_side_by_side(variant, fixed):
    model = make(**variant)
    rng = np.random.default_rng(0)
    target = rng.integers(4, oracle.TARGET_VOCAB, (3, 4, 5))
    target[..., 0] = 2
    logits, attention = step_by_step(model, SOURCE, target, fixed)
    source = SOURCE.repeat(4, axis=0)
    expected = model((source, target.reshape(12, 5))).numpy()
    close(logits, expected)
    close(np.asarray(attention).reshape(12, 2, 4, 5, 6), full_attention(model))


@settings(max_examples=10, deadline=None)
@given(
    lengths=st.lists(
        st.tuples(st.integers(1, 8), st.integers(1, 6)), min_size=1, max_size=4
    ),
    more=st.integers(0, 3),
    variant=st.sampled_from(VARIANTS),
    fixed=st.booleans(),
)
def test_sentences_of_any_length_and_padding(lengths, more, variant, fixed):
    model, rng = make(**variant), np.random.default_rng(len(lengths))
    source, target = (
        oracle.random_ids(rng, each, oracle.TARGET_VOCAB)
        for each in zip(*lengths, strict=True)
    )
    target[target == 0] = 5
    padded = np.pad(source, [(0, 0), (0, more)])
    logits, _ = step_by_step(model, padded, target, fixed)
    close(logits, model((source, target)))


@modes
def test_in_a_graph_with_shapes_that_are_not_known(fixed):
    model = make(norm="pre", tie_embeddings=False)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2)
    def decode(source, target):
        columns = tf.ensure_shape(target, [None, 4])
        return step_by_step(model, source, columns, fixed)[0]

    for rows in (slice(0, 3), slice(1, 2)):
        expected = model((SOURCE[rows], TARGET[rows, :4]))
        close(decode(SOURCE[rows], TARGET[rows, :4]), expected)


@modes
def test_reorder_continues_other_hypotheses(fixed):
    """After each step every hypothesis continues one of its sentence, chosen freely."""
    model, rng = make(norm="post", tie_embeddings=True), np.random.default_rng(1)
    sentences, beams, length = 3, 4, 5
    step = DecoderStep(model, beams, length, history_with(length, fixed))
    memory, past = step.read(SOURCE), step.nothing_written(sentences)
    token = np.full((sentences, beams), 2)
    target = np.zeros((sentences, beams, 0), int)
    for position in range(length):
        target = np.concatenate([target, token[..., None]], axis=-1)
        x, past, _ = step(token.reshape(-1), position, memory, past)
        rows = target.reshape(-1, position + 1)
        expected = model((SOURCE.repeat(beams, axis=0), rows))[:, -1]
        close(model.project(x), expected)
        parent = rng.integers(0, beams, (sentences, beams)).astype("int32")
        past = step.reorder(past, parent)
        target = np.take_along_axis(target, parent[..., None], axis=1)
        token = rng.integers(4, oracle.TARGET_VOCAB, (sentences, beams))


def test_a_single_hypothesis_is_never_reordered():
    step = DecoderStep(make(norm="post"), 1, 3, Growing(np.int32(3)))
    past = step.nothing_written(2)
    assert step.reorder(past, np.zeros((2, 1), "int32")) is past


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16", "float64"])
def test_other_precisions(dtype):
    model = oracle.tiny_transformer(max_length=12, dtype=dtype)
    expected = tf.cast(model((SOURCE, TARGET)), "float32").numpy()
    for fixed in (False, True):
        logits, _ = step_by_step(model, SOURCE, TARGET, fixed)
        assert logits.dtype == model.compute_dtype
        difference = tf.cast(logits, "float32").numpy() - expected
        assert difference.std() < (1e-5 if dtype == "float64" else 0.05)


@pytest.mark.parametrize("fixed", [False, True])
def test_half_precision_on_a_cpu(fixed):
    model = oracle.tiny_transformer(max_length=12, dtype="float16")
    logits, _ = step_by_step(model, SOURCE, TARGET, fixed)
    difference = np.asarray(logits, "float32") - np.asarray(model((SOURCE, TARGET)))
    assert difference.std() < 0.02
