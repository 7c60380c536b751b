"""Held-out pairs share no sentence with the pairs to train on."""

import gzip
import hashlib
import random
import subprocess
import sys
from collections import Counter
from itertools import chain, combinations, pairwise
from pathlib import Path

import pytest

from tfxformer import corpora
from tfxformer.corpora import Counts, Pair, Pairs, clean, phrasebook
from tfxformer.corpora.splitting import hold_out, key
from tfxformer.errors import UserError


def leaks(splits):
    """Sentences that are in two splits, ignoring case and punctuation."""
    for one, other in combinations(splits.values(), 2):
        for side in (0, 1):
            keys = [{key(pair[side]) for pair in pairs} for pairs in (one, other)]
            yield from keys[0] & keys[1]


def test_sentences_that_differ_in_case_or_punctuation_have_onekey():
    assert key("Olá,  Ana!") == key("OLÁ ANA")
    assert key("A\u0301gua") == key("Água")
    assert key("avó") != key("avô")


@pytest.mark.parametrize("case", range(0, 60, 4))
def test_hold_out_never_leaks(case):
    draw = random.Random(case)
    words = ["um", "Um!", "dois", "três", "quatro", *map(str, range(3 * case))]
    drawn = [Pair(*draw.choices(words, k=2)) for _ in range(30)]
    pairs = clean([*drawn, *drawn], Counts())  # removes duplicates
    sizes = {"validation": draw.randint(0, 4), "test": draw.randint(0, 4)}
    try:
        splits = hold_out(pairs, sizes, case)
    except UserError:
        assert case < 30
        return
    assert {name: len(splits[name]) for name in sizes} == sizes
    assert sorted(chain(*splits.values())) == sorted(pairs)
    assert list(leaks(splits)) == []


def test_hold_out_keeps_pairs_that_share_a_sentence_in_one_split():
    linked = Pairs([("a", "1"), ("A!", "2"), ("b", "2"), ("c", "3"), ("b", "4")])
    for seed in range(5):
        assert list(hold_out(linked, {"test": 1}, seed)["test"]) == [("c", "3")]
    chained = Pairs((str(i), str(j)) for i in range(50) for j in (i, i + 1))
    with pytest.raises(
        UserError, match="hold out 1 for test from 100 pairs in 1 group"
    ):
        hold_out(chained, {"test": 1}, seed=0)


def test_hold_out_keeps_the_groups_of_chosen_pairs_in_train():
    pairs = Pairs([("a", "1"), ("A!", "2"), ("b", "3"), ("c", "4")])
    for seed in range(20):
        splits = hold_out(pairs, {"test": 1}, seed, kept=[1, 3])
        assert list(splits["test"]) == [("b", "3")]


# --- The phrasebook ---


def test_the_phrasebook_s_splits_have_fixed_sizes_and_the_same_test_pairs():
    splits = phrasebook()
    sizes = {name: len(pairs) for name, pairs in splits.items()}
    assert sizes == {"train": 42_737, "validation": 500, "test": 500}
    assert list(leaks(splits)) == []
    digest = hashlib.sha256(repr([tuple(pair) for pair in splits["test"]]).encode())
    assert digest.hexdigest().startswith("f2799fcb9e8292e6")


def test_each_two_words_in_a_row_of_a_held_out_sentence_are_in_three_pairs():
    splits = phrasebook()
    for side in (0, 1):
        counts = Counter()
        for pair in chain(*splits.values()):
            counts.update({*pairwise(["", *key(pair[side]).split(), ""])})
        for pair in chain(splits["validation"], splits["test"]):
            runs = pairwise(["", *key(pair[side]).split(), ""])
            assert min(counts[run] for run in runs) >= 3


@pytest.mark.slow
def test_the_phrasebook_recipe_makes_the_shipped_phrasebook(tmp_path):
    made = tmp_path / "phrasebook.tsv.gz"
    make = Path(__file__).parents[2] / "recipes" / "phrasebook" / "make.py"
    subprocess.run([sys.executable, make, made], check=True)
    shipped = Path(corpora.__file__).parent / "data" / "phrasebook.tsv.gz"
    assert gzip.decompress(made.read_bytes()) == gzip.decompress(shipped.read_bytes())
