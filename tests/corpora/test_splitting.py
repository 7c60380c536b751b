"""Held-out pairs share no sentence with the pairs to train on."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfxformer.corpora import phrasebook
from tfxformer.corpora.pair import Pair
from tfxformer.corpora.splitting import hold_out, sentence_key
from tfxformer.errors import UserError


def _leaks(splits):
    names = list(splits)
    for place, name in enumerate(names):
        for other in names[place + 1 :]:
            for side in (0, 1):
                mine = {sentence_key(pair[side]) for pair in splits[name]}
                theirs = {sentence_key(pair[side]) for pair in splits[other]}
                yield from mine & theirs


def test_splits_are_disjoint_on_both_sides_and_lose_nothing():
    splits = phrasebook.splits()
    assert list(splits) == ["train", "validation", "test"]
    assert len(splits["validation"]) == len(splits["test"]) == 500
    assert list(_leaks(splits)) == []
    assert sorted(chain(*splits.values())) == sorted(phrasebook.pairs())


def test_splits_depend_on_the_seed_alone():
    assert phrasebook.splits(seed=3) == phrasebook.splits(seed=3)
    assert phrasebook.splits(seed=3)["test"] != phrasebook.splits(seed=4)["test"]


def test_sentence_key_sees_through_near_copies():
    assert sentence_key("Olá,  Ana!") == sentence_key("OLÁ ANA")
    assert sentence_key("A\u0301gua") == sentence_key("Água")
    assert sentence_key("avó") != sentence_key("avô")


WORDS = st.sampled_from(["um", "Um!", "dois", "três", "quatro", "cinco", "seis"])


@given(
    st.lists(st.builds(Pair, WORDS, WORDS), max_size=30),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 3),
)
def test_hold_out_never_leaks(pairs, validation, test, seed):
    sizes = {"validation": validation, "test": test}
    try:
        splits = hold_out(pairs, sizes, seed)
    except UserError as error:
        assert "\n" not in str(error)
        return
    assert {name: len(splits[name]) for name in sizes} == sizes
    assert sorted(chain(*splits.values())) == sorted(pairs)
    assert list(_leaks(splits)) == []
    assert splits == hold_out(pairs, sizes, seed)


def test_pairs_that_share_a_side_stay_together():
    linked = [Pair("a", "1"), Pair("a", "2"), Pair("b", "2"), Pair("c", "3")]
    assert hold_out(linked, {"test": 1}, seed=0)["test"] == [Pair("c", "3")]


def test_too_few_pairs_is_one_clear_line():
    with pytest.raises(UserError, match="5 for test from 1 pairs"):
        hold_out([Pair("a", "1")], {"test": 5}, seed=0)
    with pytest.raises(UserError):
        hold_out([Pair("a", "1")], {"test": 1}, seed=0)


def test_bad_sizes_are_programming_errors():
    with pytest.raises(ValueError, match="train"):
        hold_out([], {"train": 1}, seed=0)
    with pytest.raises(ValueError, match="negative"):
        hold_out([], {"test": -1}, seed=0)
