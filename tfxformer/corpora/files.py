"""Sentence pairs from files: one TSV, or two files whose lines go together.

Both may be gzipped. Lines end at a line feed and nowhere else: characters that only
some programs take for a line's end, such as U+2028, must not shift one file against
the other. A carriage return before the line feed and a byte-order mark at the start
are taken off.
"""

import contextlib
import gzip
import io
import logging
import os
import zlib
from collections.abc import Iterator
from itertools import zip_longest
from typing import BinaryIO

from tfxformer.corpora.cleaning import Counts
from tfxformer.corpora.pair import Pair
from tfxformer.errors import UserError

_log = logging.getLogger("tfxformer")

_WARNINGS_PER_FILE = 10


def read_tsv(
    path: str | os.PathLike, *, strict: bool = False, counts: Counts | None = None
) -> Iterator[Pair]:
    r"""Read pairs from a file of two columns with one tab between them.

    A line that is not UTF-8 or has not two columns is named in the log, counted
    and skipped.

    Args:
        path: A text file, plain or gzipped.
        strict: Stop at the first malformed line instead.
        counts: Where lines read, and malformed ones, are added up.

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
    malformed = _Malformed(strict, counts)
    number = 0
    for number, line in enumerate(_lines(path), start=1):
        counts.read += 1
        where = f"{os.fspath(path)}:{number}"
        text = _decode(line)
        if text is None:
            malformed.utf8(where)
            continue
        columns = text.split("\t")
        if len(columns) != 2:
            malformed.columns(where, len(columns), blank=not text.strip())
            continue
        yield Pair(*columns)
    if not number:
        raise UserError(f"{os.fspath(path)}: the file is empty; give one with pairs")
    malformed.report_rest(os.fspath(path))


def read_parallel(
    source_path: str | os.PathLike,
    target_path: str | os.PathLike,
    *,
    strict: bool = False,
    counts: Counts | None = None,
) -> Iterator[Pair]:
    r"""Read pairs from two files whose lines are translations of each other.

    A line that is not UTF-8 is named in the log and skipped in both files; the pair
    is counted once.

    Args:
        source_path: A text file, plain or gzipped.
        target_path: The other; each may be gzipped or not.
        strict: Stop at the first malformed line instead.
        counts: Where lines read, and malformed ones, are added up.

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
    malformed = _Malformed(strict, counts)
    paths = (os.fspath(source_path), os.fspath(target_path))
    totals = [0, 0]
    for lines in zip_longest(_lines(paths[0]), _lines(paths[1])):
        for side, line in enumerate(lines):
            totals[side] += line is not None
        if None in lines:
            continue  # Read on to the end: the message tells both counts.
        counts.read += 1
        texts = [_decode(line) for line in lines]
        if None in texts:
            malformed.utf8(f"{paths[texts.index(None)]}:{totals[0]}")
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

    def __init__(self, strict: bool, counts: Counts):
        self._strict = strict
        self._counts = counts
        self._seen = 0

    def utf8(self, where: str):
        self._counts.malformed_utf8 += 1
        self._report(f"{where}: not UTF-8")

    def columns(self, where: str, found: int, blank: bool):
        self._counts.malformed_columns += 1
        what = "a blank line" if blank else str(found)
        self._report(f"{where}: expected two columns with one tab, found {what}")

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


def _decode(line: bytes) -> str | None:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return None


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
                if line[:2] in (b"\xff\xfe", b"\xfe\xff"):
                    raise UserError(f"{path}: the text is in UTF-16; save it as UTF-8")
                line = line.removeprefix(b"\xef\xbb\xbf")
            yield line


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
