"""One token after the other: against NumPy's greedy, and the draws of sampling."""

import functools

import numpy as np
import numpy_transformer as numpy_version
import oracle
import pytest
from decoding_oracle import (
    SPECIAL,
    VARIANTS,
    decode_with,
    forward,
    score_all,
    written,
)
from decoding_oracle import small_model as model_with
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer.tokenizer import END_ID, START_ID

# The likeliest tokens end more often so.
small_model = functools.partial(model_with, end_bias=-0.7)
# No token but the end; short ones; one whose limit is the model's own.
SENTENCES = [[3], [4, 3], [5, 6, 3], [5, 6, 4, 5, 4, 4, 6, 5, 3], [6, 6, 3], [6, 3]]
LIMITS = [0, 14, 16, 24, 16, 14]
# The 99.9 % quantile of chi-square with 3 degrees of freedom.
CHI_SQUARE_3 = 16.27


@pytest.mark.parametrize("variant", [0, 1, 2])
@pytest.mark.parametrize("fixed", [False, True], ids=["growing", "fixed"])
def test_greedy_agrees_with_numpy(variant, fixed):
    model = small_model(variant)
    decoded = decode_with(model, SENTENCES, xla=fixed)
    assert decoded.ids.dtype == np.int32 and decoded.score.dtype == np.float32
    assert_array_equal(decoded.rank, decoded.score)
    weights = oracle.transformer_weights(model)
    for sentence, limit, ids, score in zip(
        SENTENCES, LIMITS, decoded.ids[:, 0], decoded.score[:, 0], strict=True
    ):
        expected, log_p = numpy_version.greedy(
            sentence,
            weights,
            model.config["num_heads"],
            START_ID,
            END_ID,
            limit,
            norm=VARIANTS[variant]["norm"],
            forbidden=SPECIAL,
        )
        assert written(ids) == tuple(expected)
        assert_allclose(score, np.mean(log_p) if log_p else 0.0, atol=1e-4)


def test_the_comparison_is_of_something():
    """Translations that end, that are cut off, and that want what they may not."""
    answers = set()
    for variant in range(3):
        decoded = decode_with(small_model(variant), SENTENCES)
        answers |= {written(ids) for ids in decoded.ids[1:, 0]}
    ended = [END_ID in ids for ids in answers]
    assert any(ended) and not all(ended) and len(answers) > 5
    weights = oracle.transformer_weights(small_model(0))
    free, _ = numpy_version.greedy([5, 6, 3], weights, 2, START_ID, END_ID, 16)
    assert set(free) & set(SPECIAL)


# --- Sampling -----------------------------------------------------------------------


def sample(model, sentences, **options):
    return decode_with(model, sentences, sampling=True, **options)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_samples_and_another_seed_others():
    model = small_model(0)
    first = sample(model, SENTENCES, n_best=3, seed=5, max_length=6)
    again = sample(model, SENTENCES, n_best=3, seed=5, max_length=6)
    assert_array_equal(first.ids, again.ids)
    assert_array_equal(first.score, again.score)
    others = {
        tuple(map(tuple, sample(model, [[5, 6, 4, 3]], seed=seed, max_length=5).ids[0]))
        for seed in range(8)
    }
    assert len(others) > 4


def test_samples_of_one_sentence_differ_and_come_best_first():
    decoded = sample(small_model(0), SENTENCES, n_best=8)
    assert decoded.ids.shape[:2] == decoded.score.shape == (6, 8)
    for samples, scores in zip(decoded.ids[1:], decoded.score[1:], strict=True):
        assert len(set(map(written, samples))) > 3
        assert (np.diff(scores) <= 0).all()
    assert not decoded.ids[0].any() and not decoded.score[0].any()


@pytest.mark.slow
def test_fewer_samples_are_some_of_many():
    few = sample(small_model(0), SENTENCES, n_best=2)
    many = sample(small_model(0), SENTENCES, n_best=6)
    for some, all_ in zip(few.ids, many.ids, strict=True):
        assert set(map(written, some)) <= set(map(written, all_))


def test_top_k_1_is_greedy():
    model = small_model(1)
    greedy = decode_with(model, SENTENCES, max_length=8)
    for options in ({"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}):
        sampled = sample(model, SENTENCES, max_length=8, **options)
        assert_array_equal(sampled.ids, greedy.ids)
        assert_allclose(sampled.score, greedy.score, atol=1e-6)


def distribution(model, sentence, begin):
    """Of the next token after ``begin``, of what may be written."""
    targets = np.array([[START_ID, *begin]])
    log_p, _ = forward(model, np.array([sentence]), targets)
    p = np.exp(log_p[0, -1, END_ID:])
    return p / p.sum()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_first_and_second_tokens_follow_the_models_distribution(temperature):
    model, sentence, n = small_model(0), [4, 6, 5, 3], 1500
    decoded = sample(
        model, [sentence], n_best=n, max_length=2, temperature=temperature, seed=3
    )
    ids = decoded.ids[0]
    cases = [(ids[:, 0], ())]
    cases += [(ids[ids[:, 0] == letter, 1], (letter,)) for letter in (4, 5, 6)]
    for tokens, begin in cases:
        p = distribution(model, sentence, begin) ** (1 / temperature)
        expected = len(tokens) * p / p.sum()
        counts = np.bincount(tokens, minlength=7)[END_ID:]
        assert counts.sum() == len(tokens) > 50
        assert ((counts - expected) ** 2 / expected).sum() < CHI_SQUARE_3


@settings(max_examples=8, deadline=None)
@given(
    top_k=st.integers(0, 3),
    top_p=st.sampled_from([0.3, 0.6, 0.9, 1.0]),
    seed=st.integers(0, 2**31 - 1),
    variant=st.integers(0, 2),
)
def test_each_token_drawn_is_one_of_the_likeliest(top_k, top_p, seed, variant):
    model, sentence = small_model(variant), [5, 4, 4, 6, 3]
    decoded = sample(
        model, [sentence], n_best=4, max_length=5, top_k=top_k, top_p=top_p, seed=seed
    )
    for ids in map(written, decoded.ids[0]):
        for position, token in enumerate(ids):
            p = distribution(model, sentence, ids[:position])
            likelier = p[p > p[token - END_ID]]
            assert len(likelier) < (top_k or 4)
            kept = np.sort(p)[::-1][: top_k or 4].sum()
            assert likelier.sum() < top_p * kept + 1e-5


def test_the_score_of_a_sample_is_the_models_own():
    """Not that of the distribution that temperature and top-k made of it."""
    model, sentence = small_model(2), [5, 4, 4, 6, 3]
    decoded = sample(model, [sentence], n_best=6, top_k=2, temperature=3.0)
    expected = score_all(model, sentence, [written(ids) for ids in decoded.ids[0]])
    assert_allclose(decoded.score[0], [x.score for x in expected], atol=1e-4)
