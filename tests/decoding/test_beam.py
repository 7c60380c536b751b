"""Compares beam search with greedy, exhaustive and textbook search in NumPy."""

import numpy as np
import pytest
from decoding_oracle import (
    beam_search,
    best,
    decode_with,
    rank,
    score_every_sequence,
    small_model,
    written,
)
from numpy.testing import assert_allclose

from tfxformer.decoding import DecodingOptions
from tfxformer.decoding.options import NEVER
from tfxformer.special_tokens import END_ID

SENTENCES = [[4, 5, 3], [6, 6, 4, 5, 3], [3], [5, 3], [4, 4, 6, 6, 5, 5, 3]]


@pytest.mark.parametrize(
    ("variant", "options"),
    [(0, {"beam_size": 2}), (1, {"beam_size": 3, "no_repeat_ngram": 2})],
)
def test_a_beam_never_ranks_below_greedy(variant, options):
    model, options = small_model(variant), {"max_length": 8, **options}
    found = decode_with(model, SENTENCES, **options)
    greedy = decode_with(model, SENTENCES, **options | {"beam_size": 1})
    assert (found.rank >= greedy.rank - 1e-6).all()


EXHAUSTIVE = {
    "mean": {"n_best": 9},
    "alpha 3": {"length_penalty": 3.0},
    "alpha 0.8": {"length_penalty": 0.8, "n_best": 9},
    "all": {"n_best": 128},
    "no repeat": {"no_repeat_ngram": 2, "n_best": 3},
    "prefix": {"prefix": (6, 4, 4), "n_best": 3, "length_penalty": 0.6},
    "repeated prefix": {"prefix": (5, 5), "no_repeat_ngram": 1, "n_best": 2},
}


@pytest.mark.parametrize("name", EXHAUSTIVE)
def test_a_beam_as_wide_as_the_search_space_equals_exhaustive_search(name):
    case, sentences = dict(EXHAUSTIVE[name]), SENTENCES[:2]
    variant = list(EXHAUSTIVE).index(name) % 2
    prefix = case.pop("prefix", ())
    case = {"beam_size": 128, "max_length": 4, **case}
    options = DecodingOptions(**case)
    decoded = decode_with(
        small_model(variant),
        sentences,
        np.array([prefix] * 2, "int32") if prefix else None,
        **case,
    )
    for sentence, ids, score, ranks in zip(
        sentences, decoded.ids, decoded.score, decoded.rank, strict=True
    ):
        everything = score_every_sequence(variant, tuple(sentence), 4)
        expected = best(everything, options, prefix)
        count = len(expected)
        assert count == min(options.n_best, 121) or "repeat" in name
        assert [written(x) for x in ids[:count]] == [x.ids for x in expected]
        assert_allclose(score[:count], [x.score for x in expected], atol=1e-4)
        expected_rank = [rank(x, options) for x in expected]
        assert_allclose(ranks[:count], expected_rank, rtol=1e-5, atol=1e-4)
        # The rest of the n-best list is empty.
        assert not ids[count:].any() and not score[count:].any()
        assert (ranks[count:] <= NEVER / 2).all()


@pytest.mark.slow
@pytest.mark.parametrize("variant", [0, 1, 2])
@pytest.mark.parametrize(
    "case",
    [
        {"beam_size": 2, "max_length": 6},
        {"beam_size": 3, "n_best": 3, "max_length": 5, "length_penalty": 0.6},
        {"beam_size": 4, "n_best": 2, "max_length": 4},
        {"beam_size": 3, "n_best": 2, "max_length": 6, "no_repeat_ngram": 2},
    ],
)
def test_narrow_beams_agree_with_a_textbook_beam_search(variant, case):
    model, options = small_model(variant), DecodingOptions(**case)
    sentences = SENTENCES[:2]
    decoded = decode_with(model, sentences, **case)
    for row, sentence in enumerate(sentences):
        expected = beam_search(model, sentence, options.max_length, options)
        count = len(expected)
        ids = [written(x) for x in decoded.ids[row, :count]]
        assert ids == [x.ids for x in expected]
        ranks = [rank(x, options) for x in expected]
        assert_allclose(decoded.rank[row, :count], ranks, atol=1e-4)
        assert not decoded.ids[row, count:].any()


def test_beam_search_stops_when_no_better_hypothesis_is_possible():
    """When the end is nearly certain, one step finds the best; more need more steps."""
    certain = small_model(0, end_bias=30.0)
    one = decode_with(certain, [[4, 5, 3]], beam_size=3)
    assert one.ids.tolist() == [[[END_ID]]]
    four = decode_with(certain, [[4, 5, 3]], beam_size=3, n_best=3)
    assert four.ids.shape[-1] < 16  # the limit
