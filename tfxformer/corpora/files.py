"""Sentence pairs from files: one TSV, or two files whose lines go together.

Both may be gzipped. Lines end at a line feed and nowhere else: characters that only
some programs take for a line's end, such as U+2028, must not shift one file against
the other. A carriage return before the line feed and a byte-order mark at the start
are taken off.
"""

import codecs
import contextlib
import gzip
import io
import logging
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import BinaryIO

from tfxformer.corpora.cleaning import Counts
from tfxformer.corpora.pair import Pair
from tfxformer.errors import UserError

_log = logging.getLogger("tfxformer")

_WARNINGS_PER_FILE = 10


def check_encoding(encoding: str) -> str:
    r"""Refuse what is no encoding, or one whose tabs and line feeds are not ASCII's.

    Args:
        encoding: The name of one of Python's codecs, such as `latin-1`.

    Returns:
        The name.

    Raises:
        UserError: It cannot be used.

    Example:
        >>> check_encoding("cp1252")
        'cp1252'
    """
    try:
        if b"\t\n".decode(encoding) == "\t\n":
            return encoding
        reason = "such files cannot be read by lines; save them as UTF-8"
    except (LookupError, ValueError):
        reason = "there is no such encoding; common ones are utf-8, latin-1 and cp1252"
    raise UserError(f"--encoding {encoding!r}: {reason}")


def parse_columns(text: str) -> list[int]:
    """Read the numbers of the columns that have a source and its translation.

    Args:
        text: Two numbers from 1, with a comma between.

    Returns:
        The numbers.

    Raises:
        UserError: It is something else.

    Example:
        >>> parse_columns("2,1")
        [2, 1]
    """
    try:
        source, target = (int(number) for number in text.split(","))
    except ValueError:
        source = target = 0
    if min(source, target) < 1 or source == target:
        raise UserError(
            f"--columns {text!r}: give the source's column and the translation's, two "
            "numbers from 1, such as 2,1"
        )
    return [source, target]


def pick(line: str, columns: Sequence[int] | None) -> list[str] | None:
    r"""Take a source and its translation out of a line with tabs.

    Args:
        line: The line.
        columns: Their numbers, from 1; None for a line that has these two alone.

    Returns:
        Both, or None where the line has not the columns.

    Example:
        >>> pick("Hi.\tOi.\tCC-BY 2.0", [2, 1])
        ['Oi.', 'Hi.']
    """
    cells = line.split("\t")
    if columns is None:
        return cells if len(cells) == 2 else None
    if len(cells) < max(columns):
        return None
    return [cells[number - 1] for number in columns]


def read_tsv(
    path: str | os.PathLike,
    *,
    strict: bool = False,
    counts: Counts | None = None,
    columns: Sequence[int] | None = None,
    encoding: str = "utf-8",
) -> Iterator[Pair]:
    r"""Read pairs from a file of columns with tabs between them.

    A line that is not in the encoding, or lacks a column, is named in the log,
    counted and skipped.

    Args:
        path: A text file, plain or gzipped.
        strict: Stop at the first malformed line instead.
        counts: Where lines read, and malformed ones, are added up.
        columns: The numbers, from 1, of the source's column and the target's; None
            for a file that has these two alone.
        encoding: How characters are written: one of Python's codecs.

    Yields:
        The pairs as they stand in the file.

    Raises:
        UserError: The file cannot be read or is empty, or a line is malformed and
            `strict` is set.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "two.tsv")
        >>> _ = path.write_text("olá\thello\nadeus\tgoodbye\n", encoding="utf-8")
        >>> list(read_tsv(path))[1]
        Pair(source='adeus', target='goodbye')
    """
    counts = Counts() if counts is None else counts
    malformed = _Malformed(strict, counts, encoding)
    number = 0
    for number, line in enumerate(_lines(path), start=1):
        counts.read += 1
        where = f"{os.fspath(path)}:{number}"
        text = _decode(line, encoding)
        if text is None:
            malformed.text(where)
            continue
        pair = pick(text, columns)
        if pair is None:
            malformed.columns(where, text, columns)
            continue
        yield Pair(*pair)
    if not number:
        raise UserError(f"{os.fspath(path)}: the file is empty; give one with pairs")
    malformed.report_rest(os.fspath(path))


def read_parallel(
    source_path: str | os.PathLike,
    target_path: str | os.PathLike,
    *,
    strict: bool = False,
    counts: Counts | None = None,
    encoding: str = "utf-8",
) -> Iterator[Pair]:
    r"""Read pairs from two files whose lines are translations of each other.

    A line that is not in the encoding is named in the log and skipped in both files;
    the pair is counted once.

    Args:
        source_path: A text file, plain or gzipped.
        target_path: The other; each may be gzipped or not.
        strict: Stop at the first malformed line instead.
        counts: Where lines read, and malformed ones, are added up.
        encoding: Of both: one of Python's codecs.

    Yields:
        The pairs as they stand in the files.

    Raises:
        UserError: A file cannot be read or is empty, the files differ in their
            number of lines (known only at the end), or a line is malformed and
            `strict` is set.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.pt").write_text("olá\n", encoding="utf-8")
        >>> _ = (folder / "a.en").write_text("hello\n", encoding="utf-8")
        >>> list(read_parallel(folder / "a.pt", folder / "a.en"))
        [Pair(source='olá', target='hello')]
    """
    counts = Counts() if counts is None else counts
    malformed = _Malformed(strict, counts, encoding)
    paths = (os.fspath(source_path), os.fspath(target_path))
    totals = [0, 0]
    for lines in zip_longest(_lines(paths[0]), _lines(paths[1])):
        for side, line in enumerate(lines):
            totals[side] += line is not None
        if None in lines:
            continue  # Read on to the end: the message tells both counts.
        counts.read += 1
        texts = [_decode(line, encoding) for line in lines]
        if None in texts:
            malformed.text(f"{paths[texts.index(None)]}:{totals[0]}")
            continue
        yield Pair(*texts)
    for path, total in zip(paths, totals, strict=True):
        if not total:
            raise UserError(f"{path}: the file is empty; give one with sentences")
    if totals[0] != totals[1]:
        raise UserError(
            f"{paths[0]} has {totals[0]:,} lines but {paths[1]} has {totals[1]:,}; "
            "give two files whose lines go together"
        )
    malformed.report_rest(" and ".join(paths))


def read_lines(path: str | os.PathLike) -> Iterator[str | None]:
    r"""Read a text file line by line, as the readers of pairs do.

    Args:
        path: A text file, plain or gzipped.

    Yields:
        The lines without their ends; None for one that is not UTF-8.

    Raises:
        UserError: The file cannot be read.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "a.en")
        >>> _ = path.write_bytes(b"hello\r\n\xff\n")
        >>> list(read_lines(path))
        ['hello', None]
    """
    yield from map(_decode, _lines(path))


class _Malformed:
    """Names malformed lines in the log, or stops at the first; counts them."""

    def __init__(self, strict: bool, counts: Counts, encoding: str):
        self._strict = strict
        self._counts = counts
        self._encoding = check_encoding(encoding)
        self._seen = 0

    def text(self, where: str):
        self._counts.malformed_utf8 += 1
        self._report(f"{where}: not {_spelt(self._encoding)}")

    def columns(self, where: str, text: str, columns: Sequence[int] | None):
        self._counts.malformed_columns += 1
        what = str(text.count("\t") + 1) if text.strip() else "a blank line"
        wanted = (
            f"at least {max(columns)} columns"
            if columns
            else "two columns with one tab"
        )
        self._report(f"{where}: expected {wanted}, found {what}")

    def _report(self, message: str):
        if self._strict:
            raise UserError(f"{message}; mend it, or read without strict to skip it")
        self._seen += 1
        if self._seen <= _WARNINGS_PER_FILE:
            _log.warning("%s; the line is skipped", message)

    def report_rest(self, path: str):
        """Says how many lines were skipped beyond those named."""
        more = self._seen - _WARNINGS_PER_FILE
        if more > 0:
            _log.warning("%s: %s more malformed lines are skipped", path, f"{more:,}")


def _decode(line: bytes, encoding: str = "utf-8") -> str | None:
    try:
        return line.decode(encoding)
    except UnicodeError:
        return None


def _spelt(encoding: str) -> str:
    return "UTF-8" if codecs.lookup(encoding).name == "utf-8" else encoding


def read_texts(
    stream: Iterable[bytes], name: str, encoding: str = "utf-8", size: int = 1024
) -> Iterator[list[str]]:
    r"""Read lines, many at a time, and stop at the first that is broken.

    Args:
        stream: Lines of bytes.
        name: What messages call them, such as the file's path.
        encoding: One of Python's codecs.
        size: How many lines to give at once.

    Yields:
        Lines without their ends.

    Raises:
        UserError: A line is not in the encoding; the lines before it are given first.

    Example:
        >>> list(read_texts([b"um\n", b"n\xe3o\n"], "in.txt", "latin-1"))
        [['um', 'não']]
    """
    lines = []
    for number, line in enumerate(stream, start=1):
        if number == 1:
            _refuse_utf16(line, name)
        text = _decode(line.rstrip(b"\r\n"), encoding)
        if text is None:
            if lines:
                yield lines
            raise _broken(f"{name}:{number}", encoding)
        lines.append(text)
        if len(lines) == size:
            yield lines
            lines = []
    if lines:
        yield lines


def read_argument(text: str, name: str, encoding: str = "utf-8") -> str:
    r"""Read a text of the command line, which may not be UTF-8.

    Args:
        text: As Python gives it: bytes that are not UTF-8 are surrogates.
        name: What messages call it, such as `text 1`.
        encoding: How to read one that is not UTF-8: one of Python's codecs.

    Returns:
        The text.

    Raises:
        UserError: It is not in the encoding.

    Example:
        >>> read_argument("n\udce3o", "text 1", "latin-1")
        'não'
    """
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        found = _decode(text.encode("utf-8", "surrogateescape"), encoding)
    if found is None:
        raise _broken(name, encoding)
    return found


def _broken(where: str, encoding: str) -> UserError:
    return UserError(
        f"{where}: not {_spelt(encoding)}; name its encoding, such as "
        "--encoding latin-1"
    )


@contextlib.contextmanager
def open_bytes(path: str | os.PathLike, unpack: bool = True) -> Iterator[BinaryIO]:
    r"""Opens a file to read; what goes wrong with it is told in one line.

    Args:
        path: A local file, or what lies where Apache Beam's workers read.
        unpack: Unpack what is gzipped.

    Yields:
        The file; its ``peek``, ``readline`` and ``seek`` are of the unpacked bytes.

    Raises:
        UserError: The file cannot be read; also while it is.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "a.gz")
        >>> _ = path.write_bytes(gzip.compress(b"hello\nyou\n"))
        >>> with open_bytes(path) as file:
        ...     file.readline()
        b'hello\n'
    """
    path = os.fspath(path)
    with _reading(path), contextlib.ExitStack() as stack:
        file = stack.enter_context(_open(path))
        start = file.peek(2)[:2]
        # By what it holds, not by its name; but a name in .gz is a promise.
        promised = start and path.lower().endswith(".gz")
        if unpack and (start == b"\x1f\x8b" or promised):
            file = stack.enter_context(gzip.GzipFile(fileobj=file))
        yield file


def _lines(path: str | os.PathLike) -> Iterator[bytes]:
    """Yields the lines of a file, plain or gzipped, without their ends."""
    with open_bytes(path) as file:
        for number, line in enumerate(file):
            line = line.removesuffix(b"\n").removesuffix(b"\r")
            if not number:
                _refuse_utf16(line, path)
                line = line.removeprefix(b"\xef\xbb\xbf")
            yield line


def _refuse_utf16(start: bytes, name: str | os.PathLike) -> None:
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise UserError(f"{name}: the text is in UTF-16; save it as UTF-8")


def _open(path: str) -> io.BufferedReader:
    """Opens a local file, or what lies where Apache Beam's workers read."""
    if "://" not in path:
        return open(path, "rb")
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.io.filesystems import FileSystems

    file = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    return file if hasattr(file, "peek") else io.BufferedReader(file)


@contextlib.contextmanager
def _reading(path: str):
    """Turns what can go wrong with a file into one line."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise UserError(f"{path}: this is a folder; give a file in it") from None
    except PermissionError:
        raise UserError(f"{path}: reading it is not permitted; chmod it") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(
            f"{path}: the gzip file is cut short or damaged ({error}); "
            "copy or download it again"
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: it cannot be read ({error}); check it") from None
