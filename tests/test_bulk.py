"""Bulk translation: what comes of every format; killed anywhere, refused, far away."""

import contextlib
import functools
import gzip
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from tfxformer import bulk as bulking
from tfxformer import records
from tfxformer.beam_jobs import Pipeline, _do
from tfxformer.bulk import Summary, bulk
from tfxformer.cli import main
from tfxformer.errors import UserError
from tfxformer.exporting.metadata import write_metadata

pytest.importorskip("apache_beam")

MULTI = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
TEXTS = [
    "Bom dia. " * 20,
    "",
    'uma, duas "e" três\tquatro',
    "NUL \0 e 😀\u2028fim",
    " espaços ",
    "Olá! O gato bebe leite.",
]


class Loud:
    """A model that shouts; what it was asked stays in its ``texts``."""

    def __init__(self):
        self.texts, self.breaks_at = [], None

    def translate(self, texts):
        if self.breaks_at in texts:
            raise UserError("broken")
        self.texts += texts
        return [text.upper() for text in texts], [-len(text) / 7 for text in texts]


class Inline(Pipeline):
    """Does jobs at once, without Beam's machinery, and in no order."""

    def run(self, jobs, step, path):
        jobs = json.loads(json.dumps(jobs))
        random.Random(0).shuffle(jobs)
        reports = json.loads(json.dumps([_do(job, step) for job in jobs]))
        for report in sorted(reports, key=lambda report: report["number"]):
            if "error" in report:
                raise UserError(report["error"])
        return sorted(reports, key=lambda report: report["number"])


@pytest.fixture
def model(tmp_path):
    """A folder that looks like an export."""
    folder = tmp_path / "export" / "loud" / "1"
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"loud")
    write_metadata(folder, [], {"max_length": 9})
    return folder


@pytest.fixture
def loud(model, monkeypatch):
    """The model of that folder, asked in this process."""
    loud = Loud()
    monkeypatch.setattr(bulking, "Pipeline", Inline)
    monkeypatch.setattr(bulking, "_load", lambda path, digest: loud)
    monkeypatch.chdir(model.parents[2])
    return loud


def rows_of(out):
    """All translations of a folder, in the order of its shards."""
    rows = []
    for path in sorted(Path(out).glob("translations-*")):
        rows += read_rows(path)
    return rows


def dead_letters(out):
    files = sorted(Path(out).glob("dead-letters-*"))
    return [row for path in files for row in read_rows(path)]


def read_rows(path):
    if path.suffix == ".parquet":
        from pyarrow import parquet

        return parquet.read_table(path).to_pylist()
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    return [json.loads(line) for line in content.split(b"\n") if line]


def files_of(folder):
    files = (path for path in Path(folder).iterdir() if path.is_file())
    return {path.name: path.read_bytes() for path in files}


def write_file(path, format, texts=TEXTS, keys=None):
    """Writes texts, and keys where there are any, in a format."""
    columns = {"key": keys or range(len(texts)), "text": texts}
    rows = list(zip(*columns.values(), strict=True))
    if format == "parquet":
        import pyarrow as pa
        from pyarrow import parquet

        table = pa.table({name: list(values) for name, values in columns.items()})
        parquet.write_table(table, path, row_group_size=2)
        return
    # By hand: before Python 3.11 csv writes no NUL.
    quoted = [
        ",".join('"' + str(value).replace('"', '""') + '"' for value in row)
        for row in [columns, *rows]
    ]
    lines = {
        "text": texts,
        "csv": quoted,
        "tsv": ["key\ttext", *(f"{key}\t{text}" for key, text in rows)],
        "jsonl": [json.dumps(dict(zip(columns, row, strict=True))) for row in rows],
    }[format]
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())


# --- What comes of it ---


@pytest.mark.parametrize(
    ("format", "packed"),
    [
        *((format, False) for format in records.FORMATS),
        *((format, True) for format in records.FORMATS if format != "parquet"),
    ],
)
def test_every_format(format, packed, loud, tmp_path):
    texts = [text.replace("\t", " ") for text in TEXTS] if format == "tsv" else TEXTS
    path = tmp_path / f"in.{'pt' if format == 'text' else format}"
    write_file(path, format, texts)
    if packed:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path = path.with_name(f"{path.name}.gz")
    more = {} if format == "text" else {"id_column": "key"}
    summary = bulk(path.name, "out", model="export/loud", shards=3, **more)
    assert summary == Summary(str(tmp_path / "out"), summary.shards, 6, 6, {})
    assert summary.shards in ((1, 2, 3) if packed else (2, 3))
    ids = [*range(6)] if format in ("jsonl", "parquet") else [*map(str, range(6))]
    if format == "text":
        ids = [f"{path.name}:{number}" for number in range(1, 7)]
    assert rows_of("out") == [
        {
            "id": id,
            "source": text,
            "translation": text.upper(),
            "score": round(-len(text) / 7, 4),
        }
        for id, text in zip(ids, texts, strict=True)
    ]
    ending = "parquet" if format == "parquet" else "jsonl.gz" if packed else "jsonl"
    many = f"{summary.shards:05d}"
    assert {path.name for path in Path("out").iterdir()} == {
        "bulk.json",
        *(f"translations-{n:05d}-of-{many}.{ending}" for n in range(summary.shards)),
    }


def test_ids_are_places_without_a_column_of_them(loud, tmp_path):
    (tmp_path / "in").mkdir()
    write_file(tmp_path / "in" / "a.csv", "csv", ["a\nb", "c"])
    write_file(tmp_path / "in" / "b.csv", "csv", ["d"])
    bulk("./in/*.csv", "out", model="export/loud")
    ids = [row["id"] for row in rows_of("out")]
    assert ids == ["in/a.csv:2", "in/a.csv:4", "in/b.csv:2"]
    write_file(tmp_path / "a.parquet", "parquet", ["a", "b", "c"])
    bulk(tmp_path / "a.parquet", "out2", model="export/loud")
    ids = [row["id"] for row in rows_of("out2")]
    assert ids == [f"{tmp_path}/a.parquet:{row}" for row in (1, 2, 3)]


def test_columns_may_have_other_names_or_numbers(loud, tmp_path):
    (tmp_path / "a.csv").write_text("text,corpo,nome\nx,olá,1\n")
    bulk("a.csv", "out", model="export/loud", column="corpo", id_column="nome")
    assert [(row["id"], row["source"]) for row in rows_of("out")] == [("1", "olá")]
    (tmp_path / "pairs").write_text("olá\thello\nadeus\tgoodbye\n")
    bulk("pairs", "out2", model="export/loud", format="tsv", column="1")
    assert [row["source"] for row in rows_of("out2")] == ["olá", "adeus"]


def test_bad_records_are_dead_letters(loud, tmp_path):
    lines = [b'{"text": "ol\xe1"}', b"{", b"", b'{"t": 1}']
    lines += [b'{"text": 1}', b'{"text": "%s"}' % (b"a" * records.MAX_BYTES)]
    lines += [b'{"text": "bom dia"}', '{"text": é'.encode()]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    for out, shards in (("out", None), ("cut", 100)):
        summary = bulk("a.jsonl", out, model="export/loud", shards=shards)
        assert (summary.records, summary.translated) == (7, 1)
        assert summary.reasons == {
            "not UTF-8": 1,
            "not JSON": 2,
            "no field 'text'": 1,
            "not a string": 1,
            "too long": 1,
        }
        assert "6 dead letters (2 not JSON, 1 not UTF-8, 1 no" in summary.describe()
        assert [row["id"] for row in rows_of(out)] == ["a.jsonl:7"]
        dead = dead_letters(out)
        places = [letter["place"] for letter in dead]
        assert places == [f"a.jsonl:{number}" for number in (1, 2, 4, 5, 6, 8)]
        assert dead[0]["raw"] == {"b64": "eyJ0ZXh0IjogIm9s4SJ9"}
        assert dead[1]["raw"] == "{" and dead[-1]["raw"] == '{"text": é'
        size = len(lines[5]) + 1
        assert dead[4]["reason"].startswith(f"too long: {size:,} bytes, at most 1,04")
        assert dead[4]["raw"] == lines[5][: records.MAX_BYTES].decode()
        for letter in dead:
            assert [*letter] == ["place", "reason", "raw"]


def test_text_in_another_encoding(loud, tmp_path):
    Path("in.txt").write_bytes("Ela não gosta.\nOlá.\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"2 not UTF-8.*--encoding"):
        bulk("in.txt", "dead", model="export/loud")
    summary = bulk("in.txt", "out", model="export/loud", encoding="latin-1")
    assert summary.translated == 2
    assert loud.texts == ["Ela não gosta.", "Olá."]


def test_a_model_that_reads_no_such_column_is_told(loud, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"texto": "a"}\n' * 3)
    for _ in range(2):  # also where it was done before
        with pytest.raises(UserError, match=r"not one record could be used: .* --col"):
            bulk("a.jsonl", "out", model="export/loud")
    assert len(dead_letters("out")) == 3


def test_many_small_files_share_shards(loud, tmp_path):
    texts = {}
    for number in range(300):
        path = tmp_path / "in" / f"{number % 7}" / f"{number:03d}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        texts[path] = [f"{number} {line}" for line in range(number % 4)]
        path.write_text("".join(f"{text}\n" for text in texts[path]))
    summary = bulk("in/**/*.txt", "out", model="export/loud", shards=5)
    wanted = [
        (f"{path.relative_to(tmp_path)}:{line}", text)
        for path in sorted(texts, key=str)
        for line, text in enumerate(texts[path], 1)
    ]
    assert [(row["id"], row["source"]) for row in rows_of("out")] == wanted
    assert summary.shards == 5 and summary.records == len(wanted)
    sizes = [path.stat().st_size for path in Path("out").glob("translations-*")]
    assert max(sizes) < 1.5 * min(sizes)
    # Two patterns that find the same file find it once; the output is no input.
    inputs = ["in/**/*.txt", "in/3/*.txt", "**/*.txt"]
    again = bulk(inputs, "in/out", model="export/loud")
    again = bulk([*inputs, "in/**/*"], "in/out", model="export/loud")
    assert again.records == len(wanted)


def test_files_without_a_record(loud, tmp_path):
    for name in ("a.txt", "b.txt", "d.txt"):
        (tmp_path / name).write_bytes(b"")
    summary = bulk("*.txt", "out", model="export/loud")
    assert summary.describe().endswith(
        "out: 0 records, 0 translated, 0 dead letters, 1 shard"
    )
    assert rows_of("out") == [] and len(files_of("out")) == 2
    (tmp_path / "c.txt").write_text("olá")
    assert bulk("*.txt", "out2", model="export/loud").records == 1
    assert [row["id"] for row in rows_of("out2")] == ["c.txt:1"]
    (tmp_path / "a.csv").write_text("text\n")
    (tmp_path / "b.csv").write_text("")
    assert bulk("*.csv", "out3", model="export/loud").records == 0
    write_file(tmp_path / "a.parquet", "parquet", [], [])
    (tmp_path / "a.parquet").unlink()
    write_file(tmp_path / "a.parquet", "parquet", ["a"])
    assert bulk("a.parquet", "out4", model="export/loud").records == 1


def test_names_of_files_may_be_odd(loud, tmp_path):
    names = [b"a[1]*?.txt", b"spa ce\n.txt", b"ol\xe1.txt"]
    for name in names:
        with open(os.path.join(os.fsencode(tmp_path), name), "w") as file:
            file.write("x\n")
    for number, name in enumerate(names):
        bulk(os.fsdecode(name), f"out{number}", model="export/loud")
        (row,) = rows_of(f"out{number}")
        assert row["id"] == name.decode(errors="replace") + ":1"
    (tmp_path / "none.csv").write_text("x\n")
    with open(b"bad\xff.csv", "w") as file:
        file.write("x\n")
    with pytest.raises(UserError, match="has no column 'text'"):
        bulk("bad*.csv", "out", model="export/loud")


def test_the_number_of_shards(loud, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("12345678\n" * 100)
    for shards in (1, 2, 3, 10, 50, 100):
        summary = bulk("a.txt", f"o{shards}", model="export/loud", shards=shards)
        assert summary.shards == shards
    assert bulk("a.txt", "o500", model="export/loud", shards=500).shards == 100
    monkeypatch.setattr(bulking, "SHARD_BYTES", 45)
    assert bulk("a.txt", "small", model="export/loud").shards == 20
    monkeypatch.setattr(bulking, "MAX_SHARDS", 4)
    assert bulk("a.txt", "few", model="export/loud").shards == 4
    first = files_of("o1")
    assert (
        b"".join(v for k, v in sorted(files_of("o10").items()) if k[0] == "t")
        == (first["translations-00000-of-00001.jsonl"])
    )


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_a_long_shard_is_done_in_chunks(format, loud, tmp_path, monkeypatch):
    path = tmp_path / f"a.{format}"
    write_file(path, format, [f"número {n}" for n in range(500)])
    bulk(path.name, "whole", model="export/loud", shards=1)
    calls = []
    translate = loud.translate
    loud.translate = lambda texts: calls.append(len(texts)) or translate(texts)
    monkeypatch.setattr(bulking, "CHUNK_RECORDS", 7)
    bulk(path.name, "cut", model="export/loud", shards=1)
    assert rows_of("cut") == rows_of("whole") and set(calls) == {7, 3}
    monkeypatch.setattr(bulking, "CHUNK_BYTES", 30)
    calls.clear()
    bulk(path.name, "again", model="export/loud", shards=1)
    assert rows_of("again") == rows_of("whole") and set(calls) <= {1, 2, 3, 4}


def test_memory_does_not_grow_with_the_input(loud, tmp_path, monkeypatch):
    monkeypatch.setattr(bulking, "SHARD_BYTES", 10_000)
    loud.translate = lambda texts: (texts, [0] * len(texts))
    peaks = []
    for count in (2_000, 12_000):
        path = tmp_path / f"{count}.csv"
        path.write_text("text\n" + "".join(f"uma frase {n}\n" for n in range(count)))
        tracemalloc.start()
        bulk(path.name, f"o{count}", model="export/loud")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]


def test_ids_of_one_type_in_parquet(loud, tmp_path):
    write_file(tmp_path / "a.parquet", "parquet", ["a"], [1])
    write_file(tmp_path / "b.parquet", "parquet", ["b"], ["x"])
    with pytest.raises(UserError, match=r"a.parquet are of type int64, those of b.par"):
        bulk("*.parquet", "out", model="export/loud", id_column="key")
    assert not Path("out").exists()
    bulk("*.parquet", "out", model="export/loud")
    assert [row["id"] for row in rows_of("out")] == ["a.parquet:1", "b.parquet:1"]


# --- Again ---


def test_again_is_free_and_otherwise_refused(loud, tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("olá\n" * 20)
    do = functools.partial(bulk, out="out", model="export/loud")
    first = do(["a.txt", "b.txt"], shards=4)
    before, asked = files_of("out"), len(loud.texts)
    times = {path: path.stat().st_mtime_ns for path in Path("out").iterdir()}
    assert do("[ab].txt", shards=4) == first and len(loud.texts) == asked
    assert times == {path: path.stat().st_mtime_ns for path in Path("out").iterdir()}
    for message, inputs, options in (
        (r"--shards was 4 and is 5", "?.txt", {"shards": 5}),
        (r"--shards was 4 and is not given", "?.txt", {}),
        (r"--input was a.txt \(and 1 more\) and is a.txt\)", "a.txt", {"shards": 4}),
        (
            r"--format was text and is tsv; --column was not given and is 1",
            "?.txt",
            {"shards": 4, "format": "tsv", "column": "1"},
        ),
    ):
        with pytest.raises(UserError, match=message):
            do(inputs, **options)
    (tmp_path / "b.txt").write_text("olá!\n" * 20)
    with pytest.raises(UserError, match=r"begun otherwise \(b.txt changed\): name ano"):
        do("?.txt", shards=4)
    os.utime("b.txt", (1, 1))
    with pytest.raises(UserError, match=r"b.txt changed"):
        do("?.txt", shards=4)
    assert files_of("out") == before


def test_another_model_is_refused(loud, model, tmp_path):
    (tmp_path / "a.txt").write_text("olá\n")
    bulk("a.txt", "out", model="export/loud")
    moved = model.with_name("7")
    model.rename(moved)  # the same one may move, and records beside it may change
    (moved / "assets.extra" / "more").write_text("more")
    bulk("a.txt", "out", model="export/loud")
    (moved / "saved_model.pb").write_bytes(b"louder")
    with pytest.raises(UserError, match="--model is another"):
        bulk("a.txt", "out", model="export/loud/7")


def test_what_did_not_begin_may_change(loud, tmp_path):
    """As long as no shard is there, nothing is lost."""
    (tmp_path / "a.jsonl").write_text('bad\n{"text": "olá"}\n')
    loud.breaks_at = "olá"
    with pytest.raises(UserError, match="broken"):
        bulk("a.jsonl", "out", model="export/loud", shards=1)
    assert set(files_of("out")) == {"bulk.json"}
    loud.breaks_at = None
    bulk("a.jsonl", "out", model="export/loud", shards=2)
    assert len(rows_of("out")) == 1 and len(dead_letters("out")) == 1


def test_finished_shards_stay_and_the_rest_is_done(loud, tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"{n:03d}\n" for n in range(100)))
    bulk("a.txt", "whole", model="export/loud", shards=20)
    loud.texts.clear()
    loud.breaks_at = "042"
    with pytest.raises(UserError, match="broken"):
        bulk("a.txt", "out", model="export/loud", shards=20)
    done, asked = set(files_of("out")) - {"bulk.json"}, len(loud.texts)
    assert 0 < len(done) < 19 and asked == 5 * len(done)
    loud.breaks_at = None
    bulk("a.txt", "out", model="export/loud", shards=20)
    assert len(loud.texts) == 100  # none twice
    assert files_of("out") == files_of("whole")
    name = "translations-00003-of-00020.jsonl"
    Path("out", name).unlink()
    bulk("a.txt", "out", model="export/loud", shards=20)
    assert len(loud.texts) == 105 and files_of("out") == files_of("whole")


def test_input_that_changes_meanwhile_is_noticed(loud, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("um\ndois\n\n")
    translate = loud.translate

    def meanwhile(texts):
        path.write_text("um\ntrês\n\n")
        os.utime(path, (time.time() + 9,) * 2)
        return translate(texts)

    loud.translate = meanwhile
    with pytest.raises(UserError, match=r"a.txt: has changed while it was translated"):
        bulk("a.txt", "out", model="export/loud", shards=2)
    assert len([*Path("out").glob("translations-*")]) == 1


KILLED = """
import json, os, random, signal, sys, types

# TensorFlow is not asked here; without it a start takes no time.
sys.modules["tensorflow"] = types.SimpleNamespace(
    errors=types.SimpleNamespace(OpError=ZeroDivisionError)
)
import apache_beam, pyarrow.parquet
from tfxformer import bulk as bulking
from tfxformer.beam_jobs import _do


class Inline:
    def __init__(self, *arguments):
        pass

    def run(self, jobs, step, path):
        return [_do(job, step) for job in jobs]


class Loud:
    def translate(self, texts):
        return [text.upper() for text in texts], [0] * len(texts)


def work(out, kill_at):
    done = 0

    def hook(event, arguments):
        nonlocal done
        if event in EVENTS and any(name in str(a) for a in arguments[:2]):
            done += 1
            if done == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    name = os.path.basename(out)
    if kill_at:
        sys.addaudithook(hook)
    bulking.bulk(INPUT, out, model=MODEL, shards=3)


INPUT, MODEL, FOLDER, STEP = sys.argv[1:]
EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"}
bulking.Pipeline = Inline
bulking._load = lambda path, digest: Loud()
kills, ended = 1 - int(STEP), False
while not ended:
    kills += int(STEP)
    out = os.path.join(FOLDER, f"killed{kills}")
    for kill_at in (kills, kills // 2, 0):  # in what it goes on with, too
        child = os.fork()
        if not child:
            try:
                work(out, kill_at)
                os._exit(0)
            except BaseException as error:
                print(error, file=sys.stderr)
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code == 0 or (kill_at and code == -signal.SIGKILL), code
        if kill_at == kills:
            ended = code == 0
print(kills)
"""


@pytest.mark.parametrize(
    ("format", "step"),
    [
        ("jsonl", 4),
        pytest.param("jsonl", 1, marks=pytest.mark.slow),
        pytest.param("parquet", 1, marks=pytest.mark.slow),
    ],
)
def test_killed_anywhere_it_ends_as_if_it_never_was(format, step, model, tmp_path):
    """Before each step that touches a file or folder; and again as it goes on."""
    if format == "jsonl":
        path = tmp_path / "a.jsonl.gz"
        lines = [json.dumps({"text": text}).encode() for text in TEXTS] * 3 + [b"bad"]
        path.write_bytes(gzip.compress(b"\n".join(lines)))
    else:
        path = tmp_path / "a.parquet"
        write_file(path, format, [*TEXTS * 3, None])
    killed = tmp_path / "killed"
    killed.mkdir()
    arguments = [str(path), str(model), str(killed), str(step)]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    kills = int(done.stdout)
    assert kills > 20
    last = files_of(killed / f"killed{kills}")  # never killed
    names = {name.split("-")[0] for name in last}
    assert names == {"bulk.json", "translations", "dead"}
    folders = [*killed.iterdir()]
    assert len(folders) == 1 + (kills - 1) // step
    for folder in folders:
        assert files_of(folder) == last, folder.name


# --- Refused ---

WRONG = {
    "no input": ([], "name files to translate with --input"),
    "no such file": (["--input", "none*.txt"], "none*.txt: there is no such file"),
    "a folder": (["--input", "export"], "is a folder; name the files in it, such as"),
    "far away": (["--input", "gs://a/b.txt"], "apache-beam[gcp]"),
    "two formats": (["--input", "a.[ct]*"], "a.csv is csv and a.txt is text: give"),
    "zipped": (["--input", "a.txt", "--input", "a.zip"], "a.zip: is packed in a way"),
    "no format": (["--input", "a.txt", "--format", "xml"], "--format 'xml': there are"),
    "a column of text": (["--input", "a.txt", "--column", "a"], "--column a: text has"),
    "ids of text": (["--input", "a.txt", "--id-column", "a"], "--id-column a: text"),
    "no column": (["--input", "a.csv"], "a.csv: has no column 'text', but 'key', 'a'"),
    "no id": (["--input", "a.csv", "--column", "a", "--id-column", "b"], "column 'b'"),
    "a number and a name": (
        ["--input", "a.csv", "--column", "a", "--id-column", "1"],
        "--column a and --id-column 1: give names",
    ),
    "an encoding of Parquet": (
        ["--input", "a.txt", "--format", "parquet", "--encoding", "latin-1"],
        "--encoding latin-1: Parquet is in UTF-8; leave it out",
    ),
    "column 0": (["--input", "a.csv", "--column", "0"], "columns are numbered from 1"),
    "no shards": (["--input", "a.txt", "--shards", "0"], "--shards 0: must be at l"),
    "cut short": (["--input", "a.gz"], "a.gz: the gzip file is cut short"),
    "UTF-16": (["--input", "a.utf16"], "a.utf16: the text is in UTF-16"),
    "no Parquet": (["--input", "a.txt", "--format", "parquet"], "cannot be read as Pa"),
    "no model": (["--input", "a.txt", "--model", "none"], "none: there is no such f"),
    "a run": (["--input", "a.txt", "--model", "run"], "run: is a run folder: exp"),
    "no version": (["--input", "a.txt", "--model", "."], ". is not a SavedModel: it"),
    "another's model": (["--input", "a.txt", "--model", "other"], "none that tfxform"),
    "a far model": (["--input", "a.txt", "--model", "s3://a"], "apache-beam[aws]"),
    "no such storage": (["--input", "hm://a"], "hm://a: Apache Beam does not reach"),
    "hadoop": (["--input", "hdfs://a/b.txt"], "apache-beam[hadoop]"),
    "no runner": (["--input", "a.txt", "--runner", "Bean"], "--runner Bean: Unexpe"),
    "a file for a folder": (["--input", "a.txt", "--out", "a.csv"], "a.csv: is a file"),
    "a folder of others": (["--input", "a.txt", "--out", "run"], "is neither a folder"),
    "a pattern without quotes": (
        ["--input", "a.txt", "b.txt"],
        "'b.txt': name files with --input, a pattern within quotes",
    ),
    "an option that Beam lacks": (["--input", "a.txt", "--", "--x=1"], "--x: Beam has"),
    "the runner twice": (["--input", "a.txt", "--", "--runner=F"], "before the --"),
}


@pytest.fixture
def wrong(monkeypatch, capfd, loud, tmp_path):
    """Runs a command that must fail, in a folder with files; gives its one line."""
    (tmp_path / "a.csv").write_text("key,a\n1,2\n")
    (tmp_path / "a.txt").write_text("olá\n")
    (tmp_path / "a.zip").write_text("PK")
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"a\nb\n" * 999)[:-9])
    (tmp_path / "a.utf16").write_text("olá", encoding="utf-16")
    for folder, file in (("run", "config.yaml"), ("other", "saved_model.pb")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).write_text("")
    before = {*tmp_path.rglob("*")}

    def run(*args):
        if "--out" not in args:
            args = ["--out", "out", *args]
        if "--model" not in args:
            args = ["--model", "export/loud", *args]
        monkeypatch.setattr(sys, "argv", ["tfxformer", "bulk", *args])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capfd.readouterr()
        assert end.value.code == 1 and out == ""
        assert len(err.splitlines()) == 1, err
        assert {*tmp_path.rglob("*")} == before
        return err

    return run


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_ends_in_one_clear_line_and_leaves_nothing(name, wrong):
    args, message = WRONG[name]
    line = wrong(*args)
    assert line.startswith("tfxformer: error: ") and message in line


def test_without_beam_it_says_what_to_install(wrong, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n: None if n == "apache_beam" else find(n)
    )
    line = wrong("--input", "a.txt")
    assert "bulk needs Apache Beam: pip install 'tfxformer[beam]'" in line


def test_a_full_disk_is_told_and_left_clean(loud, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("olá\n")
    rename = bulking.storage.rename

    def full(part, path):
        if "translations" in path:
            raise OSError(28, "No space left on device", path)
        rename(part, path)

    monkeypatch.setattr(bulking.storage, "rename", full)
    with pytest.raises(UserError, match=r"translations-.*: No space left on device"):
        bulk("a.txt", "out", model="export/loud")
    assert set(files_of("out")) == {"bulk.json"}


def test_a_folder_is_written_once_at_a_time(loud, tmp_path):
    (tmp_path / "a.txt").write_text("olá\n")
    refused, translate = [], loud.translate

    def meanwhile(texts):
        with pytest.raises(UserError, match="another process writes it") as error:
            bulk("a.txt", "out", model="export/loud")
        refused.append(error)
        return translate(texts)

    loud.translate = meanwhile
    assert bulk("a.txt", "out", model="export/loud").translated == 1 and refused


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "bulk.json: damaged"),
        ('{"format": 1, "settings": {}}', "bulk.json: damaged"),
        ('{"format": 2, "tfxformer": "9"}', r"by another tfxformer \(9\)"),
    ],
)
def test_a_manifest_that_cannot_be_is_refused(content, message, loud, tmp_path):
    (tmp_path / "a.txt").write_text("olá\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "bulk.json").write_text(content)
    with pytest.raises(UserError, match=message):
        bulk("a.txt", "out", model="export/loud")


# --- On Beam, with a model ---


def test_ctrl_c_ends_it_and_finished_shards_stay(loud, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(bulking, "Pipeline", Pipeline)
    (tmp_path / "a.txt").write_text("".join(f"{n:03d}\n" for n in range(100)))
    translate = loud.translate

    def interrupted(texts):
        if len(loud.texts) >= 15:
            raise KeyboardInterrupt
        return translate(texts)

    loud.translate = interrupted
    with pytest.raises(KeyboardInterrupt):
        bulk("a.txt", "out", model="export/loud", shards=20)
    assert capfd.readouterr().err.count("\n") <= 2  # and nothing of Beam's own
    assert len(rows_of("out")) == 15 and len(files_of("out")) == 4
    loud.translate = translate
    assert bulk("a.txt", "out", model="export/loud", shards=20).translated == 100
    assert len(loud.texts) == 100


def odd_texts():
    return [
        *TEXTS,
        "O gato preto bebeu o leite. Porquê?\nNão sei…",
        "palavra " * 300,
        "😀 مرحبا 你好",
        "\r\n",
        "!" * 500,
    ]


@pytest.fixture
def no_model_yet(monkeypatch):
    bulking._load.cache_clear()
    yield
    bulking._load.cache_clear()


def test_the_command_translates_as_the_translator_does(
    exported, served, tmp_path, monkeypatch, capfd, no_model_yet
):
    monkeypatch.chdir(tmp_path)
    texts = odd_texts()
    write_file(tmp_path / "in.jsonl", "jsonl", texts)
    arguments = ["bulk", "--model", str(exported.parent), "--out", "out"]
    arguments += ["--input", "in.jsonl", "--id-column", "key"]
    monkeypatch.setattr(sys, "argv", ["tfxformer", *arguments])
    with pytest.raises(SystemExit, match="0"):
        main()
    out, err = capfd.readouterr()
    line = f"{len(texts)} records, {len(texts)} translated, 0 dead letters, 1 shard"
    assert out == f"{tmp_path / 'out'}: {line}\n"
    named, cut, *done = err.splitlines()
    assert named == f"model: {exported}"
    assert cut == f"{len(texts)} records of 1 file, in 1 shard"
    assert len(done) == 1, err  # and nothing of Beam's own
    assert done[0].startswith("translated in ")
    rows = rows_of("out")
    translations, scores = served.translate(texts)
    assert [row["source"] for row in rows] == texts
    assert [row["translation"] for row in rows] == translations
    assert [row["score"] for row in rows] == pytest.approx(scores, abs=6e-5)
    assert any(translation.strip() for translation in translations)


def test_a_damaged_model_is_told(exported, tmp_path, no_model_yet):
    for file in exported.rglob("*"):
        if file.is_file():
            copy = tmp_path / "model" / "3" / file.relative_to(exported)
            copy.parent.mkdir(parents=True, exist_ok=True)
            content = file.read_bytes()
            copy.write_bytes(content[:999] if file.suffix == ".pb" else content)
    (tmp_path / "a.txt").write_text("olá\n")
    with pytest.raises(UserError, match=r"model/3: damaged: ") as error:
        bulk(tmp_path / "a.txt", tmp_path / "out", model=tmp_path / "model")
    assert "\n" not in str(error.value)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"bulk.json"}


@pytest.mark.slow
def test_storage_of_a_cluster_holds_input_model_and_output(
    exported, tmp_path, monkeypatch, no_model_yet
):
    from far_storage import make_storage

    root = tmp_path / "root"
    (root / "in").mkdir(parents=True)
    _far = make_storage(root, "away", renames_over=False)
    for file in exported.rglob("*"):
        if file.is_file():
            copy = root / "model" / "1" / file.relative_to(exported)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    texts = ["O gato bebe leite.", "Bom dia!"]
    write_file(root / "in" / "a.csv", "csv", texts)
    with open(root / "in" / "a.csv", "ab") as file:
        file.write(b"only one\r\n")
    write_file(root / "in" / "b.csv", "csv", texts)
    do = functools.partial(bulk, "away://in/*.csv", model="away://model", shards=2)
    summary = do("away://deep/out/")
    near = bulk(f"{root}/in/*.csv", tmp_path / "near", model=exported, shards=2)
    assert (summary.path, summary.reasons) == ("away://deep/out", near.reasons)
    names = set(files_of(tmp_path / "near"))
    assert set(files_of(root / "deep/out")) == names
    assert len(names) == 4
    rows, others = rows_of(root / "deep/out"), rows_of(tmp_path / "near")
    assert rows[0]["id"] == "away://in/a.csv:2"
    assert [{**row, "id": 0} for row in rows] == [{**row, "id": 0} for row in others]
    assert do("away://deep/out") == summary
    with pytest.raises(UserError, match="--shards was 2 and is 3"):
        do("away://deep/out", shards=3)
    # A file that another worker has meanwhile written is written over.
    (root / "deep/out/translations-00000-of-00002.jsonl").unlink()
    assert do("away://deep/out") == summary
    assert rows_of(root / "deep/out") == rows
    with pytest.raises(UserError, match=r"away://none/.: there is no such file"):
        bulk("away://none/*", "away://other", model="away://model")
    with pytest.raises(UserError, match="away://in: is not a SavedModel"):
        bulk("away://in/*", "away://other", model="away://in")
    bulking.storage.write("away://x", b"1")
    bulking.storage.write("away://y", b"2")
    bulking.storage.rename("away://x", "away://y")
    assert (root / "y").read_bytes() == b"1" and not (root / "x").exists()


@contextlib.contextmanager
def job_service(folder):
    """A service that Beam's jobs are sent to."""
    port = folder / "port"
    service = subprocess.Popen(
        [
            *(
                sys.executable,
                "-m",
                "apache_beam.runners.portability.local_job_service_main",
            ),
            *("--port", "0", "--port_file", port),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + 60
        while not port.exists():
            assert time.monotonic() < end, "it did not start"
            time.sleep(0.02)
        yield f"localhost:{port.read_text()}"
    finally:
        service.kill()
        service.wait()


@pytest.mark.slow
def test_neither_runner_nor_workers_show(exported, tmp_path, no_model_yet):
    write_file(tmp_path / "in.jsonl", "jsonl", odd_texts() * 3)
    outs = [tmp_path / str(number) for number in range(3)]
    do = functools.partial(bulk, tmp_path / "in.jsonl", model=exported, shards=5)
    do(outs[0])
    do(outs[1], beam_options=MULTI)
    with job_service(tmp_path) as address:
        options = [f"--job_endpoint={address}", "--environment_type=LOOPBACK"]
        do(outs[2], runner="PortableRunner", beam_options=options)
    first, *others = map(files_of, outs)
    assert len(first) > 4 and all(other == first for other in others)


@pytest.mark.slow
def test_the_command_killed_at_any_time_ends_the_same(exported, tmp_path):
    rng = random.Random(0)
    words = ["o", "gato", "preto", "bebe", "leite", "na", "casa", "azul", "e", "vê"]
    lines = [" ".join(rng.choices(words, k=rng.randint(1, 12))) for _ in range(1500)]
    lines[700] = "\udcff"
    content = "".join(f"{line}\n" for line in lines)
    (tmp_path / "in.txt").write_text(content, errors="surrogateescape")

    def command(out):
        code = "from tfxformer.cli import main; main()"
        options = ["--model", exported, "--input", tmp_path / "in.txt"]
        options += ["--shards", "12"]
        return subprocess.Popen(
            [sys.executable, "-c", code, "bulk", "--out", out, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    whole, other = tmp_path / "whole", tmp_path / "other"
    out, err = command(whole).communicate(timeout=110)
    assert out.endswith(
        "1,500 records, 1,499 translated, 1 dead letter (1 not UTF-8), 12 shards\n"
    ), err
    killed = 0
    # While it starts, and when it has done so many more shards.
    ends = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGKILL)
    for more, end_by in zip((0, 1, 2, 2), ends, strict=True):
        least = len([*other.glob("translations-*")]) + more
        process = command(other)
        end = time.monotonic() + 60
        while len([*other.glob("translations-*")]) < least:
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.3 if more else 3))
        process.send_signal(end_by)
        _, err = process.communicate()
        assert "Traceback" not in err
        assert process.returncode in (0, -end_by, 130)
        killed += process.returncode != 0
    assert killed >= 3  # a fast machine may be done with it
    again, err = command(other).communicate(timeout=110)
    assert " done before" in err and again == out.replace("/whole:", "/other:"), err
    assert files_of(other) == files_of(whole)
