import gzip
import subprocess
import sys

import pytest

from tfxformer.corpora import Pair, check_source, load, load_mixture
from tfxformer.errors import UserError

TSV = "olá\thello\nolá\thello\nsó\n\tempty\nadeus\tgoodbye\n".encode()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder with a TSV and two parallel files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_bytes(TSV)
    (tmp_path / "a.es.gz").write_bytes(gzip.compress(b"uno\ndos\n"))
    (tmp_path / "a.pt").write_bytes(b"um\ndois\n")
    return tmp_path


def error_of(call, *args, **kwargs) -> str:
    with pytest.raises(UserError) as caught:
        call(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_tsv_cleaned(here, caplog):
    pairs, counts = load("pairs.tsv")
    assert pairs == [Pair("olá", "hello"), Pair("adeus", "goodbye")]
    assert (counts.read, counts.kept) == (5, 2)
    assert (counts.duplicates, counts.empty, counts.malformed_columns) == (1, 1, 1)
    assert caplog.messages[0].startswith("pairs.tsv:3: ")


def test_tsv_to_evaluate_loses_malformed_lines_alone(here):
    pairs, counts = load("pairs.tsv", "test", cleaned=False)
    assert len(pairs) == counts.kept == 4
    assert pairs[2] == ("", "empty")
    assert counts.read == counts.kept + counts.dropped


def test_strict(here):
    assert error_of(load, "pairs.tsv", strict=True).startswith("pairs.tsv:3: ")


def test_limits(here):
    assert load("pairs.tsv", max_characters=5)[0] == [("olá", "hello")]
    # (5 + 10) / (3 + 10) and (7 + 10) / (5 + 10) are more.
    (here / "more.tsv").write_bytes(TSV + b"um\tone\n")
    assert load("more.tsv", max_length_ratio=1.1)[0] == [("um", "one")]


def test_any_pair_of_languages_in_either_direction(here):
    assert load("a.es.gz,a.pt")[0] == [("uno", "um"), ("dos", "dois")]
    assert load("a.pt,a.es.gz")[0] == [("um", "uno"), ("dois", "dos")]
    assert load("a.es.gz,a.pt", reverse=True) == load("a.pt,a.es.gz")


def test_a_path_with_a_comma_that_exists_is_a_tsv(here):
    (here / "a.es.gz,a.pt").write_bytes(b"x\ty\n")
    assert load("a.es.gz,a.pt")[0] == [("x", "y")]


def test_commas_in_the_paths_of_parallel_files(here):
    (here / "x,y.pt").write_bytes(b"um\n")
    (here / "x,y.en").write_bytes(b"one\n")
    assert load("x,y.pt,x,y.en")[0] == [("um", "one")]


def test_home_folder(here, monkeypatch):
    monkeypatch.setenv("HOME", str(here))
    assert len(load("~/pairs.tsv")[0]) == 2
    # The shell does not expand the second.
    assert len(load("~/a.pt,~/a.es.gz")[0]) == 2


def test_a_file_called_like_a_name(here):
    (here / "ted").write_bytes(b"x\ty\n")
    assert load("./ted")[0] == [("x", "y")]


def test_paths_need_not_be_strings(here):
    assert len(load(here / "pairs.tsv")[0]) == 2
    check_source(here / "pairs.tsv")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("frasebook", "did you mean 'phrasebook'?"),
        ("TED", "did you mean 'ted'?"),
        ("pair.tsv", "did you mean 'pairs.tsv'?"),
        ("nowhere/to/be/found", "no pair source and no file; give phrasebook, ted,"),
        ("", "no pair source and no file"),
        (",", "no pair source and no file"),
        ("a.pt,", "give phrasebook, ted,"),
        ("a,b,c", "give phrasebook, ted,"),
        ("a.pt,a.en", "a.en: no such file, in 'a.pt,a.en'"),
        ("b.pt,a.pt", "b.pt: no such file, in 'b.pt,a.pt'"),
        (".", "this is a folder"),
        ("a.pt,.", "this is a folder"),
        ("a\0b", "no pair source and no file"),
        ("n" * 5000, "no pair source and no file"),
    ],
)
def test_sources_that_are_none(here, source, words):
    assert words in error_of(check_source, source)
    assert load_mixture([]) == []
    message = error_of(load_mixture, ["pairs.tsv", source])
    assert words in message
    with pytest.raises(UserError):
        load(source)


def test_unknown_split(here):
    assert "choose one of train, validation, test" in error_of(load, "a.pt", "dev")


def test_check_reads_nothing(here):
    (here / "bad.gz").write_bytes(b"not gzip")
    check_source("bad.gz")
    check_source("phrasebook")


def test_check_ted_without_tensorflow_datasets(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'tfxformer[ted]'" in error_of(check_source, "ted")


@pytest.mark.parametrize("data", [b"only\nlines\n", b"\t\n", b"\xff\t\xff\n"])
def test_a_file_without_a_usable_pair(here, data):
    (here / "bad.tsv").write_bytes(data)
    message = error_of(load, "bad.tsv")
    assert message.startswith("bad.tsv: no usable pair in it: ")
    assert "0 kept" in message
    assert ("--columns 2,1" in message) == (data == b"only\nlines\n")
    assert ("--encoding latin-1" in message) == (b"\xff" in data)


def test_mixture_keeps_sources_apart(here):
    loaded = load_mixture(["pairs.tsv", "a.pt,a.es.gz"], reverse=True)
    assert [len(pairs) for pairs, _ in loaded] == [2, 2]
    assert loaded[1][0][0] == ("uno", "um")
    assert [counts.read for _, counts in loaded] == [5, 2]


def test_mixture_checks_all_names_first(here):
    (here / "bad.gz").write_bytes(b"not gzip")
    assert "missing" in error_of(load_mixture, ["bad.gz", "missing.tsv"])


def test_phrasebook():
    splits = {name: load("phrasebook", name)[0] for name in ("train", "test")}
    assert splits["train"] and splits["test"]
    assert not set(splits["train"]) & set(splits["test"])
    pairs, counts = load("phrasebook", "validation", reverse=True, cleaned=False)
    assert len(pairs) == counts.read == counts.kept
    forward = load("phrasebook", "validation", cleaned=False)[0]
    assert pairs == [(target, source) for source, target in forward]


def test_importing_loads_no_tensorflow():
    code = (
        "import sys, tfxformer.corpora; "
        "print([m for m in sys.modules if 'tensorflow' in m or m == 'keras'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
