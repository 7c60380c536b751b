"""Text is normalized, every dropped pair is counted, and pairs use little memory."""

import random

import pytest

from tfxformer.corpora import Counts, Pair, Pairs, clean, normalize


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("  two \t words \r\n", "two words"),
        ("a\u00a0b\u3000c\u2028d\x85e\x0bf", "a b c d e f"),
        ("nul\x00byte\x1b[0m\x94", "nul byte [0m"),
        ("ﬁm, ｆｉｍ", "fim, fim"),
        ("ac\u0327a\u0303o", "ação"),  # decomposed to composed
        ("\ufeffzero\u200bwidth so\u00adft", "zerowidth soft"),
        ("e\u200b\u0301", "é"),
        ("a\u200cb\u200dc", "a\u200cb\u200dc"),  # joiners can change letters
        (" \x00\u200b", ""),
    ],
)
def test_normalize_applies_nfkc_and_joins_white_space_and_controls(text, plain):
    assert normalize(text) == plain == normalize(plain)


def test_clean_counts_dropped_pairs_by_reason():
    pairs = [
        Pair("bom dia", "good morning"),
        Pair(" bom  dia", "good morning\u00a0"),  # the same, once normalized
        Pair("bom dia", "good day"),  # the same source only: kept
        Pair("", "nothing"),
        Pair("nada", " \x00 "),
        Pair("a" * 51, "b" * 51),
        Pair("a" * 50, "b" * 50),
        Pair("sim", "b" * 31),  # (31 + 10) / (3 + 10) > 3
        Pair("sim", "b" * 29),  # (29 + 10) / (3 + 10) = 3
        Pair("bom dia", "good morning"),
    ]
    counts = Counts(read=1200)
    kept = clean(iter(pairs), counts, max_characters=50, max_length_ratio=3.0)
    assert [*kept] == [pairs[0], pairs[2], pairs[6], pairs[8]]  # the first of equals
    assert counts.describe() == (
        "1,200 read, 1,194 kept, 6 dropped "
        "(2 empty side, 2 duplicate, 1 too long, 1 length ratio)"
    )
    again = Counts(read=len(kept))
    assert [*clean(kept, again)] == [*kept]
    assert again.describe() == "4 read, 4 kept"
    assert not clean([], Counts())


SOME = [Pair("um", "one"), Pair("", ""), Pair("três 🙂", "three"), Pair("não", "no")]


def test_pairs_index_slice_and_select_like_a_list():
    pairs = Pairs(SOME)
    assert [*pairs] == SOME and len(pairs) == 4 and SOME[3] in pairs
    assert (pairs[0], pairs[-1]) == (SOME[0], SOME[-1])
    assert random.Random(0).sample(pairs, 3) == random.Random(0).sample(SOME, 3)
    with pytest.raises(IndexError):
        pairs[4]
    assert not Pairs() and [*Pairs()] == []
    assert [*pairs[1:]] == SOME[1:] and [*pairs[::-2]] == SOME[::-2]
    some = pairs.select([3, 0, 2])
    assert [*some] == [SOME[3], SOME[0], SOME[2]]
    assert [*some[1:]] == [SOME[0], SOME[2]] and some[-1] == SOME[2]


def test_pairs_use_9_bytes_a_pair_besides_the_text():
    pairs = Pairs(("olá", "hello") for _ in range(10_000))
    size = len(pairs._text) + len(pairs._ends) * pairs._ends.itemsize
    assert size == 10_000 * (4 + 5 + 9) + 8
    assert pairs[500:]._text is pairs._text
