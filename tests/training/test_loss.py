"""Loss and metrics: against NumPy, and what padding must never do."""

import keras
import numpy as np
import numpy_transformer as numpy_version
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tfxformer import masked_accuracy, masked_loss
from tfxformer.training import MaskedAccuracy, MaskedLoss, Perplexity, token_loss

VOCAB = 11


@st.composite
def batches(draw):
    """Labels with padding, at least one of them real, and logits of any size."""
    batch, length = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    labels = rng.integers(0, VOCAB, (batch, length))
    labels[rng.random(labels.shape) < 0.3] = 0
    labels[0, 0] = rng.integers(1, VOCAB)
    scale = draw(st.sampled_from([0.0, 1.0, 30.0]))
    logits = scale * rng.normal(size=(batch, length, VOCAB))
    # Sometimes the label is the likeliest, so that accuracy is not always 0.
    right = rng.random(labels.shape) < 0.5
    logits += 3 * (scale + 1) * right[..., None] * np.eye(VOCAB)[labels]
    return labels, logits.astype("float32")


def a_batch(seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(1, VOCAB, (3, 5))
    labels[1, 2:] = labels[2, 4:] = 0
    return labels, rng.normal(size=(3, 5, VOCAB)).astype("float32")


# --- Against NumPy ------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(batches(), st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_loss_with_label_smoothing(batch, smoothing):
    labels, logits = batch
    expected = numpy_version.cross_entropy(logits, labels, smoothing)
    loss = MaskedLoss(label_smoothing=smoothing)
    assert_allclose(loss(labels, logits), expected, rtol=1e-5, atol=1e-5)
    assert_allclose(loss(labels.astype("float32"), logits), loss(labels, logits))


@settings(max_examples=30, deadline=None)
@given(batches())
def test_the_tutorials_functions(batch):
    labels, logits = batch
    loss = numpy_version.cross_entropy(logits, labels)
    accuracy = numpy_version.accuracy(logits, labels)
    assert_allclose(masked_loss(labels, logits), loss, rtol=1e-5, atol=1e-5)
    assert_allclose(masked_accuracy(labels, logits), accuracy, rtol=1e-6)


@settings(max_examples=20, deadline=None)
@given(batches(), batches())
def test_metrics_count_each_token_the_same(first, second):
    """However they fell into batches: this is no mean of means."""
    labels = np.concatenate([first[0].ravel(), second[0].ravel()])
    logits = np.concatenate([x[1].reshape(-1, VOCAB) for x in (first, second)])
    for metric, expected in (
        (MaskedAccuracy(), numpy_version.accuracy(logits, labels)),
        (Perplexity(), numpy_version.perplexity(logits, labels)),
    ):
        for batch in (first, second):
            metric.update_state(*batch)
        assert_allclose(metric.result(), expected, rtol=1e-4)
        metric.reset_state()
        metric.update_state(*second)
        metric.update_state(*second)
        alone = type(metric)()
        alone.update_state(*second)
        assert_allclose(metric.result(), alone.result(), rtol=1e-5)


def test_token_loss_is_of_each_token():
    labels, logits = a_batch()
    for smoothing in (0.0, 0.1):
        expected = [
            [
                numpy_version.cross_entropy(logit[None], label[None], smoothing)
                if label
                else 0
                for label, logit in zip(*row, strict=True)
            ]
            for row in zip(labels, logits, strict=True)
        ]
        actual = token_loss(labels, logits, smoothing)
        assert_allclose(actual * (labels != 0), expected, rtol=1e-5)


# --- Padding ------------------------------------------------------------------------

LOSSES = [
    masked_loss,
    masked_accuracy,
    MaskedLoss(0.1),
    lambda *batch: MaskedAccuracy()(*batch),
    lambda *batch: Perplexity()(*batch),
]


@pytest.mark.parametrize("of", LOSSES)
def test_more_padding_changes_nothing(of):
    labels, logits = a_batch()
    rng = np.random.default_rng(1)
    longer = np.pad(labels, ((0, 1), (0, 4)))
    padding = 9 * rng.normal(size=(*longer.shape, VOCAB)).astype("float32")
    padding[: labels.shape[0], : labels.shape[1]] = logits
    padding[(longer == 0) & (rng.random(longer.shape) < 0.5)] = 1e4
    assert_allclose(of(longer, padding), of(labels, logits), rtol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_padding_has_no_gradient(smoothing):
    labels, logits = a_batch()
    logits = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = MaskedLoss(smoothing)(labels, logits)
    gradient = tape.gradient(loss, logits).numpy()
    assert (gradient[labels == 0] == 0).all()
    assert (np.abs(gradient[labels != 0]).max(-1) > 0).all()


@pytest.mark.parametrize(("of", "expected"), zip(LOSSES, [0, 0, 0, 0, 1], strict=True))
def test_nothing_but_padding_gives_no_nan(of, expected):
    labels, logits = a_batch()
    assert float(of(np.zeros_like(labels), logits)) == expected


# --- Numbers ------------------------------------------------------------------------


def test_by_hand():
    # Softmax of (0, ln 3): 1/4 and 3/4.
    logits = np.array([[[0, np.log(3)], [0, np.log(3)], [9, 9]]], "float32")
    labels = np.array([[1, 1, 0]])
    assert_allclose(masked_loss(labels, logits), np.log(4 / 3), rtol=1e-6)
    assert_allclose(masked_accuracy(labels, logits), 1)
    # A smoothed target of 0.9 + 0.1 / 2 and 0.1 / 2.
    expected = 0.95 * np.log(4 / 3) + 0.05 * np.log(4)
    assert_allclose(MaskedLoss(0.1)(labels, logits), expected, rtol=1e-6)
    assert_allclose(Perplexity()(labels, logits), 4 / 3, rtol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_large_logits(smoothing):
    labels, logits = a_batch()
    expected = numpy_version.cross_entropy(1e4 * logits, labels, smoothing)
    assert_allclose(MaskedLoss(smoothing)(labels, 1e4 * logits), expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_logits_in_half_precision_are_summed_in_float32(dtype):
    labels, logits = a_batch()
    half = tf.cast(logits, dtype)
    exact = tf.cast(half, "float32")
    for of in LOSSES:
        assert_allclose(of(labels, half), of(labels, exact), rtol=1e-5)
    assert MaskedLoss(0.1)(labels, half).dtype == "float32"


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
@pytest.mark.parametrize("of", LOSSES)
def test_labels_of_any_type(of, dtype):
    labels, logits = a_batch()
    assert_allclose(of(labels.astype(dtype), logits), of(labels, logits))


def test_ids_beyond_what_half_precision_can_count():
    """Keras casts labels to its float type; 2049 is no float16."""
    labels, logits = np.array([[2049, 30001]]), np.zeros((1, 2, 30002), "float32")
    logits[0, [0, 1], [2049, 30001]] = 30
    for of, expected in zip(LOSSES[:2], [0, 1], strict=True):
        assert_allclose(of(labels, logits), expected, atol=1e-4)
    assert_allclose(MaskedAccuracy()(labels, logits), 1)
    assert_allclose(MaskedLoss()(labels, logits), 0, atol=1e-4)


# --- In Keras -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "thing", [MaskedLoss(0.2), MaskedAccuracy(), Perplexity()], ids=lambda x: x.name
)
def test_config_round_trip(thing):
    batch = a_batch()
    written = keras.saving.serialize_keras_object(thing)
    copy = keras.saving.deserialize_keras_object(written)
    assert type(copy) is type(thing)
    assert copy.get_config() == thing.get_config()
    assert_allclose(copy(*batch), thing(*batch))
    assert_allclose(type(thing).from_config(thing.get_config())(*batch), copy(*batch))


def test_a_compiled_model_reports_the_same_numbers():
    """Two batches of different sizes; Keras's own masks and means stay out."""
    labels, _ = a_batch()
    ids = np.random.default_rng(2).integers(0, VOCAB, labels.shape)
    model = keras.Sequential(
        [keras.layers.Embedding(VOCAB, 8), keras.layers.Dense(VOCAB)]
    )
    logits = model(ids)
    model.compile(
        optimizer="sgd",
        loss=MaskedLoss(0.1),
        metrics=[MaskedAccuracy(), Perplexity()],
    )
    numbers = model.evaluate(ids, labels, batch_size=3, verbose=0, return_dict=True)
    expected = numpy_version.cross_entropy(logits, labels, 0.1)
    assert_allclose(numbers["loss"], expected, rtol=1e-5)
    numbers = model.evaluate(ids, labels, batch_size=2, verbose=0, return_dict=True)
    assert_allclose(
        numbers["masked_accuracy"], numpy_version.accuracy(logits, labels), rtol=1e-5
    )
    assert_allclose(
        numbers["perplexity"], numpy_version.perplexity(logits, labels), rtol=1e-5
    )
