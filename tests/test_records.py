"""Records of every format: what is read, where it stands, and what cannot be used."""

import base64
import gzip
import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfxformer import records
from tfxformer.errors import UserError
from tfxformer.records import FORMATS, Fields, Piece, read, shown, survey

pytest.importorskip("apache_beam")

# Anything that UTF-8 can hold.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
# With what CSV and JSON lines are made of, and what breaks them.
BITS = [*b'ab,";\t \r\n\0\\{}[]:1', "ã".encode(), b"\xff", b'"a"', b'{"a":"b"}\n']
BITS = [bytes([bit]) if isinstance(bit, int) else bit for bit in BITS]
BYTES = st.lists(st.sampled_from(BITS), max_size=80).map(b"".join)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("records") / "file"


def read_all(path, fields, part_bytes=10**9, start=0, size=None):
    """All the records, and the pieces they were read in."""
    size = path.stat().st_size if size is None else size
    columns, pieces = survey(str(path), fields, part_bytes, start, size)
    columns = json.loads(json.dumps(columns))  # as it travels
    found = [[*read(str(path), fields, columns, piece)] for piece in pieces]
    assert [len(rows) for rows in found] == [piece.records for piece in pieces]
    return [record for rows in found for record in rows], pieces


# --- What was written is read ---


def csv_line(row, quoted):
    """A line of CSV; before Python 3.11 its own writer refuses NUL."""
    return ",".join(
        '"' + field.replace('"', '""') + '"'
        if quoted or {*field} & {*'",\r\n'}
        else field
        for field in row
    )


@given(
    st.lists(st.tuples(TEXT, TEXT), max_size=8),
    st.booleans(),
    st.booleans(),
    st.integers(1, 60),
)
@settings(deadline=None)
def test_csv_comes_back(file, rows, quoted, mark, part_bytes):
    table = [("key", "other", "text"), *((a, "x", b) for a, b in rows)]
    content = "".join(f"{csv_line(row, quoted)}\r\n" for row in table).encode()
    file.write_bytes(b"\xef\xbb\xbf" * mark + content)
    found, _ = read_all(file, Fields("csv", "text", "key"), part_bytes)
    assert [(record.id, record.text) for record in found] == rows
    # A record's number is that of the line it begins in, as an editor counts.
    lines = content.split(b"\n")
    for record, row in zip(found, table[1:], strict=True):
        first = csv_line(row, quoted).encode().split(b"\n")[0]
        assert lines[record.number - 1].removesuffix(b"\r") == first.removesuffix(b"\r")


@given(
    st.lists(
        st.tuples(
            st.one_of(TEXT, st.integers(-(2**70), 2**70)), TEXT, st.sampled_from("\n ")
        ),
        max_size=8,
    ),
    st.booleans(),
    st.integers(1, 60),
)
@settings(deadline=None)
def test_json_lines_come_back(file, rows, ascii, part_bytes):
    lines = [
        json.dumps({"text": b, "more": [b], "key": a}, ensure_ascii=ascii) + blank
        for a, b, blank in rows
    ]
    file.write_text("\n".join(lines), encoding="utf-8", newline="")
    found, _ = read_all(file, Fields("jsonl", "text", "key"), part_bytes)
    assert [(record.id, record.text) for record in found] == [row[:2] for row in rows]


@given(st.lists(TEXT, max_size=12), st.booleans(), st.integers(1, 60))
@settings(deadline=None)
def test_lines_of_text_come_back(file, rows, gzipped, part_bytes):
    rows = [row.replace("\n", "").removesuffix("\r") for row in rows]
    # A mark at the start is none of the text.
    rows[:1] = [row.lstrip("\ufeff") for row in rows[:1]]
    content = "".join(f"{row}\n" for row in rows).encode()
    file.write_bytes(gzip.compress(content) if gzipped else content)
    found, _ = read_all(file, Fields("text", None, None), part_bytes)
    assert [record.text for record in found] == rows
    assert [record.number for record in found] == [*range(1, len(rows) + 1)]
    assert not any(record.id for record in found)


@given(
    st.lists(st.tuples(st.one_of(TEXT, st.none()), st.integers(0, 99)), max_size=12),
    st.integers(1, 9),
    st.integers(1, 400),
    st.sampled_from(["string", "large_string", "binary", "dictionary"]),
)
@settings(deadline=None, max_examples=25)
def test_parquet_comes_back(file, rows, group, part_bytes, kind):
    import pyarrow as pa
    from pyarrow import parquet

    texts = pa.array([text for text, _ in rows], pa.string())
    texts = texts.dictionary_encode() if kind == "dictionary" else texts.cast(kind)
    keys = pa.array([key for _, key in rows], pa.int16())
    table = pa.table({"key": keys, "more": keys, "text": texts})
    parquet.write_table(table, file, row_group_size=group)
    found, pieces = read_all(file, Fields("parquet", "text", "key"), part_bytes)
    assert [record.number for record in found] == [*range(1, len(rows) + 1)]
    for record, (text, key) in zip(found, rows, strict=True):
        if text is None:
            assert record.reason == "not a string: null" and record.raw is None
        else:
            assert (record.id, record.text) == (key, text)
    # As if each row had as many bytes of the file as the others.
    size = file.stat().st_size
    parts = [row * size // len(rows) // part_bytes for row in range(len(rows))]
    assert [(piece.part, piece.begin) for piece in pieces] == [
        (part, parts.index(part)) for part in sorted(set(parts))
    ]


# --- Any bytes, cut anywhere ---


@given(BYTES, st.sampled_from(FORMATS[:-1]), st.booleans(), st.integers(1, 50))
@settings(deadline=None, max_examples=300)
def test_any_bytes_are_the_same_records_however_they_are_cut(
    file, content, format, gzipped, part_bytes
):
    content = content.removeprefix(b"\xff")  # else it may be UTF-16's mark
    file.write_bytes(gzip.compress(content) if gzipped else content)
    fields = Fields(format, None if format == "text" else "1", None)
    if format == "jsonl":
        fields = Fields(format, "a", None)
    before, records.MAX_BYTES = records.MAX_BYTES, 20
    try:
        whole, (*_,) = read_all(file, fields)
        cut, pieces = read_all(file, fields, part_bytes, size=len(content))
    finally:
        records.MAX_BYTES = before
    assert cut == whole
    parts = [piece.part for piece in pieces]
    assert parts == sorted(set(parts))
    assert all(piece.begin // part_bytes == piece.part for piece in pieces)
    for record in whole:
        assert (record.text is None) == (record.reason is not None)
        if record.reason:
            assert record.raw in content and len(record.raw) <= 20
            json.dumps(shown(record.raw))
    if format == "text":
        lines = content.removesuffix(b"\n").split(b"\n") if content else []
        lines = [line.removesuffix(b"\r") for line in lines]
        assert len(whole) == len(lines)
        for record, line in zip(whole, lines, strict=True):
            try:
                usable = len(line) <= 20 and line.decode()
            except UnicodeDecodeError:
                usable = False
            if usable is False:
                assert record.reason and record.raw == line[:20]
            else:
                assert record.text == usable


# --- What cannot be used ---


def one(file, format, content, id_column=None):
    """The last record of a file."""
    file.write_bytes(content)
    fields = Fields(format, None if format == "text" else "text", id_column)
    return read_all(file, fields)[0][-1]


BAD = {
    "text: not UTF-8": ("text", b"ol\xe1", "not UTF-8"),
    "json: not UTF-8": ("jsonl", b'{"text": "ol\xe1"}', "not UTF-8"),
    "json: no JSON": ("jsonl", b"{text: 1}", "not JSON: Expecting property name"),
    "json: two values": ("jsonl", b'{"text": "a"} {}', "not JSON: Extra data"),
    "json: deep": ("jsonl", b"[" * 200_000, "not JSON: nested too deeply"),
    "json: huge number": ("jsonl", b'{"text": ' + b"1" * 5000, "not JSON: Exceeds the"),
    "json: a list": ("jsonl", b'["text"]', "not a JSON object: a list"),
    "json: a string": ("jsonl", b'"text"', "not a JSON object: a string"),
    "json: no field": ("jsonl", b'{"Text": "a"}', "no field 'text'"),
    "json: null": ("jsonl", b'{"text": null}', "not a string: null"),
    "json: a number": ("jsonl", b'{"text": 5}', "not a string: a number"),
    "json: a truth": ("jsonl", b'{"text": true}', "not a string: true or false"),
    "json: an object": ("jsonl", b'{"text": {}}', "not a string: an object"),
    "json: a surrogate": ("jsonl", rb'{"text": "\ud83d"}', "not Unicode: half of a"),
    "csv: not UTF-8": ("csv", b"text\nol\xe1", "not UTF-8"),
    "csv: more": ("csv", b"text\na,b", "wrong number of columns: 2, the header has 1"),
    "csv: fewer": ("csv", b"a,text\nb", "wrong number of columns: 1, the header has 2"),
    "csv: a quote": ("csv", b'text\n"a"b', "not CSV: ',' expected after '\"'"),
    "csv: open": ("csv", b'text\n"a\nb\n', "not CSV: unexpected end of data"),
    "csv: a return": ("csv", b"text\na\rb\n", "not CSV: new-line character seen"),
    "tsv: fewer": ("tsv", b"a\ttext\nb", "wrong number of columns: 1, the header has"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_used_says_why(name, file):
    format, content, reason = BAD[name]
    record = one(file, format, content)
    assert record.reason.startswith(reason) and "\n" not in record.reason
    assert record.text is None and record.id is None
    raw = content.removeprefix(b"text\n").removeprefix(b"a,text\n")
    assert record.raw == raw.removeprefix(b"a\ttext\n").removesuffix(b"\n")


@pytest.mark.parametrize(
    ("format", "content"),
    [
        ("text", "não"),
        ("csv", 'é,text\n1,"não"\n'),
        ("tsv", "text\nnão\n"),
        ("jsonl", '{"text": "não"}'),
    ],
)
def test_records_may_be_in_another_encoding(format, content, file):
    content = content.encode("latin-1")
    column = None if format == "text" else "text"
    file.write_bytes(content)
    found, _ = read_all(file, Fields(format, column, None, "latin-1"))
    assert found[-1].text == "não"
    file.write_bytes(content.replace(b"\xe3", b"\x81"))
    found, _ = read_all(file, Fields(format, column, None, "cp1252"))
    assert found[-1].reason == "not cp1252"


@pytest.mark.parametrize("format", FORMATS[:-1])
def test_a_record_that_is_too_long_is_cut_and_the_next_is_read(format, file):
    limit = records.MAX_BYTES
    wrap = b'{"text": "%s"}' if format == "jsonl" else b"%s"
    head = b"text\n" if format in ("csv", "tsv") else b""
    room = limit - len(wrap) + 2
    fields = Fields(format, None if format == "text" else "text", None)
    for length, fits in ((room, True), (room + 1, False), (5 * limit, False)):
        lines = [wrap % (b"a" * length), wrap % b"the next"]
        file.write_bytes(head + b"\r\n".join(lines) + b"\r\n")
        long, following = read_all(file, fields, 1000)[0]
        assert following.text == "the next"
        if fits:
            assert len(long.text) == length
        else:
            size = length + len(wrap) - 2
            assert long.reason.startswith("too long: ")
            assert size <= int(long.reason.split()[2].replace(",", "")) <= size + 2
            assert long.raw == lines[0][:limit] and len(shown(long.raw)) == limit


def test_a_quote_that_is_not_closed_takes_no_more_than_a_record_may_have(file):
    rows = [b"row %d" % n for n in range(150_000)]
    file.write_bytes(b'text\n"' + b"\n".join(rows) + b"\n")
    first, *rest = read_all(file, Fields("csv", "text", None), 10_000)[0]
    assert first.reason.startswith("too long") and first.number == 2
    assert len(rest) > 10_000 and rest[-1].text == "row 149999"
    assert [row.number for row in rest] == [*range(rest[0].number, 150_002)]


def test_ids_are_strings_or_integers(file):
    lines = [
        b'{"text": "a", "key": %s}' % value
        for value in (b'"x"', b"-7", b"1.5", b"null", b"true", rb'"\udc00"', b"[]")
    ]
    file.write_bytes(b"\n".join([*lines, b'{"text": "a"}']))
    found, _ = read_all(file, Fields("jsonl", "text", "key"))
    assert [record.id for record in found[:2]] == ["x", -7]
    assert [record.reason for record in found[2:]] == [
        "the id is not a string: a number",
        "the id is not a string: null",
        "the id is not a string: true or false",
        "the id is not Unicode: half of a surrogate pair",
        "the id is not a string: a list",
        "no field 'key'",
    ]
    record = one(file, "csv", b"text,key\na,\xff", "key")
    assert record.reason == "the id is not UTF-8"


def test_columns_may_have_numbers(file):
    file.write_bytes(b"a\tb\tc\nd\te\tf\tg\nh\n")
    found, _ = read_all(file, Fields("tsv", "2", "1"))
    assert [(r.id, r.text, r.reason) for r in found] == [
        ("a", "b", None),
        ("d", "e", None),
        (None, None, "wrong number of columns: 1"),
    ]


def test_tsv_has_no_quotes(file):
    file.write_bytes(b'text\tid\n"Vens?" disse ela.\t"\n\n"a\tb"\n')
    found, _ = read_all(file, Fields("tsv", "text", "id"))
    assert [(r.id, r.text) for r in found] == [
        ('"', '"Vens?" disse ela.'),
        ('b"', '"a'),
    ]


WRONG = {
    "no column": ("csv", b"a,b\n1,2\n", "has no column 'text', but 'a', 'b': name"),
    "other commas": ("csv", b"id;text\n1;2\n", "has no column 'text', but 'id;text'"),
    "no header": ("csv", b'"a"b\n1,2\n', ":1: no header: not CSV"),
    "a header in Latin-1": ("csv", b"\xe1\n1\n", ":1: no header: not UTF-8"),
    "an endless header": ("tsv", b"a" * 2**21, ":1: no header: too long"),
    "UTF-16": ("text", "olá".encode("utf-16"), "is in UTF-16; save it as UTF-8"),
    "cut short": (
        "text",
        gzip.compress(b"a\nb\n" * 99)[:-9],
        "the gzip file is cut sh",
    ),
    "no Parquet": ("parquet", b"PAR1 not so PAR1", "cannot be read as Parquet ("),
    "nothing for Parquet": ("parquet", b"", "cannot be read as Parquet ("),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_cannot_be_used_is_named(name, file):
    format, content, message = WRONG[name]
    file.write_bytes(content)
    fields = Fields(format, None if format == "text" else "text", None)
    with pytest.raises(UserError) as error:
        survey(str(file), fields, 100, 0, 100)
    assert str(error.value).startswith(str(file)) and message in str(error.value)
    assert "\n" not in str(error.value)


def test_columns_of_parquet_have_types(file):
    import pyarrow as pa
    from pyarrow import parquet

    columns = {"text": ["a"], "number": [1], "half": [0.5], "list": [["a"]]}
    columns["big"] = pa.array([2**64 - 1], pa.uint64())
    parquet.write_table(pa.table(columns), file)
    for name, message in (("nothing", "has no column"), ("list", "of type list<")):
        with pytest.raises(UserError, match=message):
            survey(str(file), Fields("parquet", name, None), 100, 0, 100)
    with pytest.raises(UserError, match="'half' has values of type double"):
        survey(str(file), Fields("parquet", "text", "half"), 100, 0, 100)
    for name, type_ in (("big", "uint64"), ("number", "int64"), ("text", "string")):
        columns, pieces = survey(str(file), Fields("parquet", "text", name), 9, 0, 99)
        assert columns == [type_]
        (record,) = read(str(file), Fields("parquet", "text", name), columns, pieces[0])
        assert record.id == {"big": 2**64 - 1, "number": 1, "text": "a"}[name]


def test_a_damaged_page_of_parquet_is_told(file):
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"text": [f"olá {n}" for n in range(9999)]}), file)
    content = bytearray(file.read_bytes())
    content[4:2000] = b"\xff" * 1996
    file.write_bytes(content)
    with pytest.raises(UserError, match="cannot be read as Parquet") as error:
        read_all(file, Fields("parquet", "text", None))
    assert "\n" not in str(error.value)


def test_parquet_may_hold_what_is_not_utf_8(file):
    import pyarrow as pa
    from pyarrow import parquet

    bad = b"ol\xe1"
    array = pa.array([bad, b"a" * (records.MAX_BYTES + 1), b"b"], pa.binary())
    parquet.write_table(pa.table({"text": array}), file)
    first, second, third = read_all(file, Fields("parquet", "text", None))[0]
    assert (first.reason, first.raw) == ("not UTF-8", bad)
    assert second.reason.startswith("too long: 1,048,577 bytes")
    assert third.text == "b"


def test_shown_keeps_every_byte():
    assert base64.b64decode(shown(b"a\xff\0")["b64"]) == b"a\xff\0"
    assert shown(None) is None and shown("é\0".encode()) == "é\0"
    # Cut within a character, it still is text.
    cut = "é".encode() * records.MAX_BYTES
    assert shown(cut[1:][: records.MAX_BYTES])["b64"]
    assert shown(b"a" + cut[: records.MAX_BYTES - 1])[-1] == "é"


# --- Memory ---


@pytest.mark.parametrize("format", FORMATS[:-1])
def test_memory_does_not_grow_with_a_line(format, file):
    peaks = []
    for length in (2, 40):
        with open(file, "wb") as out:
            out.write(b"text\n")
            for _ in range(length):
                out.write(b'"' + b"a" * 2**20)
        fields = Fields(format, None if format == "text" else "text", None)
        tracemalloc.start()
        read_all(file, fields)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_a_row_group_is_not_read_at_once(file):
    import pyarrow as pa
    from pyarrow import parquet

    text = pa.array([f"uma frase que não é muito curta {n}" for n in range(400_000)])
    size = text.nbytes
    parquet.write_table(pa.table({"text": text}), file, row_group_size=400_000)
    del text
    before = pa.total_allocated_bytes()
    fields, piece = Fields("parquet", "text", None), Piece(0, 270_000, 1, 9)
    rows = read(str(file), fields, None, piece)
    assert next(rows).text.endswith(" 270000")
    assert pa.total_allocated_bytes() - before < size / 3
    assert len([*rows]) == 8
