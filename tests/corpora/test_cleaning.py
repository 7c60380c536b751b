import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfxformer.corpora import Counts, Pair, clean, normalize
from tfxformer.corpora.cleaning import normalize_pairs


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("  two \t words \r\n", "two words"),
        ("a\u00a0b\u3000c\u2028d\x85e\x0bf", "a b c d e f"),
        ("nul\x00byte\x1b[0m\x94", "nul byte [0m"),
        ("ﬁm, ｆｉｍ", "fim, fim"),
        ("ação", "ação"),  # Decomposed to composed.
        ("\ufeffzero\u200bwidth so\u00adft", "zerowidth soft"),
        ("e\u200b\u0301", "é"),
        ("a\u200cb\u200dc", "a\u200cb\u200dc"),  # Joiners can change letters.
        ("", ""),
        (" \x00\u200b", ""),
    ],
)
def test_normalize(text, plain):
    assert normalize(text) == plain


@given(st.text())
def test_normalize_is_settled_after_once(text):
    once = normalize(text)
    assert normalize(once) == once
    assert unicodedata.is_normalized("NFKC", once)
    assert once == " ".join(once.split())
    assert not any(unicodedata.category(character) == "Cc" for character in once)


def test_each_reason_is_counted():
    pairs = [
        Pair("bom dia", "good morning"),
        Pair(" bom  dia", "good morning\u00a0"),  # The same, once normalised.
        Pair("bom dia", "good day"),  # The same source only: kept.
        Pair("", "nothing"),
        Pair("nada", " \x00 "),
        Pair("a" * 51, "b" * 51),
        Pair("a" * 50, "b" * 50),
        Pair("sim", "b" * 31),  # (31 + 10) / (3 + 10) > 3
        Pair("sim", "b" * 29),  # (29 + 10) / (3 + 10) = 3
    ]
    counts = Counts(read=len(pairs))
    kept = clean(pairs, counts, max_characters=50, max_length_ratio=3.0)
    assert kept == [pairs[0], pairs[2], pairs[6], pairs[8]]
    assert counts == Counts(
        read=9, kept=4, duplicates=1, empty=2, too_long=1, length_ratio=1
    )
    assert counts.dropped == 5
    assert counts.describe() == (
        "9 read, 4 kept, 5 dropped "
        "(2 empty side, 1 too long, 1 length ratio, 1 duplicate)"
    )


def test_describe_leaves_out_what_did_not_happen():
    assert Counts(read=1200, kept=1200).describe() == "1,200 read, 1,200 kept"
    assert Counts().describe() == "0 read, 0 kept"


def test_counts_add_up_field_by_field():
    total = Counts(read=3, kept=2, malformed_utf8=1) + Counts(read=2, empty=2)
    assert total == Counts(read=5, kept=2, malformed_utf8=1, empty=2)
    assert sum([Counts(read=1), Counts(read=2)], Counts()).read == 3
    with pytest.raises(TypeError):
        Counts() + 1


def test_no_pair_is_lost_when_only_normalising():
    pairs = [Pair("", ""), Pair("a  b", "c"), Pair("a b", "c"), Pair("x" * 5000, "y")]
    normal = list(normalize_pairs(pairs))
    assert normal == [("", ""), ("a b", "c"), ("a b", "c"), ("x" * 5000, "y")]


@given(st.lists(st.builds(Pair, st.text(max_size=60), st.text(max_size=60))))
def test_what_is_kept_is_clean_and_stays(pairs):
    counts = Counts(read=len(pairs))
    kept = clean(pairs, counts, max_characters=40, max_length_ratio=2.0)
    assert counts.read == counts.kept + counts.dropped
    assert counts.kept == len(kept) == len(set(kept))
    assert all(0 < len(side) <= 40 for pair in kept for side in pair)
    again = Counts(read=len(kept))
    assert clean(kept, again, max_characters=40, max_length_ratio=2.0) == kept
    assert again.dropped == 0


def test_direction_makes_no_difference():
    pairs = [Pair("a" * 30, "b"), Pair("um", "one"), Pair("um", "one"), Pair("", "x")]
    there, back = Counts(), Counts()
    clean(pairs, there)
    clean([Pair(target, source) for source, target in pairs], back)
    assert there == back
