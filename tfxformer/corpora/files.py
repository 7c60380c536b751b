"""Sentence pairs from files: one TSV, or two parallel files.

Both may be gzipped. Only a line feed ends a line: characters that some programs treat
as line ends, such as U+2028, must not shift one file against the other.
"""

import gzip
import logging
import zlib
from itertools import zip_longest

from tfxformer.corpora.pairs import Pair
from tfxformer.errors import UserError

_log = logging.getLogger("tfxformer")


def check_encoding(name):
    """Return the name of a codec if it encodes tab and line feed as ASCII does."""
    try:
        if b"\t\n".decode(name) == "\t\n":
            return name
        reason = "such files cannot be read line by line; save them as UTF-8"
    except (LookupError, ValueError):
        reason = "unknown encoding; common ones are utf-8, latin-1 and cp1252"
    raise ValueError(reason)


def pick(line, columns):
    """Take two columns of a line with tabs: the given numbers, or the only two."""
    cells = line.split("\t")
    if columns is None:
        return cells if len(cells) == 2 else None
    return [cells[i - 1] for i in columns] if len(cells) >= max(columns) else None


def read_pairs(paths, counts, columns=None, encoding="utf-8"):
    """Read `Pair`s from one TSV, or from two files with a sentence on each line.

    Malformed lines are skipped, in both parallel files, and the log names the first
    ten. The lines read and skipped are added to the `Counts`.
    """
    number = skipped = 0
    for number, lines in enumerate(zip_longest(*map(_open, paths)), start=1):
        if None in lines:
            shorter = f"{paths[lines.index(None)]} has {number - 1:,} lines"
            hint = "parallel files need the same number"
            raise UserError(f"{shorter}, the other file has more; {hint}")
        counts["read"] += 1
        texts = [_decode(line, encoding) for line in lines]
        if None in texts:
            counts["in another encoding"] += 1
            problem = f"{paths[texts.index(None)]}:{number}: not {encoding.upper()}"
        elif len(paths) == 2 or (texts := pick(texts[0], columns)):
            yield Pair(*texts)
            continue
        else:
            counts["wrong number of columns"] += 1
            wanted = f"at least {max(columns)} columns" if columns else "two columns"
            count = lines[0].count(b"\t") + 1
            problem = f"{paths[0]}:{number}: expected {wanted}, found {count}"
        skipped += 1
        if skipped <= 10:
            _log.warning("%s; skipping the line", problem)
    if not number:
        raise UserError(f"{paths[0]}: the file is empty; use a file with sentences")


def read_texts(stream, name, encoding="utf-8", size=1024):
    """Read lines, ``size`` at a time; a `UserError` at the first that is broken.

    Messages call the stream by its name, such as the file's path.
    """
    lines = []
    for number, line in enumerate(_lines(stream, name), start=1):
        text = _decode(line, encoding)
        if text is None:
            yield lines
            raise _broken(f"{name}:{number}", encoding)
        lines.append(text)
        if len(lines) == size:
            yield lines
            lines = []
    yield lines


def read_argument(text, name, encoding="utf-8"):
    """Read a text from the command line: UTF-8, or else the encoding."""
    given = text.encode("utf-8", "surrogateescape")
    decoded = _decode(given, "utf-8") or _decode(given, encoding)
    if decoded is None:
        raise _broken(name, encoding)
    return decoded


def _decode(line, encoding):
    try:
        text = line.decode(encoding)
        text.encode()  # UTF-7 and others decode to half of a surrogate pair
        return text
    except UnicodeError:
        return None


def _broken(where, encoding):
    hint = "give the right encoding, such as --encoding latin-1"
    return UserError(f"{where}: not {encoding.upper()}; {hint}")


def _open(path):
    """Yields the lines of a file, plain or gzipped."""
    try:
        with open(path, "rb") as file:
            packed = file.peek(2)[:2] == b"\x1f\x8b"  # gzip, whatever its name
            yield from _lines(gzip.GzipFile(fileobj=file) if packed else file, path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        problem = f"the gzip file is cut short or damaged ({error})"
        raise UserError(f"{path}: {problem}; copy or download it again") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; check the path") from None


def _lines(stream, name):
    """Yields lines without line ends, the first without a byte-order mark."""
    for number, line in enumerate(stream):
        if not number and line[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise UserError(f"{name}: the text is in UTF-16; save it as UTF-8")
        if not number:
            line = line.removeprefix(b"\xef\xbb\xbf")
        yield line.removesuffix(b"\n").removesuffix(b"\r")
