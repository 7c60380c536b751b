"""Beam search: against greedy, exhaustive search and the textbook's, in NumPy."""

import numpy as np
import pytest
from decoding_oracle import (
    LETTERS,
    SPECIAL,
    beam_search,
    best,
    decode_with,
    rank,
    score_every_sequence,
    small_model,
    written,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tfxformer.decoding import DecodingOptions
from tfxformer.decoding.beam import ranking
from tfxformer.decoding.options import NEVER
from tfxformer.tokenizer import END_ID

SENTENCES = [[4, 5, 3], [6, 6, 4, 5, 3], [3], [5, 3], [4, 4, 6, 6, 5, 5, 3]]


# --- Beside greedy ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "fixed", "options"),
    [
        (0, False, {}),
        (1, False, {"no_repeat_ngram": 2}),
        (2, False, {"max_length": 4}),
        (0, True, {"no_repeat_ngram": 3, "max_length": 8}),
        (1, True, {"max_length": 5}),
        (3, False, {"prefix": [[5, 6], [4, 0], [4, 4], [0, 0], [3, 0]]}),
    ],
)
def test_a_beam_never_ranks_below_greedy(variant, fixed, options):
    options = dict(options)
    prefix = options.pop("prefix", None)
    prefix = prefix and np.array(prefix, "int32")
    arguments = {"attention": True, "xla": fixed, **options}
    greedy = decode_with(small_model(variant), SENTENCES, prefix, **arguments)
    same = 0
    for beams in (2, 3):
        found = decode_with(
            small_model(variant), SENTENCES, prefix, beam_size=beams, **arguments
        )
        assert (found.rank >= greedy.rank - 1e-6).all()
        for row in range(len(SENTENCES)):
            ids = written(greedy.ids[row, 0])
            if written(found.ids[row, 0]) == ids:
                same += 1
                assert_allclose(found.score[row], greedy.score[row], atol=1e-6)
                ours, theirs = (
                    x.attention[row, 0, :, :, : len(ids)] for x in (found, greedy)
                )
                assert_allclose(ours, theirs, atol=1e-6)
    assert same  # or nothing was compared


# --- A beam as wide as the space ----------------------------------------------------

EXHAUSTIVE = {
    "mean": {},
    "alpha 0": {"length_penalty": 0.0},
    "alpha 0.6": {"length_penalty": 0.6},
    "alpha 1": {"length_penalty": 1.0},
    "alpha 3": {"length_penalty": 3.0},
    "coverage": {"coverage_penalty": 0.3},
    "alpha and coverage": {"length_penalty": 0.8, "coverage_penalty": 0.5},
    "n-best": {"n_best": 9},
    "n-best, alpha": {"n_best": 9, "length_penalty": 0.6, "coverage_penalty": 0.1},
    "all": {"n_best": 128},
    "no_repeat 1": {"no_repeat_ngram": 1, "n_best": 3},
    "no_repeat 2": {"no_repeat_ngram": 2, "n_best": 3},
    "prefix": {"prefix": (5,), "n_best": 3},
    "prefix of 3": {"prefix": (6, 4, 4), "n_best": 3, "length_penalty": 0.6},
    "repeated prefix": {"prefix": (5, 5), "no_repeat_ngram": 1, "n_best": 2},
}


@pytest.mark.parametrize("name", EXHAUSTIVE)
def test_a_beam_as_wide_as_the_space_is_exhaustive_search(name):
    case, sentences = dict(EXHAUSTIVE[name]), SENTENCES[:2]
    variant = list(EXHAUSTIVE).index(name) % 2
    prefix = case.pop("prefix", ())
    case = {"beam_size": 128, "max_length": 4, **case}
    options = DecodingOptions(**case)
    decoded = decode_with(
        small_model(variant),
        sentences,
        np.array([prefix] * 2, "int32") if prefix else None,
        xla=variant == 1,
        **case,
    )
    for sentence, ids, score, ranks in zip(
        sentences, decoded.ids, decoded.score, decoded.rank, strict=True
    ):
        everything = score_every_sequence(variant, tuple(sentence), 4)
        expected = best(everything, options, prefix)
        count = len(expected)
        assert count == min(options.n_best, 121) or "repeat" in str(case)
        assert [written(x) for x in ids[:count]] == [x.ids for x in expected]
        assert_allclose(score[:count], [x.score for x in expected], atol=1e-4)
        expected_rank = [rank(x, options) for x in expected]
        assert_allclose(ranks[:count], expected_rank, rtol=1e-5, atol=1e-4)
        # Places for which there is nothing.
        assert not ids[count:].any() and not score[count:].any()
        assert (ranks[count:] <= NEVER / 2).all()


def test_the_search_matters():
    """What is exhaustively best is neither greedy nor the same for each ranking."""
    sentence, answers = (6, 6, 4, 5, 3), set()
    for variant in (0, 1):
        greedy = decode_with(small_model(variant), [sentence], max_length=4)
        found = set()
        for name in ("mean", "alpha 0", "alpha 3", "alpha and coverage"):
            options = DecodingOptions(beam_size=2, **EXHAUSTIVE[name])
            everything = score_every_sequence(variant, sentence, 4)
            found.add(best(everything, options)[0].ids)
        assert len(found) > 1
        answers.add(found == {written(greedy.ids[0, 0])})
    assert answers == {False}


# --- Narrow beams -------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=18, deadline=None)
@given(
    variant=st.integers(0, 2),
    sentence=st.lists(st.sampled_from(LETTERS), min_size=1, max_size=5),
    beams=st.integers(2, 4),
    n_best=st.integers(1, 4),
    limit=st.integers(1, 6),
    alpha=st.sampled_from([None, 0.0, 0.6, 1.5]),
    beta=st.sampled_from([0.0, 0.2]),
    constraints=st.sampled_from([{}, {"no_repeat_ngram": 2}]),
    fixed=st.booleans(),
)
def test_narrow_beams_agree_with_the_textbooks(
    variant, sentence, beams, n_best, limit, alpha, beta, constraints, fixed
):
    case = {
        "beam_size": beams,
        "n_best": min(n_best, beams),
        "max_length": limit,
        "length_penalty": alpha,
        "coverage_penalty": beta,
        **constraints,
    }
    model, sentence = small_model(variant), [*sentence, END_ID]
    decoded = decode_with(model, [sentence], attention=True, xla=fixed, **case)
    options = DecodingOptions(**case)
    expected = beam_search(model, sentence, limit, options)
    count = len(expected)
    assert [written(x) for x in decoded.ids[0, :count]] == [x.ids for x in expected]
    assert_allclose(decoded.score[0, :count], [x.score for x in expected], atol=1e-4)
    ranks = [rank(x, options) for x in expected]
    assert_allclose(decoded.rank[0, :count], ranks, atol=1e-4)
    for scored, weights in zip(expected, decoded.attention[0], strict=False):
        length = len(scored.ids)
        assert_allclose(weights[:, :, :length], scored.attention, atol=1e-5)
        assert (weights[:, :, length:] == 0).all()
    assert not decoded.ids[0, count:].any()


def test_a_beam_wider_than_the_vocabulary_fills_up_as_it_can():
    decoded = decode_with(
        small_model(0), SENTENCES, beam_size=30, n_best=30, max_length=1
    )
    for sentence, ids, ranks in zip(SENTENCES, decoded.ids, decoded.rank, strict=True):
        if sentence == [END_ID]:
            assert not ids.any() and not ranks.any()
            continue
        # Four translations of one token there are, and no other.
        assert sorted(written(x) for x in ids) == [()] * 26 + [(3,), (4,), (5,), (6,)]
        assert (ranks[:4] > NEVER / 2).all() and (ranks[4:] <= NEVER / 2).all()


def test_best_first_and_no_translation_twice():
    decoded = decode_with(small_model(1), SENTENCES, beam_size=5, n_best=5)
    for sentence, ids, ranks in zip(SENTENCES, decoded.ids, decoded.rank, strict=True):
        assert (np.diff(ranks) <= 0).all()
        if len(sentence) > 1:
            assert len(set(map(written, ids))) == 5
    assert not np.isin(decoded.ids, SPECIAL[1:]).any()


# --- The end of the search ----------------------------------------------------------


def test_the_search_ends_when_nothing_better_can_come():
    """With the end all but sure, one step finds the best; others take some more."""
    certain = small_model(0, end_bias=30.0)
    one = decode_with(certain, [[4, 5, 3]], beam_size=3)
    assert one.ids.tolist() == [[[END_ID]]]
    four = decode_with(certain, [[4, 5, 3]], beam_size=3, n_best=3)
    assert four.ids.shape[-1] < 16  # the limit


@settings(max_examples=30, deadline=None)
@given(
    total=st.floats(-50, -0.01),
    length=st.integers(1, 60),
    alpha=st.sampled_from([None, 0.0, 0.6, 1.0]),
)
def test_ranking_is_the_formula(total, length, alpha):
    options = DecodingOptions(beam_size=2, length_penalty=alpha)
    actual = ranking(np.float32(total), np.float32(length), options)
    expected = total / length
    if alpha is not None:
        expected = total / ((5 + length) ** alpha / 6**alpha)
    assert_allclose(actual, expected, rtol=1e-5)
