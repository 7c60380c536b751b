"""Drawing: the right tokens with the right probability, wherever a row stands."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer.decoding import DecodingOptions
from tfxformer.decoding.options import NEVER
from tfxformer.decoding.sampling import fingerprint, mix, sample_token, uniform

# Chi-square's 99.9 % quantiles, by degrees of freedom.
CHI_SQUARE = {4: 18.47, 9: 27.88, 15: 37.70, 31: 61.10}
LOGITS = np.array([0.5, -1.0, 2.0, 1.0, 0.0], "float32")
GRID = ((np.arange(4096) + 0.5) / 4096).astype("float32")


def chi_square(counts, probability):
    counts, probability = np.asarray(counts), np.asarray(probability)
    expected = counts.sum() * probability
    return ((counts - expected) ** 2 / expected).sum()


def softmax(logits):
    e = np.exp(np.asarray(logits, "float64") - np.max(logits))
    return e / e.sum()


def shares(logits, **options):
    """How often each token is drawn, by numbers evenly from 0 to 1."""
    rows = np.repeat(np.array([logits], "float32"), len(GRID), axis=0)
    tokens = np.asarray(
        sample_token(rows, GRID, DecodingOptions(sampling=True, **options))
    )
    assert tokens.dtype == np.int32
    return np.bincount(tokens, minlength=len(logits)) / len(GRID)


def kept(logits, temperature=1.0, top_k=0, top_p=1.0):
    """The distribution that is drawn from, by its definition: a loop."""
    probability = softmax(np.asarray(logits, "float64") / temperature)
    order = np.argsort(-probability, kind="stable")
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


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    vocab=st.integers(1, 9),
    temperature=st.sampled_from([0.1, 0.7, 1.0, 3.0]),
    top_k=st.integers(0, 11),
    top_p=st.floats(0.05, 1.0),
)
def test_the_shares_are_the_distributions(seed, vocab, temperature, top_k, top_p):
    logits = np.random.default_rng(seed).normal(0, 2, vocab).astype("float32")
    expected = kept(logits, temperature, top_k, top_p)
    # Not where rounding decides which token is the last.
    for slip in (-1e-5, 1e-5):
        near = kept(logits, temperature, top_k, min(top_p + slip, 1.0))
        assume(((near > 0) == (expected > 0)).all())
    actual = shares(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    assert_allclose(actual, expected, atol=2 / len(GRID))
    assert (actual[expected == 0] == 0).all()


def test_top_k_keeps_exactly_k_where_some_are_equal():
    actual = shares([1.0, 3.0, 1.0, 1.0, 1.0], top_k=3)
    assert np.count_nonzero(actual) == 3
    expected = np.sort(softmax([3.0, 1.0, 1.0]))
    assert_allclose(np.sort(actual)[2:], expected, atol=2 / len(GRID))


def test_top_p_is_of_what_top_k_left():
    # 0.5, 0.3, 0.2: of the first two alone the first has 0.625.
    logits = np.log([0.2, 0.5, 0.3])
    assert_array_equal(shares(logits, top_k=2, top_p=0.6) > 0, [0, 1, 0])
    assert_array_equal(shares(logits, top_p=0.6) > 0, [0, 1, 1])


def test_the_likeliest_is_always_kept():
    assert shares(LOGITS, top_p=1e-9)[2] == 1
    assert shares(LOGITS, top_k=1)[2] == 1


@pytest.mark.parametrize("temperature", [1e-40, 1e-3, 1.0, 1e9, 1e30])
@pytest.mark.parametrize("more", [{}, {"top_k": 6}, {"top_p": 0.99}])
@pytest.mark.parametrize("never", [NEVER, 2 * NEVER, -np.inf])
def test_what_is_not_allowed_is_never_drawn(temperature, more, never):
    logits = [never, 1.0, never, 2.0, -3.0, never]
    actual = shares(logits, temperature=temperature, **more)
    assert_array_equal(actual[[0, 2, 5]], 0)
    assert actual[3] == 1 if temperature < 0.1 else actual[3] > 0.3


@pytest.mark.parametrize("number", [0.0, 2.0**-24, 1 - 2.0**-24])
def test_the_ends_of_the_numbers_draw_what_is_allowed(number):
    rows = np.array([[NEVER, 1.0, 2.0, 0.3, NEVER]], "float32")
    for more in ({}, {"top_k": 4}, {"top_p": 0.5}):
        options = DecodingOptions(sampling=True, **more)
        token = int(sample_token(rows, np.array([number], "float32"), options)[0])
        assert token in ((2,) if "top_p" in more else (1, 2, 3))


def test_each_row_draws_with_its_own_number():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 6)).astype("float32")
    numbers = rng.random(50).astype("float32")
    options = DecodingOptions(sampling=True)
    together = np.asarray(sample_token(rows, numbers, options))
    alone = [
        int(sample_token(rows[i : i + 1], numbers[i : i + 1], options)[0])
        for i in range(50)
    ]
    assert_array_equal(together, alone)


# --- The numbers --------------------------------------------------------------------


def numpy_mix(bits):
    bits = np.asarray(bits, "uint32")
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        bits = (bits ^ (bits >> np.uint32(shift))) * np.uint32(factor)
    return bits ^ (bits >> np.uint32(16))


def test_mix_agrees_with_numpy():
    bits = np.random.default_rng(0).integers(0, 2**32, 1000, dtype="uint32")
    assert_array_equal(mix(bits), numpy_mix(bits))
    # One bit in, half of the bits out.
    flipped = numpy_mix(bits) ^ np.asarray(mix(bits ^ np.uint32(1 << 7)))
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
    assert numbers.dtype == np.float32
    assert (numbers >= 0).all() and (numbers < 1).all()
    assert_allclose(numbers.mean(), 1 / 2, atol=0.03)
    assert_allclose(numbers.var(), 1 / 12, atol=0.008)
    counts = np.histogram(numbers, 32, (0, 1))[0]
    assert chi_square(counts, np.full(32, 1 / 32)) < CHI_SQUARE[31]
    pairs = np.histogram2d(numbers[:-1:2], numbers[1::2], 4, [(0, 1)] * 2)[0]
    assert chi_square(pairs.ravel(), np.full(16, 1 / 16)) < CHI_SQUARE[15]


def test_uniform_does_not_depend_on_the_row():
    sentences = np.random.default_rng(0).integers(0, 2**32, 64, dtype="uint32")
    order = np.random.default_rng(1).permutation(64)
    numbers = np.asarray(uniform(sentences, 3, 7))
    assert_array_equal(uniform(sentences[order], 3, 7), numbers[order])
    assert_array_equal(uniform(sentences[5:6], 3, 7), numbers[5:6])


ids = st.lists(st.integers(1, 2**31 - 1), max_size=6)


@settings(max_examples=40, deadline=None)
@given(ids, ids, st.integers(0, 9))
def test_fingerprint_is_the_sentences_alone(one, other, more):
    width = max(len(one), len(other)) + more
    source = np.zeros((2, width), "int32")
    source[0, : len(one)], source[1, : len(other)] = one, other
    prints = np.asarray(fingerprint(source))
    for sentence, print_ in zip((one, other), prints, strict=True):
        alone = fingerprint(np.array([sentence], "int32").reshape(1, -1))
        assert np.asarray(alone)[0] == print_
    assert (prints[0] == prints[1]) == (one == other)


def test_fingerprint_sees_the_order():
    prints = np.asarray(fingerprint(np.array([[4, 5, 3], [5, 4, 3]], "int32")))
    assert prints[0] != prints[1]


def test_draws_follow_the_distribution():
    """Number and draw together, over sentences as they come."""
    n = 5000
    source = np.arange(4, n + 4, dtype="int32")[:, None] * [[1, 0]] + [[0, 3]]
    numbers = uniform(fingerprint(source), 11, 0)
    rows = np.repeat(LOGITS[None], n, axis=0)
    for temperature in (0.5, 1.0, 2.0):
        options = DecodingOptions(sampling=True, temperature=temperature)
        tokens = np.asarray(sample_token(rows, numbers, options))
        counts = np.bincount(tokens, minlength=5)
        assert chi_square(counts, softmax(LOGITS / temperature)) < CHI_SQUARE[4]
