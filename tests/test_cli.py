"""The command line: answers, help, streams and wrong input."""

import gzip
import io
import re
import subprocess
import sys

import pytest
import typer

from tfxformer import cli
from tfxformer.exporting.verify import verify
from tfxformer.repository import shipped_model
from tfxformer.training.run import Run

pytestmark = pytest.mark.usefixtures("loaded_once")
GROUP = typer.main.get_command(cli.app)
PAIRS = "O gato bebe leite.\tThe cat drinks milk.\n\tHello!\nOlá!\t\r\n"
LATIN = "Bom dia.\tGood morning.\nEla não gosta.\tShe dislikes it.\n".encode("latin-1")


# --- Answers -------------------------------------------------------------------------


def test_lines_are_translated_in_order(run_folder, tmp_path, translator, command):
    texts = ["Olá!", "", "O gato bebe leite.", " ", "Bom dia.", "a\u2028b", "fim"]
    file = tmp_path / "in.txt"
    file.write_bytes("\n".join(texts).encode() + b"\r\n")
    expected = "".join(f"{line}\n" for line in translator(texts))
    named = f"model: {run_folder} (loading)\n"
    assert command("translate", "--run", run_folder, "-i", file) == (expected, named, 0)
    out, _, _ = command("translate", "--run", run_folder, "--scores", *texts[:2])
    (score, first), second = (line.split("\t") for line in out.splitlines())
    assert first == translator("Olá!") and float(score) < 0
    assert second == ["0.0000", ""]
    _, err, _ = command("translate", "--run", run_folder, file)
    assert f"to translate the file: -i {file}\n" in err


def test_translate_splits_a_text_into_lines_and_a_line_into_sentences(
    run_folder, translator, command
):
    one, two = (translator(text) for text in ("Olá!", "Bom dia."))
    args = ["translate", "--run", run_folder, "Olá! Bom dia.", "Olá!\n\n Bom dia."]
    assert command(*args)[0] == f"{one} {two}\n{one}\n\n {two}\n"
    # The only tab is the one after the score, and each answer is a line.
    out, _, _ = command(*args[:3], "--scores", "\tBom dia.\t Olá!\n")
    assert out.partition("\t")[2] == f" {two}  {one} \n"


def test_the_score_command_scores_each_pair_of_a_file(
    run_folder, translator, command, tmp_path
):
    file = tmp_path / "pairs.tsv"
    file.write_bytes(PAIRS.encode())
    texts = ["O gato bebe leite.", "", "Olá!"]
    scores = translator.score(texts, ["The cat drinks milk.", "Hello!", ""])
    out, _, code = command("score", "--run", run_folder, "--input", file)
    rows = [line.split("\t", 1) for line in out.splitlines()]
    assert code == 0 and [pair for _, pair in rows] == PAIRS.splitlines()
    assert [float(score) for score, _ in rows] == pytest.approx(scores, abs=1e-3)


@pytest.mark.slow
def test_decoding_options_reach_the_search(run_folder, command):
    def translate(*args):
        return command("translate", "--run", run_folder, *args)[0]

    text = "O gato bebe leite."
    rows = translate("--beam", 3, "--n-best", 2, text, "Bom dia!").splitlines()
    rows = [row.split("\t") for row in rows]
    assert [number for number, _, _ in rows] == ["1", "1", "2", "2"]
    assert float(rows[0][1]) >= float(rows[1][1])
    assert translate("--prefix", "My", text).startswith("My")
    sampled = [translate("--sample", "--seed", seed, text) for seed in (1, 1, 2)]
    assert sampled[0] == sampled[1] != sampled[2]


@pytest.mark.parametrize("place", ["file", "<stdin>"])
@pytest.mark.parametrize("name", ["translate", "score"])
def test_translate_and_score_answer_the_lines_before_one_that_is_not_utf_8(
    name, place, run_folder, tmp_path, command, monkeypatch
):
    args = [name, "--run", run_folder]
    if place == "file":
        place = tmp_path / "latin.txt"
        place.write_bytes(LATIN)
        args += ["--input", place]
    for encoding, code, lines in ([], 1, 1), (["--encoding", "latin-1"], 0, 2):
        stdin = io.TextIOWrapper(io.BytesIO(LATIN))
        stdin.buffer.name = "<stdin>"  # like the real one
        monkeypatch.setattr(sys, "stdin", stdin)
        out, err, ended = command(*args, *encoding)
        assert ended == code and len(out.splitlines()) == lines, err
        if code:
            assert err.splitlines()[1:] == [  # after the model's name
                f"tfxformer: error: {place}:2: not UTF-8; give the right encoding, "
                "such as --encoding latin-1"
            ]


def test_the_columns_option_selects_source_and_target_of_a_tatoeba_file(
    run_folder, tmp_path, command, translator
):
    """The columns are English, Portuguese and attribution."""
    file = tmp_path / "por.txt"
    file.write_text("Good morning.\tBom dia.\tCC-BY 2.0\nHi.\tOlá.\tCC-BY 2.0\n")
    wrong = ["evaluate", "--run", run_folder, "--data", file]
    _, err, code = command(*wrong)
    assert code == 1 and "2 read, 0 kept, 2 dropped" in err.splitlines()[-1]
    assert "--columns 2,1" in err.splitlines()[-1]
    out, err, code = command(*wrong, "--columns", "2,1", "--output", tmp_path / "o.txt")
    assert code == 0 and "2 sentences" in out and "2 kept" in err
    expected = translator(["Bom dia.", "Olá."])
    assert (tmp_path / "o.txt").read_text("utf-8").splitlines() == expected
    out, _, code = command("score", "--run", run_folder, "-i", file, "--columns", "2,1")
    rows = [line.split("\t")[1:] for line in out.splitlines()]
    assert code == 0 and rows == [["Bom dia.", "Good morning."], ["Olá.", "Hi."]]


def test_options_of_the_train_command_reach_the_training_config(
    tmp_path, command, monkeypatch
):
    from tfxformer.training import trainer

    taken = []
    monkeypatch.setattr(
        trainer, "train", lambda config, out: taken.append(config) or Run(out)
    )
    args = ["--data", "a.tsv", "--data", "b,c", "--weights", "1,2.5", "--valid", "v"]
    args += ["--columns", "2,1", "--encoding", "latin-1", "--steps", 7, "--seed", 3]
    args += ["--preset", "tiny", "--set", "training.steps=8"]
    out, err, code = command("train", "--out", tmp_path / "run", *args)
    assert (out, code) == (f"{tmp_path / 'run'}\n", 0), err
    data, training = taken[0].data, taken[0].training
    assert data.sources == ["a.tsv", "b,c"] and data.weights == [1, 2.5]
    assert (data.valid, data.columns, data.encoding) == ("v", [2, 1], "latin-1")
    assert (training.steps, training.seed) == (8, 3)  # --set overrides all others
    assert err.splitlines()[-2:] == [
        f"next: tfxformer evaluate --run {tmp_path / 'run'} --data TEST.tsv",
        f"      tfxformer export --run {tmp_path / 'run'}",
    ]


@pytest.mark.slow
def test_commands_train_resume_evaluate_export_and_verify_a_model(tmp_path, command):
    """Train, resume, evaluate, export and verify with their commands."""
    pairs, run = tmp_path / "pairs.tsv.gz", tmp_path / "run"
    lines = [f"O gato tem {n} anos.\tThe cat is {n} years old.\n" for n in range(64)]
    pairs.write_bytes(gzip.compress("".join([*lines, "one column\n"]).encode()))
    train = ["train", "--data", pairs, "--preset", "tiny", "--out", run]
    for setting in ("d_model=16", "num_heads=2", "dff=32", "num_layers=1"):
        train += ["--set", f"model.{setting}"]
    train += ["--set", "tokenizer.vocab_size=310"]
    out, err, code = command(*train, "--steps", 4)
    assert (out, code) == (f"{run}\n", 0), err
    assert "pairs.tsv.gz:65" in err and "64 kept" in err
    _, err, code = command(*train, "--steps", 8)
    assert code == 0 and "step 4" in err
    out, err, code = command("evaluate", "--run", run, "--data", pairs)
    assert code == 0 and "BLEU" in out and "chrF" in out, err
    to = tmp_path / "export"
    out, err, code = command("export", "--run", run, "--to", to, "--name", "toy")
    assert (out, code) == (f"{to / 'toy' / '1'}\n", 0), err
    out, err, code = command("verify", to / "toy")
    assert code == 0 and "SERVES" in out.splitlines()[-1] and err == ""


@pytest.mark.slow
def test_quickstart_trains_and_exports_a_model_that_serves(
    tmp_path, command, monkeypatch
):
    """The command of the README."""
    monkeypatch.chdir(tmp_path)
    out, err, code = command("quickstart", "--out", "out")
    assert code == 0 and "E0000" not in err, err
    *shown, equal, bleu, chrf, path = out.splitlines()
    assert int(re.match(r"(\d+) of 40 translations equal", equal)[1]) >= 38
    assert float(re.match(r"BLEU ([\d.]+)", bleu)[1]) >= 85
    assert float(re.match(r"chrF ([\d.]+)", chrf)[1]) >= 85
    assert len(shown) == 6 and all("  →  " in line for line in shown)
    assert path == "SavedModel: out/export/pt_en/1"
    assert verify(tmp_path / "out" / "export" / "pt_en" / "1").ok


# --- The default model ---------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [
        ["translate", "Bom dia!"],
        ["score", "-i", "pairs.tsv"],
        ["evaluate", "--data", "pairs.tsv"],
        ["plot", "attention", "O gato bebe leite.", "--out", "picture.svg"],
    ],
    ids=lambda args: " ".join(args[:2]),
)
def test_commands_use_the_shipped_model_by_default(
    args, command, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_text("Bom dia!\tGood morning!\n", "utf-8")
    out, err, code = command(*args)
    assert code == 0 and out, err
    named = [line for line in err.splitlines() if line.startswith("model: ")]
    assert [line.removesuffix(" (loading)") for line in named] == [
        f"model: {shipped_model()}"
    ]


# --- Help and quiet ------------------------------------------------------------------


def test_help_lists_all_commands_without_importing_tensorflow():
    code = "import sys, tfxformer.cli as cli; sys.argv[1:] = ['--help']\n"
    code += "try: cli.main()\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert not {"tensorflow", "keras"} & {*done.stdout.split()}
    for name, found in GROUP.commands.items():
        summary = found.help.partition("\n\n")[0]  # in full, on a line
        assert re.search(
            rf"^  {name} +{re.escape(summary)}$", done.stdout, re.MULTILINE
        )
    groups = re.findall(r"^(\w+):$", done.stdout, re.MULTILINE)
    assert groups == ["Options", "Start", "Train", "Translate", "Serve", "Look"]


def test_help_shows_the_types_of_options_as_words(command):
    assert "--input <text>" in command("bulk", "--help")[0]
    out, _, _ = command("export", "--help")
    words = (
        "--run, --model <path>",
        "--average <number>",
        "--precision <float32|float16>",
    )
    assert all(word in out for word in words)
    assert "--columns <number,number>" in command("score", "--help")[0]


@pytest.mark.parametrize("args", [["-q", "score"], ["score", "--quiet"], ["score"]])
def test_the_quiet_option_works_before_or_after_the_command(command, tmp_path, args):
    (tmp_path / "in.tsv").touch()
    _, err, code = command(*args, "--run", tmp_path / "no", "-i", tmp_path / "in.tsv")
    assert code == 1 and err.endswith("there is no such run folder\n")
    assert err.startswith("model: ") == (args == ["score"])


# --- Streams and signals -------------------------------------------------------------

# A program with two more commands, which need no model. Background jobs ignore SIGINT.
PROGRAM = """
import os, signal
from tfxformer import cli
@cli.app.command()
def speak(lines: int):
    print("a line\\n" * lines)
@cli.app.command()
def stop():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.kill(os.getpid(), signal.SIGINT)
cli.main()
"""
FULL = "tfxformer: error: [Errno 28] No space left on device\n"
CLOSED = "tfxformer: error: standard input or output is closed: use /dev/null\n"


@pytest.mark.parametrize(
    ("line", "out", "err", "code"),
    [
        ("speak 1 > /dev/full", "", FULL, 1),
        ("speak 100000 > /dev/full", "", FULL, 1),
        ("speak 100000 | head -1", "a line\n", "", 0),
        ("speak 1 >&-", "", CLOSED, 1),
        ("speak 1 <&-", "", CLOSED, 1),
        ("stop", "", "tfxformer: interrupted\n", 130),
    ],
)
def test_a_full_or_closed_stream_or_ctrl_c_prints_at_most_one_line(
    line, out, err, code
):
    command = f'set -o pipefail; "$0" -c "$1" {line}'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable, PROGRAM], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr, done.returncode) == (out, err, code)


# --- Wrong input ---------------------------------------------------------------------

TRAIN = ["train", "--data", "phrasebook", "--out", "OUT"]
TRANSLATE = ["translate", "--run", "RUN"]
EVALUATE = ["evaluate", "--run", "RUN", "--data", "PAIRS"]
EXPORT = ["export", "--run", "RUN", "--to", "OUT"]
WRONG = [
    (["train", "--data", "frasebook", "--out", "OUT"], "'frasebook' not found"),
    (["train", "--out", "OUT"], "data.sources is empty"),
    ([*TRAIN, "--preset", "tutorail"], "did you mean 'tutorial'"),
    ([*TRAIN, "--steps", "0"], "--steps 0: must be greater than or equal to 1"),
    ([*TRAIN, "--valid", "no.tsv"], "no.tsv"),
    ([*TRAIN, "--config", "no.yaml"], "no.yaml: No such file"),
    ([*TRAIN, "--from", "nowhere"], "nowhere: there is no such run folder"),
    (["translate", "--run", "OUT", "a"], "no such run folder"),
    ([*TRANSLATE, "--input", "no.txt"], "No such file or directory: 'no.txt'"),
    ([*TRANSLATE, "--tokens-per-batch", "0", "a"], "--tokens-per-batch"),
    ([*TRANSLATE, "--input", "PAIRS", "a"], "not both"),
    ([*TRANSLATE, "--beam", "0", "a"], "--beam 0: must be greater than or equal to 1"),
    ([*TRANSLATE, "--checkpoint", "first", "a"], "choose best or last"),
    (
        [*TRANSLATE, "-i", "PAIRS", "--encoding", "utf-16"],
        "--encoding 'utf-16': such files cannot be read line by line; save them as",
    ),
    (
        [*TRANSLATE, "um", "n\udce3o"],
        "text 2: not UTF-8; give the right encoding, such as --encoding latin-1",
    ),
    (["score", "--run", "RUN", "--input", "no.tsv"], "directory: 'no.tsv'"),
    (["score", "--run", "RUN", "--input", "RUN"], "Is a directory"),
    (["score", "--columns", "1,1"], "--columns '1,1': must be two different columns"),
    (
        ["score", "--run", "RUN", "--input", "PAIRS"],
        "PAIRS:2: expected a source, a tab",
    ),
    (["evaluate", "--run", "RUN"], "--data"),
    (["evaluate", "--run", "RUN", "--data", "no.tsv"], "no.tsv"),
    ([*EVALUATE, "--temperature", "0.5"], "--temperature 0.5: needs --sample"),
    ([*EVALUATE, "--columns", "2"], "--columns ['2']: must have at least 2 items"),
    (
        [*EXPORT, "--beam", "2", "--n-best", "3"],
        "--n-best 3: must be at most --beam, 2",
    ),
    (
        [*EXPORT, "--format", "ctranslate2", "--beam", "4", "--precision", "float16"],
        "--beam, --precision: not for --format ctranslate2",
    ),
    ([*EXPORT, "--name", "a/b"], "model name 'a/b'"),
    ([*TRANSLATE, "a " * 200, "--prefix", "My"], "text 1: has "),
    ([*TRANSLATE, "--encoding", "utf-7", "\udcff+2D0-"], "text 1: not UTF-7"),
    (["train", "--set", "training.steps=yes", *TRAIN[1:]], "must not be yes or no"),
    (["translate", ":100:", "--run", ":1:"], ":1:: there is no such run folder"),
    (["serve", "nope"], "nope: no such folder"),
    (["serve", "--config", "nope"], "nope: No such file or directory"),
    (["serve", "x", "--config", "y"], "give a repository or --config, not both"),
    (["tranlate"], "tranlate"),
]


@pytest.mark.parametrize(("args", "message"), WRONG, ids=str)
def test_commands_refuse_wrong_input_with_a_one_line_error(
    args, message, run_folder, tmp_path, command
):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("um gato\ta cat\nno tab\n", encoding="utf-8")
    places = {"OUT": tmp_path / "out", "RUN": run_folder, "PAIRS": pairs}
    out, err, code = command(*(places.get(arg, arg) for arg in args))
    assert code not in (0, None) and "Traceback" not in err
    assert message.replace("PAIRS", str(pairs)) in err.strip().splitlines()[-1]
    # Lines before the wrong one are answered.
    assert len(out.splitlines()) == ("PAIRS:2" in message)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_commands_refuse_another_keras_backend(command, monkeypatch, tmp_path, backend):
    monkeypatch.setenv("KERAS_BACKEND", backend)
    _, err, code = command("translate", "um gato")
    assert code == 1
    assert f"set KERAS_BACKEND=tensorflow, not {backend}" in err.splitlines()[-1]
