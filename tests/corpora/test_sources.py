"""Sources have the same names everywhere; a wrong name is a one-line error."""

import gzip

import pytest

from tfxformer.corpora import Pair, input_files, load
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


def pairs_of(source):
    return list(load(source)[0])


def test_load_cleans_the_pairs_of_a_tsv_unless_cleaned_is_false(here, caplog):
    pairs, counts = load("pairs.tsv")
    assert list(pairs) == [Pair("olá", "hello"), Pair("adeus", "goodbye")]
    assert counts.describe() == (
        "5 read, 2 kept, 3 dropped "
        "(1 wrong number of columns, 1 empty side, 1 duplicate)"
    )
    assert caplog.messages[0].startswith("pairs.tsv:3: ")
    pairs, counts = load("pairs.tsv", "test", cleaned=False)
    assert len(pairs) == 4 and pairs[2] == ("", "empty")
    assert counts.describe().startswith("5 read, 4 kept, 1 dropped")


def test_load_accepts_parallel_files_commas_in_names_and_tildes(here, monkeypatch):
    assert pairs_of("a.es.gz,a.pt") == [("uno", "um"), ("dos", "dois")]
    assert pairs_of("a.pt,a.es.gz") == [("um", "uno"), ("dois", "dos")]
    (here / "x,y.pt").write_bytes(b"um\n")
    (here / "x,y.en").write_bytes(b"one\n")
    assert pairs_of("x,y.pt,x,y.en") == [("um", "one")]
    (here / "a.es.gz,a.pt").write_bytes(b"x\ty\n")  # an existing path has priority
    assert pairs_of("a.es.gz,a.pt") == [("x", "y")]
    monkeypatch.setenv("HOME", str(here))
    assert len(pairs_of("~/a.pt,~/a.es.gz")) == 2  # the shell keeps the second ~
    (here / "ted").write_bytes(b"x\ty\n")
    assert pairs_of("./ted") == [("x", "y")]


@pytest.mark.parametrize("source", ["frasebook", "", ",", "a,b,c", "a.pt,a.en", "."])
def test_load_refuses_a_name_that_is_not_a_source(here, source):
    assert len(input_files(["phrasebook", "a.pt"])) == 1
    with pytest.raises(UserError, match=f"^'{source}' not found: expected phrasebook"):
        load(source)


def test_an_unknown_split_or_a_missing_tensorflow_datasets_raises_an_error(
    here, monkeypatch
):
    with pytest.raises(UserError, match="choose one of train, validation, test"):
        load("a.pt", "dev")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'tfxformer\[ted\]'"):
        input_files(["ted"])


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b"only\nlines\n", "--columns 2,1"),
        (b"\t\n", "check that each line has a sentence"),
        (b"\xff\t\xff\n", "--encoding latin-1"),
    ],
)
def test_a_file_without_a_usable_pair_raises_an_error_with_a_hint(here, data, hint):
    (here / "bad.tsv").write_bytes(data)
    with pytest.raises(UserError, match=rf"^bad.tsv: no usable pair: .*{hint}"):
        load("bad.tsv")
