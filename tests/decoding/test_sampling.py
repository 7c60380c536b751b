"""Drawing: the right tokens with the right probability, wherever a row stands."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer.decoding import DecodingOptions
from tfxformer.decoding.options import NEVER
from tfxformer.decoding.sampling import fingerprint, mix, sample_token, uniform

# Chi-square's 99.9 % quantiles, by degrees of freedom.
CHI_SQUARE = {15: 37.70, 31: 61.10}
GRID = ((np.arange(4096) + 0.5) / 4096).astype("float32")


def shares(logits, **options):
    """How often each token is drawn, by numbers evenly from 0 to 1."""
    rows = np.repeat(np.array([logits], "float32"), len(GRID), axis=0)
    options = DecodingOptions(sampling=True, **options)
    tokens = np.asarray(sample_token(rows, GRID, options))
    assert tokens.dtype == np.int32
    return np.bincount(tokens, minlength=len(logits)) / len(GRID)


def kept(logits, temperature=1.0, top_k=0, top_p=1.0):
    """The distribution that is drawn from, by its definition: a loop."""
    e = np.exp(np.asarray(logits, "float64") / temperature)
    probability, order = e / e.sum(), np.argsort(-e, kind="stable")
    if top_k:
        order = order[:top_k]
    probability = probability / probability[order].sum()
    total, answer = 0.0, np.zeros(len(logits))
    for token in order:
        if total >= top_p:
            break
        total += probability[token]
        answer[token] = probability[token]
    return answer / answer.sum()


@pytest.mark.parametrize("temperature", [0.1, 0.7, 1.0, 3.0])
@pytest.mark.parametrize("top_k", [0, 1, 3, 11])
@pytest.mark.parametrize("top_p", [1e-9, 0.33, 0.77, 1.0])
def test_the_shares_are_the_distributions(temperature, top_k, top_p):
    logits = np.random.default_rng(top_k).normal(0, 2, 9).astype("float32")
    expected = kept(logits, temperature, top_k, top_p)
    actual = shares(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    assert_allclose(actual, expected, atol=2 / len(GRID))
    assert (actual[expected == 0] == 0).all()


def test_top_k_keeps_exactly_k_where_some_are_equal():
    assert np.count_nonzero(shares([1.0, 3.0, 1.0, 1.0, 1.0], top_k=3)) == 3


@pytest.mark.parametrize("temperature", [1e-40, 1.0, 1e30])
@pytest.mark.parametrize("more", [{}, {"top_k": 6}, {"top_p": 0.99}])
@pytest.mark.parametrize("never", [NEVER, 2 * NEVER, -np.inf])
def test_what_is_not_allowed_is_never_drawn(temperature, more, never):
    """Not at the ends of the numbers either."""
    logits = [never, 1.0, never, 2.0, -3.0, never]
    actual = shares(logits, temperature=temperature, **more)
    assert_array_equal(actual[[0, 2, 5]], 0)
    options = DecodingOptions(sampling=True, temperature=temperature, **more)
    for number in (0.0, 1 - 2.0**-24):
        token = sample_token(np.array([logits]), np.array([number]), options)
        assert int(token[0]) in (1, 3, 4)


def test_each_row_draws_with_its_own_number():
    rng = np.random.default_rng(0)
    rows, numbers = rng.normal(size=(20, 6)), rng.random(20)
    options = DecodingOptions(sampling=True)
    together = np.asarray(sample_token(rows, numbers, options))
    alone = [int(sample_token(rows[[i]], numbers[[i]], options)[0]) for i in range(20)]
    assert_array_equal(together, alone)


def test_mix_spreads_one_bit_over_half_of_the_bits():
    bits = np.random.default_rng(0).integers(0, 2**32, 1000, dtype="uint32")
    flipped = np.asarray(mix(bits)) ^ np.asarray(mix(bits ^ np.uint32(1 << 7)))
    assert abs(np.unpackbits(flipped.view("uint8")).mean() - 0.5) < 0.01


@pytest.mark.parametrize("along", ["sentences", "seeds", "positions"])
def test_uniform_is_uniform(along):
    """Over neighbouring sentences, seeds and positions, where hashes are weakest."""
    n, zero = 1024, np.zeros(1, "uint32")
    if along == "sentences":
        numbers = np.asarray(uniform(np.arange(n, dtype="uint32"), 0, 0))
    elif along == "seeds":
        numbers = np.concatenate([uniform(zero, seed, 3) for seed in range(n)])
    else:
        numbers = np.concatenate([uniform(zero, 5, place) for place in range(n)])
    assert (numbers >= 0).all() and (numbers < 1).all()
    pairs = np.histogram2d(numbers[:-1:2], numbers[1::2], 4, [(0, 1)] * 2)[0]
    for counts, freedom in ((np.histogram(numbers, 32, (0, 1))[0], 31), (pairs, 15)):
        expected = counts.sum() / counts.size
        assert ((counts - expected) ** 2 / expected).sum() < CHI_SQUARE[freedom]


def test_a_fingerprint_is_the_sentences_alone():
    source = np.array([[4, 5, 3, 0], [5, 4, 3, 0], [4, 5, 3, 9]], "int32")
    prints = np.asarray(fingerprint(source))
    assert len({*prints.tolist()}) == 3
    assert np.asarray(fingerprint(source[:1, :3]))[0] == prints[0]
    sentence = np.random.default_rng(0).integers(0, 2**32, 64, dtype="uint32")
    numbers = np.asarray(uniform(sentence, 3, 7))
    assert_array_equal(uniform(sentence[5:6], 3, 7), numbers[5:6])
