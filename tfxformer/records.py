"""Records with a text each, of text, CSV, TSV, JSON lines and Parquet files.

A file is surveyed once: where its records begin, and how many there are. From then on
any part of it can be read by itself. Memory does not grow with a file, nor with a line
that never ends.

Lines end at a line feed, a carriage return before it is no part of them, and a
byte-order mark at the start is skipped, as in `tfxformer.corpora`. A blank line is a
record in text alone. CSV is RFC 4180's: a field within quotes may hold line breaks. TSV
has no quotes. A record that cannot be used says why; nothing is repaired.
"""

import base64
import codecs
import contextlib
import csv
import itertools
import json
import logging
import os
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from tfxformer.beam_jobs import Pace
from tfxformer.corpora.files import open_bytes
from tfxformer.errors import UserError

log = logging.getLogger("tfxformer")

# The longest record that is used; of Parquet, the longest text.
MAX_BYTES = 2**20

_FORMATS = {
    "text": (),  # any other name
    "csv": (".csv",),
    "tsv": (".tsv", ".tab"),
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "parquet": (".parquet", ".pq"),
}
FORMATS = tuple(_FORMATS)

_OTHER_PACKING = (".bz2", ".xz", ".zst", ".zip", ".7z", ".lz4")
# Rows of Parquet that are decoded at once.
_ROWS = 1024
# Stands for NUL while CSV is parsed: before Python 3.11 csv refuses it. Bytes are
# parsed as Latin-1, so no other character can be this one.
_NUL = "\u0100"


class Fields(NamedTuple):
    """Where records have what is wanted.

    Attributes:
        format: one of `FORMATS`.
        column: the name of the texts' column or field; of CSV and TSV without a
            header its number, in digits, from 1. None for text.
        id_column: the same of the records' ids; None where they have none.
        encoding: of all but Parquet: one of Python's codecs.
    """

    format: str
    column: str | None
    id_column: str | None
    encoding: str = "utf-8"


class Piece(NamedTuple):
    """Records of a file that follow one another.

    Attributes:
        part: which part of all the input they are in.
        begin: where the first begins: its byte in the unpacked file, or its row.
        number: the first one's line, or row, from 1.
        records: how many they are.
    """

    part: int
    begin: int
    number: int
    records: int


class Record(NamedTuple):
    """A record that was read.

    Attributes:
        number: its line, or row, from 1.
        id: a string or an int; None where no column has ids.
        text: the text; None where it cannot be used.
        reason: why it cannot: what is wrong, and often a colon and more.
        raw: the bytes of one that cannot be used, without the line's end; the first
            `MAX_BYTES` if it is too long; None where there is none.
    """

    number: int
    id: str | int | None = None
    text: str | None = None
    reason: str | None = None
    raw: bytes | None = None


class _Unusable(Exception):
    """Says why a record cannot be used."""


def format_of(path: str) -> str:
    """The format that a file's name tells; ``.gz`` may come after it.

    Args:
        path: The file's path.

    Returns:
        One of `FORMATS`.

    Raises:
        UserError: It is packed in a way that is not read.

    Example:
        >>> format_of("a.CSV.gz"), format_of("b.pt")
        ('csv', 'text')
    """
    name = os.path.basename(path).lower()
    if name.endswith(_OTHER_PACKING):
        raise UserError(f"{path}: is packed in a way that is not read; use gzip")
    name = name.removesuffix(".gz")
    return next(
        (f for f, ends in _FORMATS.items() if ends and name.endswith(ends)), "text"
    )


def survey(
    path: str, fields: Fields, part_bytes: int, start: int, size: int
) -> tuple[list | None, list[Piece]]:
    r"""Reads a file through, to find where its parts begin.

    All files together are one row of bytes, and every so many of them a part begins:
    at the next record.

    Args:
        path: The file.
        fields: What is wanted of the records.
        part_bytes: The length of a part.
        start: How many bytes the files before this one have.
        size: How many this one has.

    Returns:
        What `read` needs to know of the columns, which JSON can hold, and the file's
        pieces, one for each part that it has records in.

    Raises:
        UserError: The file cannot be read, or lacks a column.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "a.csv")
        >>> _ = path.write_text('id,text\n1,olá\n2,"bom\ndia"\n', encoding="utf-8")
        >>> fields = Fields("csv", "text", "id")
        >>> columns, pieces = survey(str(path), fields, 1000, 0, 30)
        >>> pieces
        [Piece(part=0, begin=8, number=2, records=2)]
        >>> [record.text for record in read(str(path), fields, columns, pieces[0])]
        ['olá', 'bom\ndia']
    """
    if fields.format == "parquet":
        return _survey_parquet(path, fields, part_bytes, start, size)
    columns, pieces, pace = None, [], Pace()
    with open_bytes(path) as file:
        begin = _skip_mark(path, file)
        records = _split(file, fields.format, begin, 1)
        if fields.format in ("csv", "tsv"):
            columns = _columns(path, fields, records)
        for count, (begin, number, _, _) in enumerate(records):
            part = (start + begin) // part_bytes
            if not pieces or pieces[-1][0] != part:
                pieces.append([part, begin, number, 0])
            pieces[-1][3] += 1
            if not count % 100_000 and pace.is_due():
                log.info("%s: %s lines read", path, f"{number:,}")
    return columns, [Piece(*piece) for piece in pieces]


def read(
    path: str, fields: Fields, columns: list | None, piece: Piece
) -> Iterator[Record]:
    """Reads the records of a piece of a file.

    Args:
        path: The file.
        fields: What is wanted of the records.
        columns: What `survey` says of them.
        piece: One that `survey` found.

    Yields:
        Every record, also what cannot be used.

    Raises:
        UserError: The file cannot be read.
    """
    if fields.format == "parquet":
        yield from _read_parquet(path, fields, piece)
        return
    with open_bytes(path) as file:
        file.seek(piece.begin)
        found = _split(file, fields.format, piece.begin, piece.number)
        for _, number, raw, size in itertools.islice(found, piece.records):
            try:
                if size > MAX_BYTES:
                    raise _Unusable(_too_long(size))
                id, text = _parse(_as_utf8(raw, fields), fields, columns)
                yield Record(number, id, _text(text))
            except _Unusable as error:
                yield Record(number, reason=str(error), raw=raw)


def shown(raw: bytes | None) -> str | dict | None:
    r"""What JSON can hold of a record's bytes.

    Args:
        raw: As a `Record` has them.

    Returns:
        A string, or of what is not UTF-8 ``{"b64": ...}``, as in TensorFlow Serving's
        REST API.

    Example:
        >>> shown("olá".encode()), shown(b"\xff")
        ('olá', {'b64': '/w=='})
    """
    if raw is None:
        return None
    # One that is cut may end within a character.
    whole = len(raw) < MAX_BYTES
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(raw, final=whole)
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(raw).decode()}


# From bytes to records


def _skip_mark(path: str, file: BinaryIO) -> int:
    """Skips a byte-order mark, and tells how long it is."""
    start = file.peek(3)[:3]
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise UserError(f"{path}: the text is in UTF-16; save it as UTF-8")
    return len(file.read(3)) if start == codecs.BOM_UTF8 else 0


def _split(file: BinaryIO, format: str, begin: int, number: int) -> Iterator[tuple]:
    """Yields where each record begins, its line, its bytes and how many they are.

    Those that are too long are cut: the bytes are then fewer than their number.
    """
    if format == "csv":
        found = _split_csv(file, begin, number)
    else:
        found = _split_lines(file, begin, number)
    for begin, number, raw, size in found:
        blank = not (raw.strip() if format == "jsonl" else raw)
        if format == "text" or not blank:
            yield begin, number, raw[:MAX_BYTES], size


def _split_lines(file: BinaryIO, begin: int, number: int) -> Iterator[tuple]:
    while True:
        line, length = _read_line(file)
        if not length:
            return
        raw = line.removesuffix(b"\n").removesuffix(b"\r")
        yield begin, number, raw, len(raw) if length == len(line) else length
        begin += length
        number += 1


def _read_line(file: BinaryIO) -> tuple[bytes, int]:
    """A line, with its end, or the beginning of a long one; and its length."""
    line = file.readline(MAX_BYTES + 2)
    length = len(line)
    if length == MAX_BYTES + 2 and not line.endswith(b"\n"):
        more = line
        while more and not more.endswith(b"\n"):
            more = file.readline(MAX_BYTES)
            length += len(more)
    return line, length


def _split_csv(file: BinaryIO, begin: int, number: int) -> Iterator[tuple]:
    lines = _CsvLines(file, begin, number)
    # The reader itself says where a record ends, for it asks for the next line.
    reader = _csv_reader(lines)
    while True:
        begin, number = lines.begin_record()
        try:
            next(reader)
        except StopIteration:
            return
        except (csv.Error, _Unusable):
            pass  # whoever parses the record sees it again
        yield begin, number, *lines.end_record()


class _CsvLines:
    """The lines of a file, for `csv.reader`; it refuses to make a record too long."""

    def __init__(self, file, begin, number):
        self._file, self._begin, self._number = file, begin, number
        self._lines, self._length = [], 0

    def begin_record(self):
        self._lines, self._length = [], 0
        return self._begin, self._number

    def end_record(self):
        raw = b"".join(self._lines)
        whole = len(raw) == self._length
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        return raw, len(raw) if whole else self._length

    def __iter__(self):
        return self

    def __next__(self):
        line, length = _read_line(self._file)
        if not length:
            raise StopIteration
        self._lines.append(line)
        self._length += length
        self._begin += length
        self._number += 1
        if self._length > MAX_BYTES + 2:
            raise _Unusable
        return line.decode("latin-1").replace("\0", _NUL)


def _csv_reader(lines: Iterator[str]):
    # Else a field has 131,072 characters at most.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_BYTES + 2))
    return csv.reader(lines, strict=True)


def _columns(path: str, fields: Fields, records: Iterator[tuple]) -> list:
    """The places of the text and of the id, and how many columns there are."""
    wanted = [name for name in fields[1:3] if name is not None]
    if all(name.isdecimal() for name in wanted):
        if not all(map(int, wanted)):
            raise UserError("--column and --id-column: columns are numbered from 1")
        places = dict(zip(wanted, (int(name) - 1 for name in wanted), strict=True))
        count = None
    else:
        header = next(records, None)
        if header is None:
            return [0, None, None]
        try:
            if header[3] > MAX_BYTES:
                raise _Unusable(_too_long(header[3]))
            row = _row(_as_utf8(header[2], fields), fields.format)
            names = list(map(_text, row))
        except _Unusable as error:
            raise UserError(f"{path}:{header[1]}: no header: {error}") from None
        missing = [name for name in wanted if name not in names]
        if missing:
            raise UserError(_lacks(path, missing[0], names))
        places, count = {name: names.index(name) for name in wanted}, len(names)
    id_place = None if fields.id_column is None else places[fields.id_column]
    return [places[fields.column], id_place, count]


def _lacks(path: str, name: str, names: list[str]) -> str:
    some = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
    return (
        f"{path}: has no column {name!r}, but {some}: name the texts' with --column, "
        "the ids' with --id-column"
    )


def _as_utf8(raw: bytes, fields: Fields) -> bytes:
    if fields.encoding == "utf-8":
        return raw  # only what is wanted of it must be
    try:
        return raw.decode(fields.encoding).encode()
    except UnicodeError:
        raise _Unusable(f"not {fields.encoding}") from None


def _parse(raw: bytes, fields: Fields, columns: list | None) -> tuple:
    """A record's id and text, as they stand there."""
    if fields.format == "text":
        return None, raw
    if fields.format == "jsonl":
        return _parse_json(raw, fields)
    text, id, count = columns
    row = _row(raw, fields.format)
    if count is not None and len(row) != count:
        raise _Unusable(f"wrong number of columns: {len(row)}, the header has {count}")
    if len(row) <= max(text, id or 0):
        raise _Unusable(f"wrong number of columns: {len(row)}")
    return None if id is None else _text(row[id], "the id is "), row[text]


def _row(raw: bytes, format: str) -> list[bytes]:
    if format == "tsv":
        return raw.split(b"\t")
    try:
        row = next(_csv_reader(iter([raw.decode("latin-1").replace("\0", _NUL)])))
    except csv.Error as error:
        raise _Unusable(f"not CSV: {error}") from None
    return [field.replace(_NUL, "\0").encode("latin-1") for field in row]


def _parse_json(raw: bytes, fields: Fields) -> tuple:
    text = _text(raw)
    try:
        record = json.loads(text)
    except ValueError as error:
        reason = getattr(error, "msg", None) or str(error)
        place = f" (character {error.pos + 1})" if hasattr(error, "pos") else ""
        raise _Unusable(f"not JSON: {reason}{place}") from None
    except RecursionError:
        raise _Unusable("not JSON: nested too deeply") from None
    if not isinstance(record, dict):
        raise _Unusable(f"not a JSON object: {_kind(record)}")
    for name in fields[1:3]:
        if name is not None and name not in record:
            raise _Unusable(f"no field {name!r}")
    id = None
    if fields.id_column is not None:
        id = record[fields.id_column]
        if type(id) is not int:
            id = _text(id, "the id is ")
    return id, record[fields.column]


def _text(value: object, what: str = "") -> str:
    """A string that can be written as UTF-8, of a string or of bytes."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            raise _Unusable(f"{what}not UTF-8") from None
    if not isinstance(value, str):
        raise _Unusable(f"{what}not a string: {_kind(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Unusable(f"{what}not Unicode: half of a surrogate pair") from None
    return value


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", bool: "true or false", str: "a string"}
    return "null" if value is None else names.get(type(value), "a number")


def _too_long(size: int) -> str:
    return f"too long: {size:,} bytes, at most {MAX_BYTES:,} are read"


# Parquet


@contextlib.contextmanager
def _parquet(path: str):
    import pyarrow as pa
    from pyarrow import parquet

    with open_bytes(path, unpack=False) as file:
        try:
            yield parquet.ParquetFile(file, buffer_size=2**20, pre_buffer=False)
        except (pa.ArrowException, OSError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise UserError(
                f"{path}: cannot be read as Parquet ({reason}); check it"
            ) from None


def _survey_parquet(path, fields, part_bytes, start, size):
    import pyarrow as pa

    with _parquet(path) as file:
        rows, schema = file.metadata.num_rows, file.schema_arrow
    types = {field.name: field.type for field in schema}
    for name in fields[1:3]:
        if name is not None and name not in types:
            raise UserError(_lacks(path, name, schema.names))
    for name, type_ in types.items():
        if pa.types.is_dictionary(type_):
            types[name] = type_.value_type
    kinds = [pa.types.is_string, pa.types.is_large_string]
    kinds += [pa.types.is_binary, pa.types.is_large_binary]
    if not any(is_kind(types[fields.column]) for is_kind in kinds):
        raise UserError(
            f"{path}: column {fields.column!r} has values of type "
            f"{types[fields.column]}: name one of strings with --column"
        )
    id_type = "string"
    if fields.id_column is not None:
        of = types[fields.id_column]
        if pa.types.is_integer(of):
            id_type = "uint64" if pa.types.is_uint64(of) else "int64"
        elif not any(is_kind(of) for is_kind in kinds):
            raise UserError(
                f"{path}: column {fields.id_column!r} has values of type {of}: name "
                "one of strings or integers with --id-column"
            )
    pieces, row = [], 0
    while row < rows:
        part = (start + row * size // rows) // part_bytes
        # The first row that is in a later part.
        end = -(-((part + 1) * part_bytes - start) * rows // size)
        end = min(max(end, row + 1), rows)
        pieces.append(Piece(part, row, row + 1, end - row))
        row = end
    return [id_type], pieces


def _read_parquet(path: str, fields: Fields, piece: Piece) -> Iterator[Record]:
    names = [name for name in fields[1:3] if name is not None]
    with _parquet(path) as file:
        groups = [
            file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)
        ]
        # The group that the first row is in, and its place there.
        skip, group = piece.begin, 0
        while group < len(groups) and skip >= groups[group]:
            skip -= groups[group]
            group += 1
        batches = file.iter_batches(
            batch_size=_ROWS,
            row_groups=range(group, len(groups)),
            columns=[*dict.fromkeys(names)],
            use_threads=False,
        )
        rows = (row for batch in batches for row in _rows(batch, fields))
        rows = itertools.islice(rows, skip, skip + piece.records)
        for number, (id, text) in enumerate(rows, piece.number):
            try:
                if text is None:
                    raise _Unusable("not a string: null")
                if len(text) > MAX_BYTES:
                    raise _Unusable(_too_long(len(text)))
                if fields.id_column is not None and type(id) is not int:
                    id = _text(id, "the id is ")
                yield Record(number, id, _text(text))
            except _Unusable as error:
                raw = text if text is None else text[:MAX_BYTES]
                yield Record(number, reason=str(error), raw=raw)


def _rows(batch, fields: Fields) -> Iterator[tuple]:
    """The id and the text of each row; what may be text comes as bytes."""
    import pyarrow as pa

    texts, ids = (
        None if name is None else batch.column(name) for name in (fields[1], fields[2])
    )
    lists = []
    for column in (ids, texts):
        if column is None:
            lists.append(itertools.repeat(None, len(texts)))
            continue
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if not pa.types.is_integer(column.type):
            column = column.cast(pa.large_binary())
        lists.append(column.to_pylist())
    return zip(*lists, strict=True)
