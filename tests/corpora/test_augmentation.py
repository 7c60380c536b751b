"""Copies of pairs: joined ones, and sources written in haste."""

import random
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfxformer.corpora.augmentation import augmented, without_accents, write_carelessly
from tfxformer.corpora.pair import Pair

PAIRS = [
    Pair("Amanhã não há pão.", "There is no bread tomorrow."),
    Pair("Já são três horas?", "Is it three o'clock already?"),
    Pair("sim", "yes"),
]


def test_nothing_is_added_by_default():
    assert augmented(PAIRS, 0.0, 0.0) == PAIRS


def test_careless_copies_have_the_careful_target_and_follow_what_they_copy():
    found = augmented(PAIRS, 0.0, 1.0)
    assert [pair.target for pair in found] == [
        *[PAIRS[0].target] * 2,
        *[PAIRS[1].target] * 2,
        "yes",  # nothing to leave out
    ]
    assert found[0] == PAIRS[0] and found[2] == PAIRS[1]
    assert found[1].source != PAIRS[0].source


def test_joined_pairs_are_a_pair_and_what_follows_it():
    found = augmented(PAIRS, 1.0, 0.0)
    new = [pair for pair in found if pair not in PAIRS]
    ends = " ".join(p.source for p in PAIRS[1:]), " ".join(p.target for p in PAIRS[1:])
    assert new[1] == ends
    assert new[0].source.startswith("Amanhã não há pão. Já são três horas?")
    # What has no end is joined to nothing, and the last has nothing to follow it.
    assert len(new) == 2
    assert [pair for pair in found if pair in PAIRS] == PAIRS


def test_both_two_and_three_are_joined_and_all_may_be_write_carelessly():
    pairs = [Pair(f"Número {n}.", f"Number {n}.") for n in range(500)]
    found = augmented(pairs, 0.5, 0.5)
    sentences = [pair.target.count(".") for pair in found]
    assert {*sentences} == {1, 2, 3}
    assert any(p.target.count(".") > 1 and "numero" in p.source for p in found)


def test_copies_depend_on_nothing_but_their_source():
    alone = augmented(PAIRS[:1], 0.0, 1.0)[1]
    assert alone in augmented([*PAIRS[1:], *PAIRS], 0.0, 1.0)


@pytest.mark.parametrize("which", ["joined", "careless"])
def test_a_share_of_the_pairs_is_copied(which):
    pairs = [Pair(f"Número {n}.", f"Number {n}.") for n in range(2000)]
    shares = {"joined": 0.0, "careless": 0.0} | {which: 0.25}
    assert abs(len(augmented(pairs, **shares)) - 2500) < 80


def test_all_ways_of_haste_occur():
    found = {write_carelessly("Água!", random.Random(seed)) for seed in range(300)}
    # Lower case, accents and the end: all but all of them kept; then spaces.
    assert found == {
        *["água!", "Agua!", "Água", "agua!", "água", "Agua", "agua"],
        *["Água !", "água !", "Agua !", "agua !"],
    }


def test_spaces_stand_around_punctuation_but_not_within_numbers_and_words():
    found = {
        write_carelessly('"Já, (são) 1,50"... ok?', random.Random(seed))
        for seed in range(300)
    }
    assert '" Já , ( são ) 1,50 " ... ok ?' in found
    assert "`` Já , ( são ) 1,50 '' ... ok ?" in found  # as the Penn Treebank has it


def test_what_is_all_ending_stays():
    assert write_carelessly("...", random.Random(0)) == "..."
    assert write_carelessly("?", random.Random(0)) == "?"


@pytest.mark.parametrize(
    ("text", "plain"),
    [("ÀÉÎÕÜ ç Ñ", "AEIOU c N"), ("naïve ﬁ ½ 東京", "naive ﬁ ½ 東京"), ("", "")],
)
def test_accents_go_and_nothing_else(text, plain):
    assert without_accents(text) == plain


@given(st.text(max_size=60), st.integers(0, 2**31))
def test_any_text_survives(text, seed):
    written = write_carelessly(text, random.Random(seed))
    assert written == write_carelessly(text, random.Random(seed))
    # What is left are the text's letters in their order, the last perhaps missing.
    letters, left = map(_letters, (text, written))
    assert letters.startswith(left)


def _letters(text):
    text = without_accents(unicodedata.normalize("NFKD", text).lower()).casefold()
    return "".join(c for c in text if c.isalnum())
