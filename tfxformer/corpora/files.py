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
from pathlib import Path
from typing import BinaryIO

from tfxformer.corpora.cleaning import Counts
from tfxformer.corpora.pair import Pair
from tfxformer.errors import UserError

_log = logging.getLogger("tfxformer")

_WARNINGS = 10


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


def pick(line: str, columns: Sequence[int] | None) -> list[str] | None:
    r"""Take a source and its translation out of a line with tabs.

    Args:
        line: The line.
        columns: Their numbers, from 1; None for a line that has these two alone.

    Returns:
        Both, or None where the line lacks a column.

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


def read_pairs(
    paths: Sequence[Path],
    counts: Counts,
    columns: Sequence[int] | None = None,
    encoding: str = "utf-8",
) -> Iterator[Pair]:
    r"""Read pairs from one TSV, or from two files with a sentence on each line.

    A malformed line is counted and skipped, with its translation where that has a
    file of its own. The log names the first ten.

    Args:
        paths: The file, or those of the sources and of the targets; plain or gzipped.
        counts: Where lines read, and malformed ones, are added up.
        columns: The numbers, from 1, of a TSV's column of sources and of targets;
            None for a file that has these two alone.
        encoding: How characters are written: one of Python's codecs.

    Yields:
        The pairs as they stand in the files.

    Raises:
        UserError: A file cannot be read or is empty, or the files differ in their
            number of lines.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "two.tsv")
        >>> _ = path.write_text("olá\thello\nadeus\tgoodbye\n", encoding="utf-8")
        >>> list(read_pairs([path], Counts()))[1]
        Pair(source='adeus', target='goodbye')
    """
    number = skipped = 0
    for number, lines in enumerate(zip_longest(*map(_lines, paths)), start=1):
        if None in lines:
            raise UserError(
                f"{paths[lines.index(None)]} has {number - 1:,} lines, and the other "
                f"of {paths[0]} and {paths[1]} has more; give two files whose lines "
                "go together"
            )
        counts["read"] += 1
        texts = [_decode(line, encoding) for line in lines]
        if None in texts:
            counts["in another encoding"] += 1
            problem = f"{paths[texts.index(None)]}:{number}: not {_spelt(encoding)}"
        elif len(paths) == 2 or (texts := pick(texts[0], columns)):
            yield Pair(*texts)
            continue
        else:
            counts["wrong number of columns"] += 1
            wanted = f"at least {max(columns)}" if columns else "two"
            found = lines[0].count(b"\t") + 1
            problem = f"{paths[0]}:{number}: expected {wanted} columns, found {found}"
        skipped += 1
        if skipped <= _WARNINGS:
            _log.warning("%s; the line is skipped", problem)
    if not number:
        raise UserError(f"{paths[0]}: the file is empty; give one with sentences")


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
    given = text.encode("utf-8", "surrogateescape")
    found = _decode(given, "utf-8") or _decode(given, encoding)
    if found is None:
        raise _broken(name, encoding)
    return found


def _decode(line, encoding):
    try:
        return line.decode(encoding)
    except UnicodeError:
        return None


def _spelt(encoding):
    return "UTF-8" if codecs.lookup(encoding).name == "utf-8" else encoding


def _broken(where, encoding):
    return UserError(
        f"{where}: not {_spelt(encoding)}; name its encoding, such as "
        "--encoding latin-1"
    )


def _refuse_utf16(start, name):
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise UserError(f"{name}: the text is in UTF-16; save it as UTF-8")


def _lines(path):
    """Yields the lines of a file, plain or gzipped, without their ends."""
    try:
        with open(path, "rb") as file:
            start = file.peek(2)[:2]
            # By what it holds, not by its name; but a name in .gz is a promise.
            packed = start == b"\x1f\x8b" or (start and str(path).endswith(".gz"))
            lines = gzip.GzipFile(fileobj=file) if packed else file
            for number, line in enumerate(lines):
                line = line.removesuffix(b"\n").removesuffix(b"\r")
                if not number:
                    _refuse_utf16(line, path)
                    line = line.removeprefix(b"\xef\xbb\xbf")
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(
            f"{path}: the gzip file is cut short or damaged ({error}); "
            "copy or download it again"
        ) from None
    except (OSError, ValueError) as error:  # a ValueError for a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: {reason}; check the path") from None


# Until bulk reads through Beam.
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


# Until plots take the options of settings.
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
