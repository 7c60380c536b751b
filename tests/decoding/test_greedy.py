"""One token after the other: against NumPy's greedy, and the draws of sampling."""

import functools

import numpy as np
import numpy_transformer as numpy_version
import oracle
import pytest
from decoding_oracle import SPECIAL, VARIANTS, decode_with, forward, written
from decoding_oracle import small_model as model_with
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
def test_greedy_agrees_with_numpy(variant):
    model = small_model(variant)
    weights = oracle.transformer_weights(model)
    ended = set()
    for fixed in (False, True):
        decoded = decode_with(model, SENTENCES, xla=fixed)
        assert_array_equal(decoded.rank, decoded.score)
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
            ended.add(END_ID in expected)
    assert ended == {True, False} or variant  # some end, some are cut off


# --- Sampling -----------------------------------------------------------------------


def sample(model, sentences, **options):
    return decode_with(model, sentences, sampling=True, **options)


def test_a_seed_gives_the_same_samples_and_another_seed_others():
    model = small_model(0)
    first, again, other = (
        sample(model, SENTENCES, n_best=6, seed=seed, max_length=6)
        for seed in (5, 5, 6)
    )
    assert_array_equal(first.ids, again.ids)
    assert_array_equal(first.score, again.score)
    for samples, others in zip(first.ids[1:], other.ids[1:], strict=True):
        assert len(set(map(written, samples))) > 3  # they differ, too
        assert set(map(written, samples)) != set(map(written, others))
    assert (np.diff(first.score, axis=1) <= 0).all()
    few = sample(model, SENTENCES, n_best=2, seed=5, max_length=6)
    for some, all_ in zip(few.ids, first.ids, strict=True):
        assert set(map(written, some)) <= set(map(written, all_))


def test_top_k_1_is_greedy():
    model = small_model(1)
    greedy = decode_with(model, SENTENCES, max_length=6)
    for options in ({"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}):
        sampled = sample(model, SENTENCES, max_length=6, **options)
        assert_array_equal(sampled.ids, greedy.ids)
        assert_allclose(sampled.score, greedy.score, atol=1e-6)


def distribution(model, sentence, begin):
    """Of the next token after ``begin``, among those that may be written."""
    targets = np.array([[START_ID, *begin]])
    log_p, _ = forward(model, np.array([sentence]), targets)
    p = np.exp(log_p[0, -1, END_ID:])
    return p / p.sum()


@pytest.mark.parametrize("temperature", [0.5, 2.0])
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
