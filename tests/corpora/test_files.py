"""Reading files: the pairs of a file, or an error that says what to do."""

import gzip

import pytest

from tfxformer.corpora import Counts, Pair
from tfxformer.corpora.files import check_encoding, read_pairs, read_texts
from tfxformer.errors import UserError

TWO = "olá\thello\nadeus\tgoodbye\n".encode()
PAIRS = [Pair("olá", "hello"), Pair("adeus", "goodbye")]


@pytest.fixture
def write(tmp_path):
    def write(name, data):
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    return write


def read(*paths, **options):
    counts = Counts()
    return list(read_pairs(paths, counts, **options)), counts


FORMS = {
    "plain": TWO,
    "no last line feed": TWO.removesuffix(b"\n"),
    "crlf": TWO.replace(b"\n", b"\r\n"),
    "byte-order mark": b"\xef\xbb\xbf" + TWO,
    "gzip": gzip.compress(TWO),
    "joined gzip": b"".join(map(gzip.compress, TWO.splitlines(keepends=True))),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_tsv_is_read_with_crlf_gzip_or_a_byte_order_mark(write, form):
    assert read(write("a.tsv", FORMS[form])) == (PAIRS, {"read": 2})


def test_malformed_lines_are_named_counted_and_skipped(write, caplog):
    path = write("a.tsv", b"a\tb\nalone\nx\ty\tz\n\xff\tbad\nc\td\n" + b"x\n" * 1234)
    pairs, counts = read(path)
    assert pairs == [("a", "b"), ("c", "d")]
    dropped = {"wrong number of columns": 1236, "in another encoding": 1}
    assert counts == {"read": 1239, **dropped}
    assert caplog.messages[:3] == [
        f"{path}:2: expected two columns, found 1; skipping the line",
        f"{path}:3: expected two columns, found 3; skipping the line",
        f"{path}:4: not UTF-8; skipping the line",
    ]
    assert len(caplog.messages) == 10


def test_read_pairs_decodes_a_file_in_the_given_encoding(write, caplog):
    path = write("a.tsv", "não\tn’t\n".encode("cp1252") + b"a\t\x81\n")
    assert read(path, encoding="cp1252")[0] == [("não", "n’t")]
    assert caplog.messages == [f"{path}:2: not CP1252; skipping the line"]


@pytest.mark.parametrize("name", ["latin-0", "", "rot13", "utf-16", "cp037"])
def test_an_encoding_that_is_unknown_or_not_readable_by_lines_is_refused(name):
    with pytest.raises(ValueError, match=r"unknown encoding|line by line"):
        check_encoding(name)


def test_read_texts_yields_the_lines_before_one_that_is_not_utf_8():
    lines = [b"um\n", b"dois\r\n", b"tr\xeas\n", b"quatro"]
    found = read_texts(lines, "in.txt", size=9)
    assert next(found) == ["um", "dois"]
    with pytest.raises(UserError, match=r"^in\.txt:3: not UTF-8; give the right enc"):
        next(found)
    latin = read_texts(lines, "in.txt", "latin-1", size=3)
    assert list(latin) == [["um", "dois", "três"], ["quatro"]]
    # In a terminal, each line is read before the user types the next one.
    typed = iter(lines)
    assert next(read_texts(typed, "standard input", size=1)) == ["um"]
    assert next(typed) == b"dois\r\n"


def test_lines_end_at_line_feeds_only(write):
    odd = "a\u2028b\x0bc\x85d\x1ee\rf\x00g"
    path = write("a.tsv", f"{odd}\tx\ny\tz\na\t\n\tb\n".encode())
    assert read(path)[0] == [(odd, "x"), ("y", "z"), ("a", ""), ("", "b")]
    mine, other = write("a.txt", f"{odd}\ny\n".encode()), write("b.txt", b"1\n2\n")
    assert read(mine, other)[0] == [(odd, "1"), ("y", "2")]


PACKED = gzip.compress(TWO * 100, mtime=0)  # mtime sets the test's name
DAMAGED = PACKED[:60] + bytes([PACKED[60] ^ 0xFF]) + PACKED[61:]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (PACKED[:-9], "cut short or damaged"),
        (DAMAGED, "cut short or damaged"),
        (TWO.decode().encode("utf-16"), "in UTF-16"),
        (None, "No such file"),
    ],
)
def test_an_empty_damaged_or_missing_file_raises_an_error_with_advice(
    tmp_path, write, data, reason
):
    path = tmp_path / "missing" if data is None else write("bad", data)
    with pytest.raises(UserError, match=rf"^{path}: .*{reason}.*; "):  # and advice
        read(path)


def test_lines_of_parallel_files_stay_aligned_around_malformed_lines(write, caplog):
    source = write("a.pt", gzip.compress("olá\r\nadeus\r\n".encode()))
    target = write("a.en", b"\xef\xbb\xbfhello\ngoodbye")
    assert read(source, target) == (PAIRS, {"read": 2})
    # Blank lines keep their places too; a malformed line is dropped on both sides.
    source = write("a", b"1\n\xff\n3\n4\n\n6\n")
    target = write("b", b"one\ntwo\n\xfe\n\t\nfive\n\n")
    pairs, counts = read(source, target)
    assert pairs == [("1", "one"), ("4", "\t"), ("", "five"), ("6", "")]
    assert counts == {"read": 6, "in another encoding": 2}
    assert caplog.messages[0].startswith(f"{source}:2: not UTF-8")
    assert caplog.messages[1].startswith(f"{target}:3: not UTF-8")


def test_parallel_files_with_different_line_counts_raise_an_error(write):
    source, target = write("a", b"1\n" * 1500), write("b", b"one\n" * 7)
    longer = write("c", b"one\n" * 7 + b"\n")  # a blank line at the end counts
    for paths in ([source, target], [target, source], [target, longer]):
        with pytest.raises(UserError, match=f"^{target} has 7 lines, the other file"):
            read(*paths)
