"""Files in bulk: every format, failed records, and wrong options."""

import gzip
import json

import pytest

bulk = pytest.importorskip("tfxformer.bulk", reason="Apache Beam is not installed")


class Shouting:
    """A stand-in for a translator that fails on some texts."""

    def translate(self, texts):
        if any("refused" in text for text in texts):
            raise RuntimeError("no memory\nfor this")
        return [text.upper() for text in texts], [-len(text) / 3 for text in texts]


@pytest.fixture
def shouting(monkeypatch, tmp_path):
    """Runs `bulk` without a model; returns counts, translations and dead letters."""
    monkeypatch.setattr(bulk.Translations, "load_model", lambda self: Shouting())

    def run(*files, **options):
        out = tmp_path / "out"
        counts = bulk.bulk([str(tmp_path / x) for x in files], str(out), **options)
        return counts, read(out, "translations-*"), read(out, "dead-letters-*")

    return run


def read(out, pattern):
    """The rows of matching files, sorted by id or place, without the folder."""
    rows = []
    for file in out.glob(pattern):
        if file.suffix == ".parquet":
            rows += bulk.parquet.read_table(file).to_pylist()
        else:
            opened = gzip.open if file.suffix == ".gz" else open
            with opened(file, "rt", encoding="utf-8") as lines:
                rows += map(json.loads, lines)
    found = {row.get("id", row.get("place")): row for row in rows}
    assert len(rows) == len(found)
    return {str(id).removeprefix(f"{out.parent}/"): row for id, row in found.items()}


TEXT = '\ufeffOlá.\r\n \ncaf\udce9\n{"a": "b"\nfim'
CSV = 'n,body\n1,"Olá,\r\n""Ana"""\n2,fim\n3,a,b\n4\n'
TSV = 'n\tbody\n1\tOlá, "Ana\n2\tfim\n3\ta\tb\n4\n'
JSONL = """{"n": 1, "body": "Olá"}\n{"n": "2", "body": "fim", "more": 0}
{"n": 3}\n{"n": 4.5, "body": "a"}\n{"n": 5, "body": ["a"]}\n["n", "body"]\n{"n":"""
MORE, NONE = "more columns", "no value for 'body'; the fields are: n"
TYPE = "the text must be a string, and the id a string"


@pytest.mark.parametrize(
    ("name", "text", "expected", "reasons"),
    [
        (
            "a.pt",
            TEXT,
            {"a.pt:1": "OLÁ.", "a.pt:4": '{"A": "B"', "a.pt:5": "FIM"},
            {2: "no text", 3: "not UTF-8"},
        ),
        ("a.csv.gz", CSV, {"1": 'OLÁ,\n"ANA"', "2": "FIM"}, {5: MORE, 6: NONE}),
        ("a.tsv", TSV, {"1": 'OLÁ, "ANA', "2": "FIM"}, {4: MORE, 5: NONE}),
        (
            "a.jsonl",
            JSONL,
            {"1": "OLÁ", "2": "FIM"},
            {3: NONE, 4: TYPE, 5: TYPE, 6: "not a JSON object", 7: "not JSON"},
        ),
    ],
)
def test_bulk_translates_text_csv_tsv_and_jsonl_and_reports_bad_records(
    tmp_path, shouting, name, text, expected, reasons
):
    data = text.encode("utf-8", "surrogateescape")
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    options = {} if name == "a.pt" else {"column": "body", "id_column": "n"}
    counts, rows, dead = shouting(name, **options)
    assert {id: row["translation"] for id, row in rows.items()} == expected
    assert dead.keys() == {f"{name}:{line}" for line in reasons}
    for line, reason in reasons.items():
        assert dead[f"{name}:{line}"]["reason"].startswith(reason)
    assert name != "a.pt" or dead["a.pt:3"]["raw"] == r"caf\xe9"
    assert counts.pop("translated") == len(expected)
    assert sum(counts.values()) == len(reasons)


def test_capitals_in_a_file_name_do_not_change_its_bulk_format():
    names = "DATA.CSV", "a.Tsv.GZ", "a.JSONL", "a.TXT"
    assert [bulk._format_of(x, None) for x in names] == ["csv", "tsv", "jsonl", "text"]


def test_bulk_translates_parquet_and_refuses_ids_of_different_types(tmp_path, shouting):
    columns = {"n": [7, 8, 9], "text": ["olá", None, "fim"], "more": [0, 0, 0]}
    bulk.parquet.write_table(bulk.pa.table(columns), tmp_path / "a.parquet")
    others = {"n": ["x"], "text": ["sim"]}  # ids of another type
    bulk.parquet.write_table(bulk.pa.table(others), tmp_path / "b.parquet")
    files = [str(tmp_path / name) for name in ("a.parquet", "b.parquet")]
    with pytest.raises(bulk.UserError, match=r"--id-column n is string, and int64 in"):
        bulk._id_type(files, ["text", "n"])
    assert shouting("b.parquet", id_column="n")[1].keys() == {"x"}
    _, rows, dead = shouting("a.parquet", id_column="n")
    row = {"id": 7, "source": "olá", "translation": "OLÁ", "score": -1.0}
    assert {*rows} == {"7", "9", "x"} and rows["7"] == row
    assert [*dead] == ["a.parquet:2"]


def test_bulk_expands_patterns_and_retries_a_failed_batch_record_by_record(
    tmp_path, shouting
):
    (tmp_path / "a[1].txt").write_text("um\nrefused\n", "utf-8")
    (tmp_path / "c.jsonl").write_text('{"text": "três"}\n', "utf-8")
    (tmp_path / "empty.txt").touch()
    counts, rows, dead = shouting("a[1].txt", "[ce]*", "c.jsonl")
    assert {*rows} == {"a[1].txt:1", "c.jsonl:1"}
    assert dead["a[1].txt:2"]["reason"] == "not translated: for this"
    assert counts == {"translated": 2, "not translated": 1}
    (tmp_path / "b.txt").write_text("refused\n", "utf-8")
    with pytest.raises(bulk.UserError, match="no record could be translated: see"):
        bulk.bulk([str(tmp_path / "b.txt")], str(tmp_path / "bad"))


@pytest.mark.parametrize(
    ("name", "damaged", "line", "mended"),
    [
        # The zero bytes after the end are allowed, as gzip allows them. The time of
        # gzip's header would be in the test's name, and differ between the workers.
        (
            "a.txt.gz",
            gzip.compress(b"um\ndois\n", mtime=0)[:-9],
            3,
            gzip.compress(b"um", mtime=0) + b"\0",
        ),
        ("a.csv", b'text\num\n"dois\nfim\n', 3, b"text\num\n"),
        ("a.csv", b'text\num\n"dois\n"fim"\n', 3, b"text\num\n"),
    ],
)
def test_a_damaged_file_is_an_error_that_keeps_the_records_before_it(
    tmp_path, shouting, name, damaged, line, mended
):
    (tmp_path / name).write_bytes(damaged)
    (tmp_path / "b.txt").write_text("fim\n", "utf-8")
    with pytest.raises(bulk.UserError, match=rf"^\S*{name}: damaged: "):
        shouting(name, "b.txt")
    rows = read(tmp_path / "out", "translations-*").values()
    assert {"UM", "FIM"} <= {row["translation"] for row in rows}
    (dead,) = read(tmp_path / "out", "dead-letters-*").values()
    assert dead["place"] == f"{tmp_path / name}:{line}"
    (tmp_path / name).write_bytes(mended)
    _, rows, dead = shouting(name, "b.txt")
    assert {row["translation"] for row in rows.values()} == {"UM", "FIM"}
    assert not dead


def test_a_second_run_skips_finished_files(tmp_path, shouting, monkeypatch):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"{name}\n", "utf-8")
    shouting("a.txt")
    seen, parse = [], bulk._parse
    monkeypatch.setattr(bulk, "_parse", lambda *x: seen.append(x[2]) or parse(*x))
    counts, rows, _ = shouting("a.txt", "b.txt")
    assert counts == {"translated": 2} and {*rows} == {"a.txt:1", "b.txt:1"}
    assert {*seen} == {f"{tmp_path / 'b.txt'}:1"}
    (tmp_path / "a.txt").write_text("um\ndois\n", "utf-8")  # has changed
    assert shouting("a.txt", "b.txt")[0] == {"translated": 3}
    with pytest.raises(bulk.UserError, match="was begun with another format: use"):
        shouting("a.txt", format="text")


# Each line: options, and part of the message.
REFUSED = """
-i a.csv --out o[1] | --out o[1]: Beam would read *, ? and [ as a pattern
-i none.txt --out o | none.txt: no such file
-i folder --out o | folder: is a folder; use files: 'folder/*.csv'
-i a.csv --out o --column txt | a.csv:2: no value for 'txt'; the fields are: id, text;
-i a.csv --out o --format xml | --format xml: choose text, csv
-i a.csv --out done | done: exists already; name another folder
-i a.csv --out o --model folder | folder: not a SavedModel; write one
-i a.csv --out o --runner Nope | Nope
-i none://a/b.csv --out o | none://a/b.csv
"""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_bulk_refuses_wrong_options_in_one_line(tmp_path, monkeypatch, command, line):
    options, message = line.split(" | ")
    monkeypatch.chdir(tmp_path)
    for name in ("folder", "done"):
        (tmp_path / name).mkdir()
    (tmp_path / "a.csv").write_text("id,text\n1,olá\n", "utf-8")
    (tmp_path / "done" / "translations-00000-of-00001.jsonl").touch()
    out, err, code = command("-q", "bulk", *options.split())
    assert (out, code) == ("", 1)
    assert message in err.replace("\n", "") and "Traceback" not in err
    assert not (tmp_path / "o").exists()


def test_the_bulk_command_gives_the_translations_of_the_model(
    tmp_path, command, exported, served
):
    texts = ["Bom dia!", "O gato bebe leite. O cão dorme.", "Onde está a Ana?"]
    (tmp_path / "a.txt").write_text("\n".join([*texts, ""]), "utf-8")
    options = ["-i", tmp_path / "a.txt", "--out", tmp_path / "o", "--model", exported]
    out, err, code = command("bulk", *options)
    assert (out, code) == (f"{tmp_path / 'o'}: 3 translated, 0 failed\n", 0), err
    rows = read(tmp_path / "o", "translations-*").values()
    found = {row["source"]: row["translation"] for row in rows}
    assert found == dict(zip(texts, served(texts), strict=True))
