"""`decode` as a whole: properties of every search method, in graphs and eagerly."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from decoding_oracle import (
    LETTERS,
    decode_with,
    is_allowed,
    pad,
    score_all,
    small_model,
    written,
)
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer.decoding import DecodingOptions, decode
from tfxformer.special_tokens import END_ID

# Only the end token; short ones; some end at once, some are cut off late.
SENTENCES = [[3], [4, 3], [5, 6, 3], [5, 6, 4, 5, 4, 4, 6, 5, 3], [6, 6, 3], [6, 3]]
# Each method with all its options.
METHODS = {
    "greedy": {"no_repeat_ngram": 3},
    "beam": {
        "beam_size": 3,
        "n_best": 2,
        "length_penalty": 0.6,
        "no_repeat_ngram": 2,
    },
    "sampling": {"sampling": True, "n_best": 2, "top_p": 0.9, "seed": 3},
}
methods = pytest.mark.parametrize("method", METHODS)


def same(actual, expected, tolerance=1e-5):
    """Compares ids, ignoring the width of padding, and numbers."""
    width = max(actual.ids.shape[-1], expected.ids.shape[-1])
    narrow, wide = (
        np.pad(x.ids, [(0, 0), (0, 0), (0, width - x.ids.shape[-1])])
        for x in (actual, expected)
    )
    assert_array_equal(narrow, wide)
    assert_allclose(actual.score, expected.score, atol=tolerance)
    assert_allclose(actual.rank, expected.rank, rtol=1e-5, atol=tolerance)


def rows_of(decoded, rows):
    return decoded._replace(
        **{x: np.asarray(getattr(decoded, x))[rows] for x in ("ids", "score", "rank")}
    )


@functools.cache
def in_a_graph(method, **settings):
    return tf.function(
        functools.partial(
            decode,
            small_model(**settings),
            options=DecodingOptions(**METHODS[method]),
        ),
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
    )


@methods
def test_translations_obey_the_options_and_have_the_model_s_scores_and_attention(
    method,
):
    """Some have a prefix; scores and attention equal those of a full forward pass."""
    model, prefixes = small_model(1), [(), (5,), (), (4, 4), (6, 5, 4), ()]
    options = DecodingOptions(**METHODS[method], max_length=7)
    decoded = decode_with(
        model, SENTENCES, pad(prefixes, 3), True, **METHODS[method], max_length=7
    )
    assert not decoded.ids[0].any() and not decoded.score[0].any()
    for row in range(1, len(SENTENCES)):
        answers = [ids for ids in map(written, decoded.ids[row]) if ids]
        assert answers
        assert len({*answers}) == len(answers) or method == "sampling"
        assert (np.diff(decoded.rank[row, : len(answers)]) <= 0).all()  # best first
        for ids in answers:
            assert is_allowed(ids, options, prefixes[row])
            assert ids.count(END_ID) == (ids[-1] == END_ID)
            assert len(ids) <= 7 and (ids[-1] == END_ID or len(ids) == 7)
        expected = score_all(model, SENTENCES[row], answers)
        found = decoded.score[row, : len(answers)]
        assert_allclose(found, [x.score for x in expected], atol=1e-4)
        length = len(SENTENCES[row])
        for ids, scored, weights in zip(
            answers, expected, decoded.attention[row], strict=False
        ):
            actual = weights[:, :, : len(ids), :length]
            assert_allclose(actual, scored.attention, atol=1e-5)
            assert_allclose(weights.sum(), actual.sum(), rtol=1e-5)


@methods
def test_decoded_ids_and_scores_do_not_depend_on_the_rest_of_the_batch(method):
    """The neighbours end at different steps, so the batch shrinks."""
    rng = np.random.default_rng(0)
    batch = [[*rng.choice(LETTERS, rng.integers(0, 8)), END_ID] for _ in range(24)]
    decode = in_a_graph(method)
    together = decode(pad(batch))
    lengths = {len(written(ids)) for ids in together.ids.numpy()[:, 0]}
    assert len(lengths) > 3 and 0 in lengths
    order = rng.permutation(24)
    moved = decode(pad([batch[i] for i in order], 11))
    same(moved, rows_of(together, order))
    for row in range(0, 24, 4):
        same(rows_of(together, [row]), decode(pad(batch[row : row + 1])))


@methods
def test_decoding_in_a_graph_equals_eager_decoding(method):
    expected = in_a_graph(method)(pad(SENTENCES))
    same(decode_with(small_model(0), SENTENCES, **METHODS[method]), expected)


def test_greedy_scores_in_a_float16_graph_agree_with_a_forward_pass():
    """On some CPUs, a product of TensorFlow's in float16 gives an empty tensor."""
    half = {"dtype": "mixed_float16", "num_layers": 1}
    found = in_a_graph("greedy", **half)(pad(SENTENCES))
    for source, ids, score in zip(SENTENCES, found.ids, found.score, strict=True):
        (expected,) = score_all(small_model(**half), source, [written(ids[0])])
        assert_allclose(score[0], expected.score, atol=0.02)


@methods
def test_a_translation_without_an_end_token_is_cut_off_at_its_limit(method):
    never = small_model(0, end_bias=-1e4, max_length=15)
    options = {**METHODS[method], "no_repeat_ngram": 0}
    decoded = decode_with(never, SENTENCES, **options)
    assert [len(written(ids)) for ids in decoded.ids[:, 0]] == [0, 14, 15, 15, 15, 14]
    assert END_ID not in decoded.ids
    assert np.isfinite(decoded.score).all() and (decoded.score[1:] < 0).all()


@pytest.mark.parametrize("options", [{}, {"beam_size": 2}])
def test_decoding_accepts_a_source_or_a_prefix_of_the_maximum_length(options):
    model = small_model(0, max_length=6)
    decoded = decode_with(model, [[4] * 5 + [END_ID]], **options)
    assert 1 <= len(written(decoded.ids[0, 0])) <= 6
    for length in (5, 9):
        prefix = np.full((2, length), 5, "int32")
        decoded = decode_with(model, [[4, 3], [3]], prefix, **options)
        assert written(decoded.ids[0, 0])[:length] == (5,) * min(length, 6)
        assert not decoded.ids[1].any()


@methods
@pytest.mark.parametrize("shape", [(0, 5), (2, 1)])
def test_an_empty_batch_and_empty_sentences_decode_to_no_tokens(method, shape):
    source = np.zeros(shape, np.int32)
    source[:, :1] = END_ID
    options = DecodingOptions(**METHODS[method])
    eager = decode(small_model(0), source, options, attention=True)
    assert eager.attention.shape == (shape[0], options.n_best, 2, 2, 0, shape[1])
    for decoded in (eager, in_a_graph(method)(source)):
        assert decoded.ids.shape == (shape[0], options.n_best, 0)
        assert_array_equal(decoded.score, np.zeros((shape[0], options.n_best)))
