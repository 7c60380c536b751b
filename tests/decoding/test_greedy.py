"""Compares greedy decoding with a textbook search; tests the shares of sampling."""

import functools

import numpy as np
import pytest
from decoding_oracle import decode_with, forward, greedy_search, written
from decoding_oracle import small_model as model_with
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer.decoding import DecodingOptions
from tfxformer.decoding.greedy import sample_token
from tfxformer.decoding.options import NEVER
from tfxformer.special_tokens import END_ID, START_ID

# With this bias, greedy translations end more often.
small_model = functools.partial(model_with, end_bias=-0.7)
# Only the end token; short ones; one that reaches the model's own limit.
SENTENCES = [[3], [4, 3], [5, 6, 3], [5, 6, 4, 5, 4, 4, 6, 5, 3], [6, 6, 3], [6, 3]]
LIMITS = [0, 14, 16, 24, 16, 14]
CHI_SQUARE = 16.27  # the 99.9 % quantile, for 3 degrees of freedom


@pytest.mark.parametrize("variant", [0, 1, 2])
def test_greedy_decoding_agrees_with_a_textbook_search(variant):
    model = small_model(variant)
    decoded = decode_with(model, SENTENCES)
    assert_array_equal(decoded.rank, decoded.score)
    ended = set()
    for row, (sentence, limit) in enumerate(zip(SENTENCES, LIMITS, strict=True)):
        expected = greedy_search(model, sentence, limit)
        assert written(decoded.ids[row, 0]) == expected.ids
        assert_allclose(decoded.score[row, 0], expected.score, atol=1e-4)
        ended.add(END_ID in expected.ids)
    assert ended == {True, False} or variant  # some end, some are cut off


def sample(model, sentences, **options):
    return decode_with(model, sentences, sampling=True, **options)


def test_a_seed_repeats_its_samples_and_another_seed_changes_them():
    first, few, other = (
        sample(small_model(0), SENTENCES, n_best=n, seed=seed, max_length=4)
        for n, seed in ((6, 5), (2, 5), (6, 6))
    )
    for samples, some, others in zip(
        first.ids[1:], few.ids[1:], other.ids[1:], strict=True
    ):
        samples, some, others = ({*map(written, x)} for x in (samples, some, others))
        assert len(samples) > 2  # the samples differ
        assert some <= samples != others
    assert (np.diff(first.score, axis=1) <= 0).all()


def test_first_and_second_tokens_follow_the_models_distribution():
    model, sentence = small_model(0), [4, 6, 5, 3]
    options = {"n_best": 1500, "max_length": 2, "temperature": 2.0, "seed": 3}
    ids = sample(model, [sentence], **options).ids[0]
    cases = [(ids[:, 0], ())]
    cases += [(ids[ids[:, 0] == letter, 1], (letter,)) for letter in (4, 5, 6)]
    for tokens, begin in cases:
        targets = np.array([[START_ID, *begin]])
        log_p, _ = forward(model, np.array([sentence]), targets)
        p = np.exp(log_p[0, -1, END_ID:] / 2.0)  # of the allowed tokens
        counts = np.bincount(tokens, minlength=7)[END_ID:]
        assert counts.sum() == len(tokens) > 50
        expected = len(tokens) * p / p.sum()
        assert ((counts - expected) ** 2 / expected).sum() < CHI_SQUARE


GRID = ((np.arange(4096) + 0.5) / 4096).astype("float32")


def shares(logits, **options):
    """How often each token is drawn, for numbers spaced evenly from 0 to 1."""
    rows = np.repeat(np.array([logits], "float32"), len(GRID), axis=0)
    options = DecodingOptions(sampling=True, **options)
    tokens = np.asarray(sample_token(rows, GRID, options))
    assert tokens.dtype == np.int32
    return np.bincount(tokens, minlength=len(logits)) / len(GRID)


def kept(logits, temperature=1.0, top_k=0, top_p=1.0):
    """The distribution that sampling draws from, computed in a loop."""
    e = np.exp(np.asarray(logits, "float64") / temperature)
    probability, order = e / e.sum(), np.argsort(-e, kind="stable")
    order = order[: top_k or None]
    probability = probability / probability[order].sum()
    total, answer = 0.0, np.zeros(len(logits))
    for token in order:
        if total >= top_p:
            break
        total += probability[token]
        answer[token] = probability[token]
    return answer / answer.sum()


@pytest.mark.parametrize("temperature", [0.1, 3.0])
@pytest.mark.parametrize("top_k", [0, 1, 3])
@pytest.mark.parametrize("top_p", [1e-9, 0.77, 1.0])
def test_sample_token_draws_each_token_with_its_probability(temperature, top_k, top_p):
    logits = np.random.default_rng(top_k).normal(0, 2, 9).astype("float32")
    expected = kept(logits, temperature, top_k, top_p)
    actual = shares(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    assert_allclose(actual, expected, atol=2 / len(GRID))
    assert (actual[expected == 0] == 0).all()


@pytest.mark.parametrize("temperature", [1e-40, 1.0, 1e30])
@pytest.mark.parametrize("more", [{}, {"top_k": 6}, {"top_p": 0.99}])
def test_sample_token_never_draws_a_forbidden_token(temperature, more):
    """Also tests numbers near 0 and 1, and extreme temperatures."""
    logits = np.array([[NEVER, 1.0, NEVER, 2.0, -3.0, NEVER]], "float32")
    options = DecodingOptions(sampling=True, temperature=temperature, **more)
    numbers = np.array([0.0, 0.3, 0.7, 1 - 2.0**-24], "float32")
    tokens = sample_token(logits.repeat(len(numbers), 0), numbers, options)
    assert {*np.asarray(tokens).tolist()} <= {1, 3, 4}
