"""Compares losses and accuracy with NumPy and autodiff; padding never counts."""

import numpy as np
import numpy_transformer as numpy_version
import pytest
import tensorflow as tf
from keras import ops
from numpy.testing import assert_allclose

from tfxformer import masked_accuracy, masked_loss
from tfxformer.training.loss import CHUNK, output_loss, token_loss

DEPTH, VOCAB = 6, 11


def smoothed_loss(labels, logits):
    return masked_loss(labels, logits, label_smoothing=0.1)


LOSSES = [masked_loss, smoothed_loss, masked_accuracy]


def a_batch(seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(1, VOCAB, (3, 5))
    labels[1, 2:] = labels[2, 4:] = 0
    logits = scale * rng.normal(size=(3, 5, VOCAB))
    # Sometimes the label is the most probable, so that the accuracy is not always 0.
    right = rng.random(labels.shape) < 0.5
    logits += 3 * scale * right[..., None] * np.eye(VOCAB)[labels]
    return labels, logits.astype("float32")


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 1e4])
def test_masked_loss_and_masked_accuracy_agree_with_numpy(scale):
    labels, logits = a_batch(1, scale)
    for smoothing in (0.0, 0.1, 1.0):
        expected = numpy_version.cross_entropy(logits, labels, smoothing)
        found = masked_loss(labels, logits, smoothing)
        assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    expected = numpy_version.accuracy(logits, labels)
    assert_allclose(masked_accuracy(labels, logits), expected, rtol=1e-6)


@pytest.mark.parametrize("of", LOSSES)
def test_padding_does_not_change_loss_or_accuracy(of):
    labels, logits = a_batch()
    longer = np.pad(labels, ((0, 1), (0, 4)))
    padding = np.full((*longer.shape, VOCAB), 1e4, "float32")
    padding[..., 0] = 0
    padding[: labels.shape[0], : labels.shape[1]] = logits
    assert_allclose(of(longer, padding), of(labels, logits), rtol=1e-6)
    assert float(of(np.zeros_like(labels), logits)) == 0  # only padding


@pytest.mark.parametrize("of", LOSSES)
def test_loss_and_accuracy_accept_labels_and_logits_of_any_dtype(of):
    labels, logits = a_batch()
    for dtype in ("int64", "float32"):
        assert_allclose(of(labels.astype(dtype), logits), of(labels, logits))
    for dtype in ("float16", "bfloat16"):  # the sums are in float32
        half = tf.cast(logits, dtype)
        exact = of(labels, tf.cast(half, "float32"))
        assert_allclose(of(labels, half), exact, rtol=1e-5)


# --- The fused output projection and loss ---


def a_case(positions, with_bias=True, dtype="float32", scale=1.0):
    """The tensors x, embeddings and bias, and labels with some padding."""
    rng = np.random.default_rng(positions)
    labels = rng.integers(1, VOCAB, positions).astype("int32")
    labels[rng.random(positions) < 0.3] = 0
    labels[0] = 7
    shapes = [(positions, DEPTH), (VOCAB, DEPTH), (VOCAB,)]
    x, embeddings, bias = (rng.normal(size=shape).astype("float32") for shape in shapes)
    x = tf.cast(scale * x, dtype)
    weights = [tf.constant(embeddings), tf.constant(bias)][: 1 + with_bias]
    return [x, *weights], labels


def fused(weights, labels, smoothing):
    x, embeddings, *bias = weights
    return output_loss(x, embeddings, bias[0] if bias else None, labels, smoothing)


def plain(weights, labels, smoothing):
    """The same, computed from all logits."""
    x, embeddings, *bias = weights
    logits = ops.matmul(x, ops.transpose(embeddings)) + (bias[0] if bias else 0.0)
    real = ops.cast(labels != 0, "float32")
    correct = ops.cast(ops.argmax(logits, axis=-1) == labels, "float32")
    losses = [token_loss(labels, logits, e) for e in (smoothing, 0.0)]
    return ops.stack([ops.sum(each * real) for each in (*losses, correct, real)])


def sums_and_gradients(of, weights, labels, smoothing=0.1, factor=1.0):
    with tf.GradientTape() as tape:
        tape.watch(weights)
        sums = of(weights, labels, smoothing)
        loss = factor * sums[0]
    return sums.numpy(), [slope.numpy() for slope in tape.gradient(loss, weights)]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("positions", [1, CHUNK - 1, CHUNK, 2 * CHUNK + 3])
def test_the_fused_loss_and_its_gradients_equal_those_from_all_logits(
    positions, smoothing, with_bias
):
    weights, labels = a_case(positions, with_bias)
    found, slopes = sums_and_gradients(fused, weights, labels, smoothing)
    expected, right = sums_and_gradients(plain, weights, labels, smoothing)
    assert_allclose(found, expected, rtol=1e-5)
    assert len(slopes) == 2 + with_bias
    for slope, by_autodiff in zip(slopes, right, strict=True):
        assert np.abs(by_autodiff).max() > 0.1
        assert_allclose(slope, by_autodiff, rtol=1e-4, atol=1e-5)
    assert (slopes[0][labels == 0] == 0).all()
    # Loss scaling: a factor of the loss scales its gradients.
    _, scaled = sums_and_gradients(fused, weights, labels, smoothing, factor=1024.0)
    for slope, larger in zip(slopes, scaled, strict=True):
        assert_allclose(larger, 1024 * slope, rtol=1e-5)


def test_the_fused_loss_is_right_for_large_logits_and_zero_for_padding_alone():
    weights, labels = a_case(9, scale=100.0)
    found, _ = sums_and_gradients(fused, weights, labels)
    assert_allclose(found, plain(weights, labels, 0.1), rtol=1e-4)
    found, slopes = sums_and_gradients(fused, weights, np.zeros_like(labels))
    assert not found.any() and not any(slope.any() for slope in slopes)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_fused_loss_in_half_precision_is_close_to_float32(dtype):
    """The product has low precision; sums of hundreds of losses must not lose more."""
    half, labels = a_case(2 * CHUNK, dtype=dtype)
    exact = [tf.cast(x, "float32") for x in half]
    found, slopes = sums_and_gradients(fused, half, labels)
    expected, right = sums_and_gradients(fused, exact, labels)
    # Rounding makes near ties equal, so the accuracy may differ by one token.
    assert_allclose(found, expected, rtol=1e-2, atol=3)
    assert [str(x.dtype) for x in (found, *slopes)] == [
        "float32",
        dtype,
        *["float32"] * 2,
    ]
    for slope, by_float32 in zip(slopes, right, strict=True):
        tolerance = 0.02 * np.abs(by_float32).max()
        assert_allclose(slope.astype("float32"), by_float32, atol=tolerance, rtol=0.02)


def test_the_fused_loss_computes_one_chunk_of_logits_at_a_time():
    weights, labels = a_case(8 * CHUNK)

    def largest(of):
        """The largest tensor with an axis of the vocabulary, gradients included."""

        @tf.function
        def graph(weights):
            with tf.GradientTape() as tape:
                tape.watch(weights)
                loss = of(weights, labels, 0.1)[0]
            return tape.gradient(loss, weights)

        found = graph.get_concrete_function(weights).graph
        found = found.as_graph_def(add_shapes=True)
        nodes = [*found.node]
        for inner in found.library.function:
            nodes += inner.node_def
        shapes = [
            [dim.size for dim in shape.dim]
            for node in nodes
            for shape in node.attr["_output_shapes"].list.shape
        ]
        return max(np.prod(shape) for shape in shapes if VOCAB in shape)

    assert largest(fused) == CHUNK * VOCAB
    # With all logits it is larger, so this measure works.
    assert largest(plain) >= 8 * CHUNK * VOCAB
