"""Files in bulk: every format, records that fail, and what the command refuses."""

import gzip
import json

import pytest

bulk = pytest.importorskip("tfxformer.bulk", reason="Apache Beam is not installed")


class Shouting:
    """A stand-in for a translator, which refuses some texts."""

    def translate(self, texts):
        if any("refused" in text for text in texts):
            raise RuntimeError("no memory\nfor this")
        return [text.upper() for text in texts], [-len(text) / 3 for text in texts]


@pytest.fixture
def shouting(monkeypatch, tmp_path):
    """Runs `bulk` without a model; gives counts, translations and dead letters."""
    monkeypatch.setattr(bulk.Translations, "load_model", lambda self: Shouting())

    def run(*files, **options):
        out = tmp_path / "out"
        counts = bulk.bulk([str(file) for file in files], str(out), **options)
        return counts, read(out, "translations-*"), read(out, "dead-letters-*")

    return run


def read(out, pattern):
    """The rows of the files that match, by id or place without the folder."""
    rows = []
    for file in out.glob(pattern):
        if file.suffix == ".parquet":
            rows += bulk.parquet.read_table(file).to_pylist()
        else:
            opened = gzip.open if file.suffix == ".gz" else open
            with opened(file, "rt", encoding="utf-8") as lines:
                rows += map(json.loads, lines)
    ids = [row.get("id", row.get("place")) for row in rows]
    names = [id.rpartition("/")[2] if isinstance(id, str) else id for id in ids]
    assert len(rows) == len({*names})
    return dict(zip(names, rows, strict=True))


def test_lines_of_text(tmp_path, shouting):
    lines = [b"\xef\xbb\xbfOl\xc3\xa1.\r", b" ", b"caf\xe9", b'{"a": "b"', b"fim"]
    (tmp_path / "a.pt").write_bytes(b"\n".join(lines))
    counts, rows, dead = shouting(tmp_path / "a.pt")
    assert counts == {"translated": 3, "no text": 1, "not UTF-8": 1}
    assert {*rows} == {"a.pt:1", "a.pt:4", "a.pt:5"}
    id = str(tmp_path / "a.pt:1")
    row = {"id": id, "source": "Olá.", "translation": "OLÁ.", "score": -1.3333}
    assert rows["a.pt:1"] == row
    assert dead["a.pt:2"]["reason"] == "no text"
    assert dead["a.pt:3"]["raw"] == r"caf\xe9"


CSV = 'n,body\n1,"Olá,\r\n""Ana"""\n2,fim\n3,a,b\n4\n'
TSV = 'n\tbody\n1\tOlá, "Ana\n2\tfim\n3\ta\tb\n4\n'
JSONL = """{"n": 1, "body": "Olá"}\n{"n": "2", "body": "fim", "more": 0}
{"n": 3}\n{"n": 4.5, "body": "a"}\n{"n": 5, "body": ["a"]}\n["n", "body"]\n{"n":"""
MORE, NONE = "more columns", "no value of 'body', only of n"
TYPE = "the text is no string, or the id no string"
REASONS = {3: NONE, 4: TYPE, 5: TYPE, 6: "not a JSON object", 7: "not JSON: "}


@pytest.mark.parametrize(
    ("name", "text", "expected", "reasons"),
    [
        ("a.csv.gz", CSV, {"1": 'OLÁ,\n"ANA"', "2": "FIM"}, {5: MORE, 6: NONE}),
        ("a.tsv", TSV, {"1": 'OLÁ, "ANA', "2": "FIM"}, {4: MORE, 5: NONE}),
        ("a.jsonl", JSONL, {1: "OLÁ", "2": "FIM"}, REASONS),
    ],
)
def test_fields(tmp_path, shouting, name, text, expected, reasons):
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    counts, rows, dead = shouting(tmp_path / name, column="body", id_column="n")
    assert {id: row["translation"] for id, row in rows.items()} == expected
    assert dead.keys() == {f"{name}:{line}" for line in reasons}
    for line, reason in reasons.items():
        assert dead[f"{name}:{line}"]["reason"].startswith(reason)
    assert sum(counts.values()) == len(expected) + len(reasons)


def test_parquet(tmp_path, shouting):
    columns = {"n": [7, 8, 9], "text": ["olá", None, "fim"], "more": [0, 0, 0]}
    bulk.parquet.write_table(bulk.pa.table(columns), tmp_path / "a.parquet")
    _, rows, dead = shouting(tmp_path / "a.parquet", id_column="n")
    assert {id: row["translation"] for id, row in rows.items()} == {7: "OLÁ", 9: "FIM"}
    assert [*dead] == ["a.parquet:2"]


def test_a_batch_that_fails_is_tried_again_one_by_one(tmp_path, shouting):
    (tmp_path / "a.txt").write_text("um\nrefused\ntrês\n", "utf-8")
    counts, rows, dead = shouting(tmp_path / "a.txt")
    assert [*rows] == ["a.txt:1", "a.txt:3"]
    assert dead["a.txt:2"]["reason"] == "not translated: for this"
    assert counts == {"translated": 2, "not translated": 1}
    (tmp_path / "b.txt").write_text("refused\n", "utf-8")
    with pytest.raises(bulk.UserError, match="not one record could be translated: see"):
        bulk.bulk([str(tmp_path / "b.txt")], str(tmp_path / "bad"))


def test_several_files_and_patterns(tmp_path, shouting):
    (tmp_path / "a[1].txt").write_text("um\n", "utf-8")
    (tmp_path / "b.txt").write_text("dois\n", "utf-8")
    (tmp_path / "c.jsonl").write_text('{"text": "três"}\n', "utf-8")
    (tmp_path / "empty.txt").touch()
    files = tmp_path / "a[1].txt", tmp_path / "[bce]*", tmp_path / "b.txt"
    counts, rows, _ = shouting(*files)
    assert counts == {"translated": 3}
    assert {*rows} == {"a[1].txt:1", "b.txt:1", "c.jsonl:1"}


# Each line: the options, and a part of the message.
REFUSED = """
-i none.txt --out o | none.txt: no such file
-i folder --out o | folder: is a folder; name files
-i a.csv --out o --column txt | a.csv:2: no value of 'txt', only of id, text; check
-i a.csv --out o --format jsonl | a.csv:1: not JSON
-i a.csv --out o --format xml | --format xml: choose text, csv
-i a.csv --out a.csv | a.csv: exists already; name another folder
-i a.csv --out done | done: exists already; name another folder
-i a.csv --out o --model folder | is not a SavedModel: it holds
-i a.csv --out o --runner Nope | Nope
-i none://a/b.csv --out o | none://a/b.csv
"""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_one_line_says_what_is_wrong(tmp_path, monkeypatch, command, line):
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


def test_the_command_answers_as_the_model(tmp_path, command, exported, served):
    texts = ["Bom dia!", "O gato bebe leite. O cão dorme.", "Onde está a Ana?"]
    (tmp_path / "a.txt").write_text("\n".join([*texts, ""]), "utf-8")
    options = ["-i", tmp_path / "a.txt", "--out", tmp_path / "o", "--model", exported]
    out, err, code = command("bulk", *options)
    assert code == 0, err
    assert out == f"{tmp_path / 'o'}: 3 translated, 0 failed\n"
    rows = read(tmp_path / "o", "translations-*").values()
    found = {row["source"]: row["translation"] for row in rows}
    assert found == dict(zip(texts, served(texts), strict=True))
