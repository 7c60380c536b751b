"""The output projection and its loss in one."""

import autodiff
import keras
import numpy as np
import numpy_transformer as numpy_version
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops
from numpy.testing import assert_allclose

from tfxformer.training.loss import CHUNK, output_loss, token_loss

DEPTH, VOCAB = 6, 11
# Around a chunk, and around two.
POSITIONS = [1, 5, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3]
some_smoothing = pytest.mark.parametrize("smoothing", [0.0, 0.1])
with_and_without_bias = pytest.mark.parametrize("with_bias", [False, True])


def a_case(positions, with_bias=True, seed=0):
    """Variables of x, embeddings and bias, and labels of which some are padding."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(1, VOCAB, positions).astype("int32")
    labels[rng.random(positions) < 0.3] = 0
    labels[0] = 7
    shapes = [(positions, DEPTH), (VOCAB, DEPTH)] + [(VOCAB,)] * with_bias
    weights = [keras.Variable(rng.normal(size=s).astype("float32")) for s in shapes]
    return weights, labels


def arrays_of(weights):
    x, embeddings, *bias = (ops.convert_to_numpy(w).astype("float64") for w in weights)
    return x, embeddings, bias[0] if bias else np.zeros(VOCAB)


def sums_of(weights, labels, smoothing):
    x, embeddings, *bias = (ops.multiply(w, 1) for w in weights)  # reads them
    return output_loss(x, embeddings, bias[0] if bias else None, labels, smoothing)


def plain_loss(weights, labels, smoothing):
    """The same by way of the logits, for autodiff."""
    x, embeddings, *bias = weights
    logits = ops.matmul(x, ops.transpose(embeddings)) + (bias[0] if bias else 0.0)
    loss = token_loss(labels, logits, smoothing)
    return ops.sum(loss * ops.cast(labels != 0, "float32"))


# --- Numbers ------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(POSITIONS),
    st.booleans(),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.integers(0, 1000),
)
def test_agrees_with_numpy(positions, with_bias, smoothing, seed):
    weights, labels = a_case(positions, with_bias, seed)
    x, embeddings, bias = arrays_of(weights)
    logits, tokens = x @ embeddings.T + bias, (labels != 0).sum()
    sums = sums_of(weights, labels, smoothing)
    assert float(sums[3]) == tokens
    for found, smoothed in ((sums[0], smoothing), (sums[1], 0.0)):
        expected = numpy_version.cross_entropy(logits, labels, smoothed) * tokens
        assert_allclose(float(found), expected, rtol=1e-5)
    expected = numpy_version.accuracy(logits, labels) * tokens
    assert_allclose(float(sums[2]), expected, rtol=1e-6)


@with_and_without_bias
@some_smoothing
@pytest.mark.parametrize("positions", [5, CHUNK, CHUNK + 1])
def test_gradients_are_those_of_autodiff(positions, smoothing, with_bias):
    weights, labels = a_case(positions, with_bias)
    value, found = autodiff.gradients(
        lambda: sums_of(weights, labels, smoothing)[0], weights
    )
    expected_value, expected = autodiff.gradients(
        lambda: plain_loss(weights, labels, smoothing), weights
    )
    assert_allclose(value, expected_value, rtol=1e-5)
    assert len(found) == 2 + with_bias
    for slope, by_autodiff in zip(found, expected, strict=True):
        assert np.abs(by_autodiff).max() > 0.1
        assert_allclose(slope, by_autodiff, rtol=1e-4, atol=1e-5)


def test_a_factor_of_the_loss_is_one_of_its_gradients():
    weights, labels = a_case(9)
    _, once = autodiff.gradients(lambda: sums_of(weights, labels, 0.1)[0], weights)
    _, more = autodiff.gradients(
        lambda: 1024.0 * sums_of(weights, labels, 0.1)[0], weights
    )
    for slope, larger in zip(once, more, strict=True):
        assert_allclose(larger, 1024 * slope, rtol=1e-5)


@some_smoothing
def test_padding_has_no_part_in_it(smoothing):
    weights, labels = a_case(7)
    _, slopes = autodiff.gradients(
        lambda: sums_of(weights, labels, smoothing)[0], weights
    )
    assert (slopes[0][labels == 0] == 0).all()
    assert (np.abs(slopes[0][labels != 0]).max(-1) > 0).all()
    # Whatever stands there.
    other = ops.convert_to_numpy(weights[0]).copy()
    other[labels == 0] = 1e3
    other = [keras.Variable(other), *weights[1:]]
    for a, b in zip(
        sums_of(weights, labels, smoothing),
        sums_of(other, labels, smoothing),
        strict=True,
    ):
        assert_allclose(float(a), float(b), rtol=1e-6)
    _, others = autodiff.gradients(lambda: sums_of(other, labels, smoothing)[0], other)
    for a, b in zip(slopes, others, strict=True):
        assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@some_smoothing
@with_and_without_bias
def test_nothing_but_padding(with_bias, smoothing):
    weights, labels = a_case(CHUNK + 2, with_bias)
    labels = np.zeros_like(labels)
    assert [float(x) for x in sums_of(weights, labels, smoothing)] == [0, 0, 0, 0]
    _, slopes = autodiff.gradients(
        lambda: sums_of(weights, labels, smoothing)[0], weights
    )
    assert not any(slope.any() for slope in slopes)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@with_and_without_bias
def test_half_precision(dtype, with_bias):
    """The product has few digits; sums of hundreds of losses must not lose more."""
    (x, *others), labels = a_case(2 * CHUNK, with_bias)
    half = keras.Variable(ops.cast(x, dtype), dtype=dtype)
    weights = [half, *others]
    exact = [keras.Variable(ops.cast(half, "float32")), *others]
    sums = sums_of(weights, labels, 0.1)
    for found, expected in zip(sums, sums_of(exact, labels, 0.1), strict=True):
        assert keras.backend.standardize_dtype(found.dtype) == "float32"
        # Logits that are nearly the same may be the same: one more or less is right.
        assert_allclose(float(found), float(expected), rtol=1e-2, atol=3)
    _, slopes = autodiff.gradients(lambda: sums_of(weights, labels, 0.1)[0], weights)
    _, expected = autodiff.gradients(lambda: sums_of(exact, labels, 0.1)[0], exact)
    assert [str(slope.dtype) for slope in slopes] == [
        dtype,
        *["float32"] * (1 + with_bias),
    ]
    for slope, right in zip(slopes, expected, strict=True):
        tolerance = 0.02 * np.abs(right).max()
        assert_allclose(slope.astype("float32"), right, atol=tolerance, rtol=0.02)


def test_large_logits():
    weights, labels = a_case(9)
    weights[0].assign(100 * weights[0])
    x, embeddings, bias = arrays_of(weights)
    expected = numpy_version.cross_entropy(x @ embeddings.T + bias, labels, 0.1)
    sums = sums_of(weights, labels, 0.1)
    assert_allclose(float(sums[0] / sums[3]), expected, rtol=1e-4)


# --- Memory -------------------------------------------------------------------------


@with_and_without_bias
def test_the_logits_never_all_exist(with_bias):
    weights, labels = a_case(8 * CHUNK, with_bias)

    def sizes(loss):
        found = autodiff.shapes_of(loss, *weights)
        return [np.prod(shape) for shape in found if VOCAB in shape]

    chunk = CHUNK * VOCAB
    ours = sizes(lambda: sums_of(weights, labels, 0.1)[0])
    assert max(ours) == chunk
    # By way of the logits they do; so shapes are seen where there are any.
    assert max(sizes(lambda: plain_loss(weights, labels, 0.1))) >= 8 * chunk
