"""Test sentences in training data: what counts as one, and what the command says."""

import errno
import gzip
import json
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfxformer.corpora.pair import Pair
from tfxformer.errors import UserError
from tfxformer.overlap import RUN, OverlapCheck, words, write_pairs

LONG = "one two three four five six seven eight nine ten"
PT_LONG = "um dois três quatro cinco seis sete oito nove dez"


def check_of(*pairs):
    return OverlapCheck({"test": [Pair(*pair) for pair in pairs]})


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("O gato dorme.", "A tomcat sleeps."),  # the source alone
        ("o GATO , dorme !", "x"),
        ("x", "the cat sleeps"),  # the target alone
        ("O gáto dorme", "x"),
    ],
)
def test_a_whole_side_is_found_in_any_case_accents_and_punctuation(source, target):
    check = check_of(("O gato dorme.", "The cat sleeps."))
    assert check.found_in(Pair(source, target))
    (found,) = check.overlaps()
    assert (found.sentences, found.exact, found.runs, found.training) == (1, 1, 0, 1)


def test_a_source_is_not_looked_for_among_targets():
    check = check_of(("sim", "no"))
    assert not check.found_in(Pair("no", "sim"))


def test_runs_of_words():
    check = check_of((PT_LONG, LONG))
    seven, eight = (" ".join(LONG.split()[2 : 2 + n]) for n in (RUN - 1, RUN))
    assert not check.found_in(Pair("x", f"so {seven} it is"))
    assert check.found_in(Pair("x", f"So: {eight.upper()}, it is!"))
    (found,) = check.overlaps()
    assert (found.exact, found.runs, found.training) == (0, 1, 1)


def test_a_test_pair_counts_once_and_each_training_pair_for_itself():
    check = check_of(("a b", "c d"), ("a b", "e f"), ("g", "h"))
    assert [check.found_in(Pair("A, b!", str(n))) for n in range(3)] == [True] * 3
    (found,) = check.overlaps()
    assert (found.sentences, found.exact, found.training) == (3, 2, 3)


def test_sides_without_a_word_are_nobodys():
    check = check_of(("...", "?!"))
    assert not check.found_in(Pair("—", "!"))


def test_each_test_set_is_counted_by_itself():
    check = OverlapCheck({"a": [Pair("x", "y")], "b": [Pair("x", "z"), Pair("u", "v")]})
    assert check.found_in(Pair("X", "q"))
    assert [(one.name, one.exact) for one in check.overlaps()] == [("a", 1), ("b", 1)]


@given(
    st.lists(st.sampled_from("abc"), max_size=14),
    st.lists(st.sampled_from("abc"), max_size=14),
)
def test_it_finds_what_a_plain_search_finds(test, training):
    check = check_of((" ".join(test), ""))
    grams = [
        {tuple(side[i : i + RUN]) for i in range(len(side) - RUN + 1)}
        for side in (test, training)
    ]
    expected = bool(test and test == training) or bool(grams[0] & grams[1])
    assert check.found_in(Pair(" ".join(training), "z")) is expected


@given(st.text())
@example("𝓐")  # which has no small letter until it is taken for an A
def test_words_are_the_same_of_what_they_say(text):
    found = words(text)
    assert words(" ".join(found)) == found
    assert words(text.upper()) == words(text.upper().lower())


@pytest.fixture
def overlap(command):
    return partial(command, "overlap")


@pytest.mark.parametrize("name", ["kept.tsv", "kept.tsv.gz"])
def test_the_command_counts_and_keeps_the_rest(tmp_path, overlap, name):
    data, test, kept = tmp_path / "data.tsv", tmp_path / "test.tsv", tmp_path / name
    data.write_text(f"Bom dia.\tGood day.\n{PT_LONG}\t{LONG}\nsim\tyes\n", "utf-8")
    test.write_text(f"bom dia !\tgood morning !\nnão\t{LONG} or so\n", "utf-8")
    arguments = ["--data", data, "--test", test, "--out", kept]
    out, err, code = overlap(*arguments)
    assert code == 0, err
    assert out == (
        f"{test}: 2 pairs; 1 whole, 1 by 8 words in a row, in 2 training pairs\n"
    )
    text = kept.read_bytes()
    assert (gzip.decompress(text) if name.endswith("gz") else text) == b"sim\tyes\n"
    assert {*tmp_path.iterdir()} == {data, test, kept}
    out, err, code = overlap(*arguments, "--json")
    counts = {"sentences": 2, "exact": 1, "runs": 1, "training": 2}
    assert json.loads(out) == [{"name": str(test)} | counts]


def test_several_sources_and_test_sets(tmp_path, overlap):
    one, two = tmp_path / "one.tsv", tmp_path / "two.tsv"
    one.write_text("a\tb\n", "utf-8")
    two.write_text("c\td\n", "utf-8")
    out, _, code = overlap("--data", one, "--data", two, "--test", one, "--test", two)
    assert code == 0
    assert ["in 1 training" in line for line in out.splitlines()] == [True, True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--data none.tsv --test t.tsv", "'none.tsv' is no pair source"),
        ("--data t.tsv --test none.tsv", "'none.tsv' is no pair source"),
    ],
)
def test_wrong_input_is_told_in_a_line(
    tmp_path, monkeypatch, overlap, arguments, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.tsv").write_text("a\tb\n", "utf-8")
    out, err, code = overlap(*arguments.split())
    assert code == 1 and not out
    assert message in err and "Traceback" not in err


def test_a_full_disk_leaves_no_file(tmp_path, monkeypatch):
    def full(path, content):
        with open(path, "wb") as file:
            file.write(content[:1])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match=r"pairs\.tsv: No space left"):
        write_pairs(tmp_path / "pairs.tsv", [Pair("a", "b")])
    assert not [*tmp_path.iterdir()]


def test_counts_are_told_before_writing_fails(tmp_path, overlap):
    data = tmp_path / "data.tsv"
    data.write_text("a\tb\n", "utf-8")
    out, err, code = overlap("--data", data, "--test", data, "--out", data / "a.tsv")
    assert code == 1 and "1 whole" in out
    assert f"{data / 'a.tsv'}: Not a directory" in err.replace("\n", "")
