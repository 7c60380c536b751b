"""Run folders side by side, whole or damaged, on a terminal and for machines."""

import csv
import io
import json
import math
import os
import pty
import subprocess
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from tfxformer import runs
from tfxformer.config import load_config
from tfxformer.errors import UserError

COMMAND = [sys.executable, "-m", "tfxformer.cli", "runs"]


def row(step, split="validation", **values):
    return {"step": step, "split": split, **values}


def make(path, *overrides, rows=()):
    """A run folder, as far as `runs` reads it."""
    path.mkdir(parents=True)
    load_config("tiny", overrides=["data.sources=[a.tsv]", *overrides]).save(
        path / "config.yaml"
    )
    (path / "tokenizer.model").write_bytes(b"x")
    if rows:
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        (path / "metrics.jsonl").write_text(lines, encoding="utf-8")
    return path


GOOD = [
    row(50, "train", perplexity=1.5, bleu=99, target_tokens_per_second=100.0),
    row(100, "train", target_tokens_per_second=3000.5, loss=None),
    row(100, perplexity=30.0, masked_accuracy=0.4, bleu=20.5),
    row(150, "train", target_tokens_per_second=2000),
    row(200, perplexity=20.5, masked_accuracy=0.5),
    row(300, perplexity=25.0, masked_accuracy=0.6, bleu=19),
]


@pytest.fixture
def three(tmp_path):
    """A good run, one with other settings, and one that has not measured yet."""
    make(tmp_path / "good", rows=GOOD)
    make(
        tmp_path / "deep" / "wide",
        "model.dff=2048",
        "training.seed=7",
        "data.valid=v.tsv",
        rows=[row(900, perplexity=9.0, masked_accuracy=0.7)],
    )
    make(tmp_path / "new")
    return tmp_path


def test_the_scores_of_a_run(tmp_path):
    run = runs.summarise(make(tmp_path / "run", rows=GOOD))
    assert (run.step, run.perplexity, run.accuracy, run.bleu) == (300, 20.5, 0.5, 20.5)
    assert run.tokens_per_second == 2000 and run.problem is None
    assert run.settings["model.norm"] == "pre" and run.settings["data.weights"] is None


def test_runs_are_found_however_deep_and_once(three):
    (three / "deep" / "notes").mkdir()
    (three / ".hidden").mkdir()
    make(three / ".hidden" / "run")
    make(three / "good" / "tokens" / "inside")  # what is in a run is the run's
    found = runs.find_runs([three, three / "good", three / "deep" / ".." / "good"])
    names = [str(run.path.relative_to(three)) for run in found]
    assert names == ["deep/wide", "good", "new"]
    assert [run.path for run in runs.find_runs([three / "good"])] == [three / "good"]


def test_orders(three):
    def names(sort):
        return [run.path.name for run in runs.find_runs([three], sort)]

    assert names("name") == ["wide", "good", "new"]
    assert names("perplexity") == ["wide", "good", "new"]
    assert names("bleu") == ["good", "wide", "new"]
    assert names("step") == ["wide", "good", "new"]
    with pytest.raises(UserError, match="--sort 'loss': there are name, perplexity"):
        names("loss")


def test_settings_are_shared_or_differ(three):
    shared, differ = runs.compare(runs.find_runs([three]))
    assert differ == ["model.dff", "data.valid", "training.seed"]
    assert shared["model.norm"] == "pre" and not {*shared} & {*differ}
    alone, differ = runs.compare(runs.find_runs([three / "good"]))
    assert len(alone) == len(shared) + 3 and not differ


def test_settings_that_an_older_run_does_not_have_are_the_defaults(tmp_path):
    make(tmp_path / "new")
    old = make(tmp_path / "old")
    settings = yaml.safe_load((old / "config.yaml").read_text())
    del settings["training"]["subword_alpha"]
    (old / "config.yaml").write_text(yaml.safe_dump(settings))
    assert runs.compare(runs.find_runs([tmp_path]))[1] == []


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("config.yaml", None, "config.yaml is missing"),
        ("config.yaml", b"", "config.yaml: empty"),
        ("config.yaml", b"model: [", "config.yaml, line 1: not YAML"),
        ("config.yaml", b"\xff\xfe", "config.yaml: not UTF-8 text"),
        ("config.yaml", b"model: {dff: -1}", "model.dff = -1: must be at least 1"),
        ("config.yaml", b"model: {later: 1}", "there is no setting model.later"),
        ("tokenizer.model", None, "tokenizer.model is missing"),
        ("metrics.jsonl", b"{}\n\xff\n[1]\n", "metrics.jsonl, line 1: no measurement"),
    ],
)
def test_a_damaged_run_is_listed_with_what_is_wrong(three, file, content, problem):
    if content is None:
        (three / "good" / file).unlink()
    else:
        (three / "good" / file).write_bytes(content)
    found = {run.path.name: run for run in runs.find_runs([three])}
    assert len(found) == 3 and problem in found["good"].problem
    assert (found["good"].perplexity == 20.5) == (file != "metrics.jsonl")
    assert found["wide"].problem is None
    # The settings of the others are compared all the same.
    assert "model.dff" in runs.compare([*found.values()])[1]
    for text in ("\n".join(runs.as_lines([*found.values()])), table(three, 999)):
        assert problem.split(":")[0] in text


def test_no_limit_can_be_said_in_json(tmp_path):
    make(tmp_path / "run", "data.max_length_ratio=.inf")
    answer = runs.as_json(runs.find_runs([tmp_path]))
    (run,) = json.loads(answer, parse_constant=pytest.fail)["runs"]
    assert run["settings"]["data.max_length_ratio"] == ".inf"


def test_folders_in_the_place_of_files(three):
    for name in ("config.yaml", "metrics.jsonl"):
        (three / "good" / name).unlink()
        (three / "good" / name).mkdir()
    run = runs.summarise(three / "good")
    assert run.problem == "config.yaml: Is a directory; metrics.jsonl: Is a directory"


def test_a_half_line_at_the_end_is_no_damage(tmp_path):
    run = make(tmp_path / "run", rows=GOOD)
    whole = (run / "metrics.jsonl").read_bytes()
    for end in range(len(whole)):
        (run / "metrics.jsonl").write_bytes(whole[:end])
        summary = runs.summarise(run)
        assert summary.problem is None
    assert summary.step == 300  # the line is whole, but for its end
    (run / "metrics.jsonl").write_bytes(whole.replace(b"}\n", b"\n", 1))
    assert runs.summarise(run).problem == "metrics.jsonl, line 1: no measurement"
    assert runs.summarise(run).perplexity == 20.5  # the other lines count


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
named = st.dictionaries(
    st.sampled_from(
        [
            "step",
            "split",
            "perplexity",
            "masked_accuracy",
            "bleu",
            "target_tokens_per_second",
        ]
    ),
    st.sampled_from(["train", "validation", 10**400, True]) | anything,
)


@given(st.lists(st.binary() | (named | anything).map(lambda x: json.dumps(x).encode())))
def test_any_metrics_are_read(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("run")
    (path / "metrics.jsonl").write_bytes(b"\n".join(lines))
    run = runs.summarise(path)
    assert run.step is None or type(run.step) is int
    for name in ("perplexity", "bleu", "accuracy", "tokens_per_second"):
        value = getattr(run, name)
        assert value is None or math.isfinite(value)
    assert len([*runs.as_lines([run])]) == 2
    json.loads(runs.as_json([run]), parse_constant=pytest.fail)


# --- What is printed ---


def table(folder, width):
    file = io.StringIO()
    runs.show(runs.find_runs([folder]), Console(file=file, width=width))
    return file.getvalue()


@pytest.mark.parametrize("width", [40, 80, 120, 300])
def test_tables_fit(three, width):
    text = table(three, width)
    assert all(cell_len(line) <= width for line in text.splitlines())
    words = text.split()
    for word in ("300", "20.50", "0.500", "2,000", "900", "9.00", "2048", "v.tsv", "7"):
        assert word in words, word
    assert ("perplexity" in words and "tokens/s" in words) or width == 40
    assert text.count("num_layers") == 1 and "The same in all:" in text
    assert text.count("dff") == 1


def test_names_are_no_markup_and_change_no_terminal(tmp_path):
    make(tmp_path / "[red]a[/red]\x1b[2J\tb", rows=GOOD)
    text = table(tmp_path, 999)
    assert r"[red]a[/red]\x1b[2J\tb" in text and "\x1b" not in text
    # Without a BLEU anywhere there is no column for it; alone, nothing differs.
    assert "Settings:" in text and "BLEU" in text
    make(tmp_path / "new" / "b")
    assert "BLEU" not in table(tmp_path / "new", 80)


def call(*args, cwd):
    done = subprocess.run(
        [*COMMAND, *map(str, args)], cwd=cwd, capture_output=True, timeout=60
    )
    return done.stdout.decode(), done.stderr.decode(), done.returncode


def test_the_command_in_a_pipe(three):
    (three / "runs").mkdir()
    for name in ("good", "deep", "new"):
        (three / name).rename(three / "runs" / name)
    (three / "runs" / "new" / "tokenizer.model").unlink()
    (three / "runs" / "new" / "metrics.jsonl").write_bytes(b"")
    out, err, code = call("--sort", "bleu", cwd=three)
    assert code == 0
    rows = [*csv.DictReader(io.StringIO(out), delimiter="\t")]
    assert [row["run"] for row in rows] == ["runs/good", "runs/deep/wide", "runs/new"]
    assert [row["bleu"] for row in rows] == ["20.5", "", ""]
    assert [row["model.dff"] for row in rows] == ["512", "2048", "512"]
    assert rows[2]["problem"] == "tokenizer.model is missing" and not rows[0]["problem"]
    assert "model: num_layers 2" in err  # what is shared is no row

    out, err, code = call("--json", cwd=three)
    assert code == 0 and err == ""
    answer = json.loads(out)
    assert answer["differ"] == ["model.dff", "data.valid", "training.seed"]
    wide, good, _ = answer["runs"]
    assert (wide["path"], wide["step"], wide["bleu"]) == ("runs/deep/wide", 900, None)
    assert good["settings"]["data.sources"] == ["a.tsv"]


def test_the_command_says_what_is_not_there(three):
    for args, message in (
        ([], "runs: there is no such folder"),
        (["deep", "nowhere"], "nowhere: there is no such folder"),
        (["empty"], "empty: no run folder is in it: train one first"),
        (["deep", "--sort", "x"], "--sort 'x': there are name, perplexity, bleu, step"),
    ):
        (three / "empty").mkdir(exist_ok=True)
        out, err, code = call(*args, cwd=three)
        assert (out, code) == ("", 1)
        assert err == f"tfxformer: error: {message}\n"


def test_the_command_on_a_terminal(three):
    leader, follower = pty.openpty()
    done = subprocess.run(
        [*COMMAND, "good", "deep"],
        cwd=three,
        stdout=follower,
        timeout=60,
        env={**os.environ, "COLUMNS": "80", "TERM": "xterm"},
    )
    os.close(follower)
    text = os.read(leader, 100_000).decode()
    os.close(leader)
    assert done.returncode == 0
    assert "perplexity" in text and "The same in all" in text and "\t" not in text


def test_it_takes_no_time():
    code = "import sys, tfxformer.runs; print({'keras', 'tensorflow'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n"
