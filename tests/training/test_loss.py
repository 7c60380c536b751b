"""The loss and the accuracy, against NumPy: padding never counts."""

import keras
import numpy as np
import numpy_transformer as numpy_version
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from tfxformer import masked_accuracy, masked_loss
from tfxformer.training.loss import token_loss

VOCAB = 7


def smoothed_loss(labels, logits):
    return masked_loss(labels, logits, label_smoothing=0.1)


LOSSES = [masked_loss, smoothed_loss, masked_accuracy]


def a_batch(seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(1, VOCAB, (3, 5))
    labels[1, 2:] = labels[2, 4:] = 0
    logits = scale * rng.normal(size=(3, 5, VOCAB))
    # Sometimes the label is the likeliest, so that accuracy is not always 0.
    right = rng.random(labels.shape) < 0.5
    logits += 3 * scale * right[..., None] * np.eye(VOCAB)[labels]
    return labels, logits.astype("float32")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 1e4])
def test_they_are_what_numpy_finds(seed, scale):
    labels, logits = a_batch(seed, scale)
    for smoothing in (0.0, 0.1, 0.5, 1.0):
        expected = numpy_version.cross_entropy(logits, labels, smoothing)
        found = masked_loss(labels, logits, smoothing)
        assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        each = token_loss(labels, logits, smoothing) * (labels != 0)
        mean = np.sum(each) / np.count_nonzero(labels)
        assert_allclose(mean, expected, rtol=1e-5, atol=1e-5)
    expected = numpy_version.accuracy(logits, labels)
    assert_allclose(masked_accuracy(labels, logits), expected, rtol=1e-6)


@pytest.mark.parametrize("of", LOSSES)
def test_more_padding_changes_nothing(of):
    labels, logits = a_batch()
    longer = np.pad(labels, ((0, 1), (0, 4)))
    padding = np.full((*longer.shape, VOCAB), 1e4, "float32")
    padding[..., 0] = 0
    padding[: labels.shape[0], : labels.shape[1]] = logits
    assert_allclose(of(longer, padding), of(labels, logits), rtol=1e-6)
    assert float(of(np.zeros_like(labels), logits)) == 0  # nothing but padding


@pytest.mark.parametrize("of", LOSSES[:2])
def test_padding_has_no_gradient(of):
    labels, logits = a_batch()
    logits = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = of(labels, logits)
    gradient = tape.gradient(loss, logits).numpy()
    assert (gradient[labels == 0] == 0).all()
    assert (np.abs(gradient[labels != 0]).max(-1) > 0).all()


def test_by_hand():
    # Softmax of (0, ln 3): 1/4 and 3/4.
    logits = np.array([[[0, np.log(3)], [0, np.log(3)], [9, 9]]], "float32")
    labels = np.array([[1, 1, 0]])
    assert_allclose(masked_loss(labels, logits), np.log(4 / 3), rtol=1e-6)
    assert_allclose(masked_accuracy(labels, logits), 1)
    # A smoothed target of 0.9 + 0.1 / 2 and 0.1 / 2.
    expected = 0.95 * np.log(4 / 3) + 0.05 * np.log(4)
    assert_allclose(smoothed_loss(labels, logits), expected, rtol=1e-6)


@pytest.mark.parametrize("of", LOSSES)
def test_labels_and_logits_of_any_type(of):
    labels, logits = a_batch()
    for dtype in ("int64", "float32"):
        assert_allclose(of(labels.astype(dtype), logits), of(labels, logits))
    for dtype in ("float16", "bfloat16"):  # the sums are in float32
        half = tf.cast(logits, dtype)
        exact = of(labels, tf.cast(half, "float32"))
        assert_allclose(of(labels, half), exact, rtol=1e-5)


def test_a_compiled_model_reports_the_same_numbers():
    """Keras's own masks and means stay out."""
    labels, _ = a_batch()
    ids = np.random.default_rng(2).integers(0, VOCAB, labels.shape)
    layers = [keras.layers.Embedding(VOCAB, 8), keras.layers.Dense(VOCAB)]
    model = keras.Sequential(layers)
    logits = model(ids)
    model.compile("sgd", smoothed_loss, metrics=[masked_accuracy])
    numbers = model.evaluate(ids, labels, batch_size=3, verbose=0, return_dict=True)
    expected = numpy_version.cross_entropy(logits, labels, 0.1)
    assert_allclose(numbers["loss"], expected, rtol=1e-5)
    expected = numpy_version.accuracy(logits, labels)
    assert_allclose(numbers["masked_accuracy"], expected, rtol=1e-5)
