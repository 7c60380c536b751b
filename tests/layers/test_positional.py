"""Embeddings and positions."""

import numpy as np
import numpy_transformer as numpy_version
import oracle
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer import PositionalEmbedding, positional_encoding

IDS = np.array([[7, 8, 3, 0], [4, 3, 0, 0]])


def make(**options):
    layer = PositionalEmbedding(vocab_size=20, d_model=16, **options)
    layer.build((None, None))
    return oracle.randomise(layer)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 300), st.integers(1, 65))
def test_encoding_agrees_with_numpy(length, depth):
    encoding = positional_encoding(length, depth)
    assert encoding.dtype == np.float32
    expected = numpy_version.positional_encoding(length, depth)
    assert_allclose(encoding, expected, rtol=0, atol=1e-6)


def test_encoding_is_the_papers_formula_in_numbers():
    # 10000^(2/4) is 100.
    expected = [[np.sin(3), np.cos(3), np.sin(0.03), np.cos(0.03)]]
    assert_allclose(positional_encoding(4, 4)[3:], expected, atol=1e-7)


@pytest.mark.parametrize("shift", [1, 7, 100])
def test_a_shift_is_linear(shift):
    """One matrix, the same for all positions, turns PE(pos) into PE(pos + k)."""
    encoding = np.asarray(positional_encoding(300, 16), "float64")
    here, there = encoding[:-shift], encoding[shift:]
    matrix, *_ = np.linalg.lstsq(here, there, rcond=None)
    assert_allclose(here @ matrix, there, atol=1e-5)


@pytest.mark.parametrize("learned", [False, True])
def test_layer_agrees_with_numpy(learned):
    layer = make(learned_positions=learned, max_length=10)
    weights = {"embedding": np.asarray(layer.embedding.embeddings)}
    if learned:
        weights["positions"] = np.asarray(layer.positions)
    expected = numpy_version.embed(IDS, weights)
    assert_allclose(layer(IDS), expected, rtol=1e-5, atol=1e-5)


def test_without_positions_only_the_scaled_embedding_is_left():
    layer = make(use_positions=False)
    expected = np.asarray(layer.embedding.embeddings)[IDS] * 4
    assert_allclose(layer(IDS), expected, rtol=1e-6)


@pytest.mark.parametrize("learned", [False, True])
def test_pieces_and_encodings_are_its_two_parts(learned):
    layer = make(learned_positions=learned)
    pieces, encodings = layer.pieces(IDS), layer.encodings(IDS.shape[1])
    assert pieces.shape == (2, 4, 16) and encodings.shape == (4, 16)
    assert_allclose(layer(IDS), np.asarray(pieces) + np.asarray(encodings), atol=1e-6)
    # One token of each sentence, as in decoding.
    assert_allclose(layer.pieces(IDS[:, 1]), pieces[:, 1], atol=1e-6)
    # Fewer encodings are the first of them; their number may be a tensor.
    traced = tf.function(layer.encodings, [tf.TensorSpec([], tf.int32)])
    assert_allclose(traced(3), encodings[:3], atol=1e-6)


def test_keras_mask_hides_padding():
    assert_array_equal(make()(IDS)._keras_mask, IDS != 0)


def test_an_embedding_can_be_shared():
    mine = make()
    shared = PositionalEmbedding(20, 16, embedding=mine.embedding)
    assert_array_equal(shared(IDS), mine(IDS))
    assert len(shared.weights) == 1


def test_too_many_positions():
    layer = make(max_length=3)
    layer(IDS[:, :3])
    with pytest.raises(ValueError, match=r"4 positions.*max_length=3"):
        layer(IDS)


def test_lengths_that_are_not_known_when_traced():
    layer = make()
    traced = tf.function(
        lambda ids: layer(ids), [tf.TensorSpec([None, None], tf.int64)]
    )
    assert_allclose(traced(IDS), layer(IDS), atol=1e-6)
