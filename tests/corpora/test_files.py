import gzip
import logging
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfxformer.corpora import Counts, Pair, clean, read_parallel, read_tsv
from tfxformer.corpora.files import check_encoding, read_texts
from tfxformer.errors import UserError

TWO = "olá\thello\nadeus\tgoodbye\n".encode()
PAIRS = [Pair("olá", "hello"), Pair("adeus", "goodbye")]


@pytest.fixture
def write(tmp_path):
    def write(name: str, data: bytes):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


def error_of(call, *args, **kwargs) -> str:
    """The message of the UserError, which is one line."""
    with pytest.raises(UserError) as caught:
        list(call(*args, **kwargs))
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    "data",
    [
        TWO,
        TWO.removesuffix(b"\n"),
        TWO.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + TWO,
    ],
    ids=["plain", "no last line feed", "crlf", "bom"],
)
@pytest.mark.parametrize("packed", [False, True], ids=["text", "gzip"])
def test_tsv(write, data, packed):
    path = write("a.tsv.gz", gzip.compress(data)) if packed else write("a.tsv", data)
    counts = Counts()
    assert list(read_tsv(path, counts=counts)) == PAIRS
    assert counts == Counts(read=2)


def test_gzip_is_told_by_its_content(write):
    assert list(read_tsv(write("a.tsv", gzip.compress(TWO)))) == PAIRS


def test_joined_gzip_files_are_read_to_the_end(write):
    halves = b"".join(gzip.compress(line) for line in TWO.splitlines(keepends=True))
    assert list(read_tsv(write("a.gz", halves))) == PAIRS


def test_malformed_lines_are_named_counted_and_skipped(write, caplog):
    path = write("a.tsv", b"a\tb\nalone\n\nx\ty\tz\n\xff\tbad\nc\td\n")
    counts = Counts()
    assert list(read_tsv(path, counts=counts)) == [("a", "b"), ("c", "d")]
    assert counts == Counts(read=6, malformed_columns=3, malformed_utf8=1)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 4
    assert caplog.messages == [
        f"{path}:2: expected two columns with one tab, found 1; the line is skipped",
        f"{path}:3: expected two columns with one tab, found a blank line; "
        "the line is skipped",
        f"{path}:4: expected two columns with one tab, found 3; the line is skipped",
        f"{path}:5: not UTF-8; the line is skipped",
    ]


def test_columns_are_picked_and_put_in_order(write, caplog):
    path = write("a.tsv", b"one\tum\tCC\t2\ntwo\tdois\nalone\n")
    counts = Counts()
    found = list(read_tsv(path, columns=[2, 1], counts=counts))
    assert found == [("um", "one"), ("dois", "two")]
    assert counts == Counts(read=3, malformed_columns=1)
    assert caplog.messages == [
        f"{path}:3: expected at least 2 columns, found 1; the line is skipped"
    ]


def test_text_in_another_encoding(write, caplog):
    path = write("a.tsv", "não\tn’t\n".encode("cp1252") + b"a\t\x81\n")
    assert list(read_tsv(path, encoding="cp1252")) == [("não", "n’t")]
    assert caplog.messages == [f"{path}:2: not cp1252; the line is skipped"]
    parallel = [write("a.pt", b"n\xe3o\n"), write("a.en", b"no\n")]
    assert list(read_parallel(*parallel, encoding="latin-1")) == [("não", "no")]


@pytest.mark.parametrize("name", ["latin-0", "", "\0", "rot13", "utf-16", "cp037"])
def test_what_is_no_encoding_is_refused(name):
    message = error_of(lambda: [check_encoding(name)])
    assert message.startswith(f"--encoding {name!r}: ")


def test_texts_are_given_until_one_is_broken():
    lines = [b"um\n", b"dois\r\n", b"tr\xeas\n", b"quatro"]
    found = read_texts(lines, "in.txt", size=9)
    assert next(found) == ["um", "dois"]
    with pytest.raises(UserError, match=r"^in\.txt:3: not UTF-8; name its encoding"):
        next(found)
    latin = read_texts(lines, "in.txt", "latin-1", size=3)
    assert list(latin) == [["um", "dois", "três"], ["quatro"]]
    with pytest.raises(UserError, match=r"^in\.txt: the text is in UTF-16; save it"):
        next(read_texts(["um\n".encode("utf-16")], "in.txt"))


def test_ten_malformed_lines_are_named_and_the_rest_counted(write, caplog):
    path = write("a.tsv", b"a\tb\n" + b"x\n" * 1234)
    counts = Counts()
    assert len(list(read_tsv(path, counts=counts))) == 1
    assert counts.malformed_columns == 1234
    assert len(caplog.messages) == 11
    assert caplog.messages[-1] == f"{path}: 1,224 more malformed lines are skipped"


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"a\tb\nalone\n", "two columns"), (b"a\tb\na\t\xc3\n", "UTF-8")],
)
def test_strict_stops_at_file_and_line(write, caplog, data, reason):
    path = write("a.tsv", data)
    message = error_of(read_tsv, path, strict=True)
    assert message.startswith(f"{path}:2: ")
    assert reason in message
    assert not caplog.messages


def test_lines_end_at_line_feeds_only(write):
    odd = "a\u2028b\x0bc\x85d\x1ee\rf\x00g"
    path = write("a.tsv", f"{odd}\tx\ny\tz\n".encode())
    assert list(read_tsv(path, strict=True)) == [(odd, "x"), ("y", "z")]
    other = write("b.txt", b"1\n2\n")
    mine = write("a.txt", f"{odd}\ny\n".encode())
    assert list(read_parallel(mine, other)) == [(odd, "1"), ("y", "2")]


def test_a_tab_at_an_end_is_an_empty_column(write):
    assert list(read_tsv(write("a.tsv", b"a\t\n\tb\n"))) == [("a", ""), ("", "b")]


def broken_files(tmp_path):
    packed = gzip.compress(TWO * 100)
    damaged = bytearray(packed)
    damaged[len(damaged) // 2] ^= 0xFF
    contents = {
        "empty.tsv": b"",
        "empty.tsv.gz": b"",
        "empty_inside.gz": gzip.compress(b""),
        "short.gz": packed[:-9],
        "head.gz": packed[:3],
        "damaged.gz": bytes(damaged),
        "not.gz": TWO,
        "utf16.tsv": TWO.decode().encode("utf-16"),
    }
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "folder").mkdir()
    return [*contents, "folder", "missing.tsv", "missing.tsv.gz", "n" * 300]


def test_files_that_cannot_be_read(tmp_path, write):
    words = {
        "empty": "is empty",
        "short": "cut short or damaged",
        "head": "cut short or damaged",
        "damaged": "cut short or damaged",
        "not": "cut short or damaged",
        "utf16": "UTF-16",
        "folder": "is a folder",
        "missing": "no such file",
        "nnn": "cannot be read",
    }
    good = write("good.txt", b"x\n")
    for name in broken_files(tmp_path):
        path = tmp_path / name
        word = next(word for start, word in words.items() if name.startswith(start))
        for message in (
            error_of(read_tsv, path),
            error_of(read_parallel, path, good),
            error_of(read_parallel, good, path),
        ):
            assert message.startswith(f"{path}: ") or "lines but" in message
            assert word in message or "lines but" in message
            assert "; " in message  # What to do.


def test_a_name_with_nul_is_an_error_of_the_user():
    assert "cannot be read" in error_of(read_tsv, "a\0b")


def test_a_file_that_may_not_be_read(write, monkeypatch):
    path = write("a.tsv", TWO)
    path.chmod(0)
    if os.access(path, os.R_OK):  # Root may read all.

        def refuse(*args, **kwargs):
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr("builtins.open", refuse)
    assert f"{path}: reading it is not permitted" in error_of(read_tsv, path)


@pytest.mark.parametrize("names", [("a.pt", "a.en"), ("a.pt.gz", "a.en")])
def test_parallel(write, names):
    texts = ("olá\r\nadeus\r\n".encode(), b"\xef\xbb\xbfhello\ngoodbye")
    paths = [
        write(name, gzip.compress(text) if name.endswith("gz") else text)
        for name, text in zip(names, texts, strict=True)
    ]
    counts = Counts()
    assert list(read_parallel(*paths, counts=counts)) == PAIRS
    assert counts == Counts(read=2)


def test_parallel_blank_lines_keep_their_place(write):
    paths = write("a", b"1\n\n3\n"), write("b", b"one\ntwo\n\n")
    assert list(read_parallel(*paths)) == [("1", "one"), ("", "two"), ("3", "")]


def test_parallel_malformed_line_goes_from_both(write, caplog):
    source, target = write("a", b"1\n\xff\n3\n4\n"), write("b", b"one\ntwo\n\xfe\n\t\n")
    counts = Counts()
    pairs = list(read_parallel(source, target, counts=counts))
    assert pairs == [("1", "one"), ("4", "\t")]
    assert counts == Counts(read=4, malformed_utf8=2)
    assert caplog.messages[0].startswith(f"{source}:2: not UTF-8")
    assert caplog.messages[1].startswith(f"{target}:3: not UTF-8")
    assert f"{source}:2: " in error_of(read_parallel, source, target, strict=True)


def test_parallel_files_of_different_lengths(write):
    source, target = write("a", b"1\n" * 1500), write("b", b"one\n" * 7)
    message = error_of(read_parallel, source, target)
    assert f"{source} has 1,500 lines but {target} has 7;" in message
    message = error_of(read_parallel, target, source)
    assert f"{target} has 7 lines but {source} has 1,500;" in message
    # A blank line at the end is a line.
    other = write("c", b"one\n" * 7 + b"\n")
    assert "has 7 lines but" in error_of(read_parallel, target, other)


lines = st.lists(
    st.one_of(
        st.binary(max_size=20),
        st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace")),
        st.tuples(st.text(max_size=10), st.text(max_size=10)).map(
            lambda pair: "\t".join(pair).encode("utf-8", "replace")
        ),
    ),
    max_size=20,
).map(b"\n".join)
any_file = st.one_of(
    lines, st.binary(max_size=200), lines.map(lambda data: gzip.compress(data))
)
one_folder = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


@one_folder
@given(data=any_file, name=st.sampled_from(["a.tsv", "a.tsv.gz"]))
def test_any_bytes_are_read_or_refused_in_one_line(tmp_path, data, name):
    path = tmp_path / name
    path.write_bytes(data)
    counts = Counts()
    try:
        raw = list(read_tsv(path, counts=counts))
    except UserError as error:
        assert str(error).startswith(f"{path}: ")
        assert "\n" not in str(error)
        return
    assert counts.read == len(raw) + counts.dropped
    kept = clean(raw, counts)
    assert counts.kept == len(kept)
    assert counts.read == counts.kept + counts.dropped


@one_folder
@given(source=any_file, target=any_file)
def test_any_two_files_are_read_or_refused_in_one_line(tmp_path, source, target):
    paths = tmp_path / "a", tmp_path / "b"
    paths[0].write_bytes(source)
    paths[1].write_bytes(target)
    counts = Counts()
    try:
        raw = list(read_parallel(*paths, counts=counts))
    except UserError as error:
        assert "\n" not in str(error)
        return
    assert counts.read == len(raw) + counts.malformed_utf8
    if not source.startswith(b"\x1f\x8b"):
        assert counts.read == source.count(b"\n") + (not source.endswith(b"\n"))
