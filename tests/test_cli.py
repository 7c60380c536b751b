"""The command line, as a person meets it: real processes, right and wrong input."""

import gzip
import io
import subprocess
import sys

import pytest

from tfxformer import cli
from tfxformer.run import Run

COMMAND = [sys.executable, "-m", "tfxformer.cli"]


def call(*args, stdin=b""):
    """A process of its own: what it answers, what it says, how it ends."""
    done = subprocess.run(
        [*COMMAND, *map(str, args)], input=stdin, capture_output=True, timeout=300
    )
    return done.stdout.decode(), done.stderr.decode(), done.returncode


def named(model):
    """All that a command says where it has nothing to say but the model's name."""
    return f"model: {model} (loading)\n"


@pytest.fixture
def wrong(monkeypatch, capfd):
    """Runs a command that must fail, here; gives its one line."""

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["tfxformer", *map(str, args)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out, err = capfd.readouterr()
        assert end.value.code not in (0, None)
        assert out == ""
        assert "Traceback" not in err
        return err.strip().splitlines()[-1]

    return run


@pytest.mark.slow
def test_lines_are_translated_in_order_through_a_pipe(run_folder, translator):
    lines = ["Olá!", "", "O gato bebe leite.", " ", "Bom dia.", "a\u2028b", "fim"]
    data = "\n".join(lines).encode() + b"\r\n"
    out, err, code = call("translate", "--run", run_folder, stdin=data)
    assert code == 0 and err == named(run_folder)
    assert out == "".join(f"{line}\n" for line in translator(lines))


@pytest.mark.slow
def test_texts_files_and_scores(run_folder, exported, tmp_path, translator):
    out, err, code = call("translate", "--run", exported, "--scores", "Olá!", "")
    assert code == 0 and err == named(exported)
    (score, first), second = (line.split("\t") for line in out.splitlines())
    assert first == translator("Olá!") and float(score) < 0
    assert second == ["0.0000", ""]
    file = tmp_path / "in.txt"
    file.write_text("Olá!", encoding="utf-8")
    out, _, _ = call("translate", "--run", run_folder, "--input", file)
    assert out == translator("Olá!") + "\n"


@pytest.mark.slow
def test_a_line_may_hold_sentences_and_a_text_lines(run_folder, tmp_path, translator):
    sentences = ["Olá!", "Bom dia.", "O gato bebe leite."]
    file = tmp_path / "in.txt"
    lines = [" ".join(sentences), "", "\tBom dia.\t Olá!", sentences[2]]
    file.write_text("\n".join(lines), encoding="utf-8")
    out, err, code = call("translate", "--run", run_folder, "--input", file, "--scores")
    assert code == 0 and err == named(run_folder)
    first, second, third, fourth = (line.split("\t") for line in out.splitlines())
    one = [translator(sentence) for sentence in sentences]
    assert first[1] == " ".join(one) and fourth[1] == one[2]
    assert second == ["0.0000", ""]
    assert third[1:] == [f" {one[1]}  {one[0]}"]  # the score's tab is the only one
    out, err, code = call("translate", "--run", run_folder, "Olá!\n\n Bom dia.", "Olá!")
    assert code == 0 and err == named(run_folder)
    assert out == f"{one[0]}\n\n {one[1]}\n{one[0]}\n"


@pytest.mark.slow
def test_a_sentence_without_end_is_translated_in_parts(run_folder):
    text = "o gato bebe leite e " * 250  # 5,000 characters
    out, err, code = call("translate", "--run", run_folder, text)
    assert code == 0 and len(out.splitlines()) == 1
    assert "text 1: a sentence of 4999 characters" in err and "parts" in err
    _, err, _ = call("--quiet", "translate", "--run", run_folder, text)
    assert err == ""


PAIRS = "O gato bebe leite.\tThe cat drinks milk.\n\tHello!\nOlá!\t\r\n"


@pytest.mark.slow
def test_given_translations_are_scored(run_folder, exported, tmp_path, translator):
    file = tmp_path / "pairs.tsv"
    file.write_bytes(PAIRS.encode())
    texts = ["O gato bebe leite.", "", "Olá!"]
    scores = translator.score(texts, ["The cat drinks milk.", "Hello!", ""])
    for model, args, stdin in (
        (run_folder, ["--input", file], b""),
        (exported, [], PAIRS.encode()),
    ):
        out, err, code = call("score", "--run", model, *args, stdin=stdin)
        assert code == 0 and err == named(model)
        rows = [line.split("\t", 1) for line in out.splitlines()]
        assert [float(score) for score, _ in rows] == pytest.approx(scores, abs=1e-3)
        assert [pair for _, pair in rows] == PAIRS.splitlines()


@pytest.mark.slow
def test_lists_of_the_best_can_be_scored(run_folder, translator):
    texts = ["O gato bebe leite.", "Bom dia!"]
    out, err, code = call(
        "translate", "--run", run_folder, "--beam", 3, "--n-best", 2, *texts
    )
    assert code == 0 and err == named(run_folder)
    rows = [line.split("\t") for line in out.splitlines()]
    assert [number for number, *_ in rows] == ["1", "1", "2", "2"]
    assert float(rows[0][1]) >= float(rows[1][1])
    given = "".join(
        f"{texts[int(n) - 1]}\t{translation}\n" for n, _, translation in rows
    )
    out, _, _ = call("score", "--run", run_folder, stdin=given.encode())
    again = [line.split("\t") for line in out.splitlines()]
    assert [row[1] for row in again] == [texts[0]] * 2 + [texts[1]] * 2
    assert [row[2] for row in again] == [row[2] for row in rows]
    # Its own words have the score that the search gave them, but for those that are
    # cut into other pieces than it wrote.
    searched = {translation: float(score) for _, score, translation in rows}
    same = [abs(float(score) - searched[found]) < 2e-3 for score, _, found in again]
    assert sum(same) >= 2


@pytest.mark.slow
def test_decoding_options_reach_the_search(run_folder, translator):
    text = "O gato bebe leite."
    begun, err, _ = call("translate", "--run", run_folder, "--prefix", "My", text)
    assert begun.startswith("My") and err == named(run_folder)
    sampled = [
        call("translate", "--run", run_folder, "--sample", "--seed", seed, text)[0]
        for seed in (1, 1, 2)
    ]
    assert sampled[0] == sampled[1] != sampled[2]


LATIN = "Bom dia.\tGood morning.\nEla não gosta.\tShe dislikes it.\n".encode("latin-1")


@pytest.mark.parametrize("place", ["file", "standard input"])
@pytest.mark.parametrize("name", ["translate", "score"])
def test_broken_text_stops_after_what_came_before_it(
    name, place, run_folder, tmp_path, command, monkeypatch
):
    file = tmp_path / "latin.txt"
    file.write_bytes(LATIN)
    args = [name, "--run", run_folder]
    if place == "file":
        args, place = [*args, "--input", file], file
    for encoding, code, lines in ([], 1, 1), (["--encoding", "latin-1"], 0, 2):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LATIN)))
        out, err, ended = command(*args, *encoding)
        assert ended == code and len(out.splitlines()) == lines, err
        if code:
            assert err.splitlines()[1:] == [  # after the model's name
                f"tfxformer: error: {place}:2: not UTF-8; name its encoding, such as "
                "--encoding latin-1"
            ]
    if name == "score":
        assert out.splitlines()[1].endswith("\tEla não gosta.\tShe dislikes it.")


def test_a_text_in_another_encoding_is_read_in_it(run_folder, command, translator):
    args = ["translate", "--run", run_folder, "--encoding", "latin-1"]
    out, _, code = command(*args, "Ela n\udce3o gosta.", "não")
    assert code == 0
    assert out.splitlines() == translator(["Ela não gosta.", "não"])


def test_columns_of_tatoeba(run_folder, tmp_path, command, translator):
    """English, Portuguese, attribution: as the most common file has them."""
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
    assert code == 0
    rows = [line.split("\t")[1:] for line in out.splitlines()]
    assert rows == [["Bom dia.", "Good morning."], ["Olá.", "Hi."]]
    _, err, code = command("score", "--run", run_folder, "-i", file)
    assert code == 1 and "--columns 2,1" in err
    picture = ["plot", "lengths", "--data", file, "--out", tmp_path / "x.svg"]
    assert command(*picture)[2] == 1
    assert command(*picture, "--columns", "2,1")[2] == 0


def test_columns_and_encoding_reach_training_and_validation(
    tmp_path, command, monkeypatch
):
    from tfxformer.training import trainer
    from tfxformer.training.data import read_pairs

    taken = []

    def train(config, out):
        sources, held_out = read_pairs(config)
        taken.append(([[*pairs] for pairs in sources], held_out))
        return Run(out)

    monkeypatch.setattr(trainer, "train", train)
    file, valid = tmp_path / "por.txt", tmp_path / "valid.tsv"
    file.write_bytes("She does not.\tEla não.\tCC\n".encode("latin-1"))
    valid.write_bytes("No.\tNão.\n".encode("latin-1"))
    args = ["--data", file, "--valid", valid, "--out", tmp_path / "run"]
    _, err, code = command("train", *args, "--columns", "2,1", "--encoding", "latin-1")
    assert code == 0, err
    assert taken == [([[("Ela não.", "She does not.")]], [("Não.", "No.")])]


@pytest.mark.parametrize("bad", ["no tab", "", "one\ttwo\tthree"])
def test_a_line_that_is_no_pair_is_named_and_what_was_scored_kept(
    bad, run_folder, tmp_path, monkeypatch, capfd
):
    file = tmp_path / "pairs.tsv"
    file.write_bytes(f"{PAIRS}{bad}\nOlá!\tHi!\n".encode())
    args = ["score", "--run", str(run_folder), "--input", str(file)]
    monkeypatch.setattr(sys, "argv", ["tfxformer", *args])
    with pytest.raises(SystemExit) as end:
        cli.main()
    out, err = capfd.readouterr()
    assert end.value.code == 1 and len(out.splitlines()) == 3
    tabs = bad.count("\t")
    assert f"{file}:4: expected a source, a tab and a translation" in err
    assert f"found {tabs} tabs" in err and len(err.splitlines()) == 2


@pytest.mark.slow
def test_from_two_columns_to_a_served_model(tmp_path):
    """Train, go on, evaluate, export, verify, translate: each by its command."""
    pairs = tmp_path / "pairs.tsv.gz"
    words = {"gato": "cat", "cão": "dog", "rato": "mouse", "pato": "duck"}
    rows = [
        f"O {a} viu o {b} e o {c}.\tThe {words[a]} saw the {words[b]} and the "
        f"{words[c]}.\n"
        for a in words
        for b in words
        for c in words
    ]
    with gzip.open(pairs, "wt", encoding="utf-8") as file:
        file.write("".join(rows) + "one column\n")
    run = tmp_path / "run"
    train = ["train", "--data", pairs, "--preset", "tiny", "--out", run]
    for setting in ("model.d_model=16", "model.num_heads=2", "model.dff=32"):
        train += ["--set", setting]
    train += ["--set", "tokenizer.vocab_size=310", "--set", "model.num_layers=1"]
    out, err, code = call(*train, "--steps", 4)
    assert code == 0, err
    assert out == f"{run}\n"
    assert "pairs.tsv.gz:65" in err and "64 kept" in err
    out, err, code = call(*train, "--steps", 8)
    assert code == 0 and "going on from step 4" in err

    out, err, code = call("evaluate", "--run", run, "--data", pairs)
    assert code == 0, err
    assert "BLEU" in out and "chrF" in out and "nrefs:1|case:mixed" in out

    repository = tmp_path / "export"
    out, err, code = call("export", "--run", run, "--to", repository, "--name", "toy")
    assert code == 0, err
    assert out == f"{repository / 'toy' / '1'}\n"
    assert "SERVES" in err
    out, err, code = call("verify", repository / "toy", "--run", run)
    assert code == 0, out + err
    assert "SERVES" in out.splitlines()[-1] and err == ""


@pytest.mark.slow
def test_verify_ends_with_1_where_the_server_would_fail(tmp_path):
    import tensorflow as tf

    module = tf.Module()
    module.__call__ = tf.function(
        lambda x: tf.numpy_function(lambda x: x, [x], tf.float32),
        input_signature=[tf.TensorSpec([None])],
    )
    tf.saved_model.save(module, str(tmp_path / "model"), module.__call__)
    out, _, code = call("verify", tmp_path / "model")
    assert code == 1
    assert "NOT PROVEN TO SERVE" in out and "Python" in out


def test_help_comes_without_tensorflow():
    code = (
        "import sys, tfxformer.cli as cli; sys.argv = ['tfxformer', '--help']\n"
        "try: cli.main()\nexcept SystemExit: pass\n"
        "assert 'tensorflow' not in sys.modules and 'keras' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    commands = ["quickstart", "train", "translate", "score", "evaluate", "export"]
    assert all(command in done.stdout for command in [*commands, "verify"])


WRONG = {
    "unknown source": (
        ["train", "--data", "frasebook", "--out", "OUT"],
        "did you mean 'phrasebook'",
    ),
    "no source": (["train", "--out", "OUT"], "data.sources is empty"),
    "unknown preset": (
        ["train", "--data", "phrasebook", "--preset", "tutorail", "--out", "OUT"],
        "did you mean 'tutorial'",
    ),
    "unknown setting": (
        ["train", "--data", "phrasebook", "--set", "model.dmodel=3", "--out", "OUT"],
        "did you mean 'd_model'",
    ),
    "impossible setting": (
        ["train", "--data", "phrasebook", "--set", "model.d_model=30", "--out", "OUT"],
        "model.num_heads = 8: must divide model.d_model, 30",
    ),
    "no number of steps": (
        ["train", "--data", "phrasebook", "--steps", "0", "--out", "OUT"],
        "training.steps = 0: must be at least 1",
    ),
    "weights that are no numbers": (
        ["train", "--data", "phrasebook", "--weights", "much", "--out", "OUT"],
        "--weights 'much'",
    ),
    "weights for other sources": (
        ["train", "--data", "phrasebook", "--weights", "1,2", "--out", "OUT"],
        "one for each of the 1 sources",
    ),
    "missing config": (
        ["train", "--data", "phrasebook", "--config", "no.yaml", "--out", "OUT"],
        "no.yaml: No such file",
    ),
    "missing run": (["translate", "--run", "OUT", "a"], "no such run folder"),
    "missing input": (
        ["translate", "--run", "RUN", "--input", "no.txt"],
        "no.txt: No such file",
    ),
    "missing pairs to score": (
        ["score", "--run", "RUN", "--input", "no.tsv"],
        "no.tsv: No such file",
    ),
    "a folder to score": (
        ["score", "--run", "RUN", "--input", "RUN"],
        "Is a directory",
    ),
    "missing run to score with": (
        ["score", "--run", "OUT", "--input", "PAIRS"],
        "no such run folder",
    ),
    "no tokens in a batch": (
        ["translate", "--run", "RUN", "--tokens-per-batch", "0", "a"],
        "--tokens-per-batch",
    ),
    "text and input": (
        ["translate", "--run", "RUN", "--input", "no.txt", "a"],
        "not both",
    ),
    "beam of none": (
        ["translate", "--run", "RUN", "--beam", "0", "a"],
        "--beam 0: must be at least 1",
    ),
    "more than all probability": (
        ["translate", "--run", "RUN", "--sample", "--top-p", "2", "a"],
        "--top-p 2.0: must be at most 1",
    ),
    "list wider than the beam": (
        ["export", "--run", "RUN", "--to", "OUT", "--beam", "2", "--n-best", "3"],
        "--n-best 3 is wider than --beam 2",
    ),
    "temperature of a search": (
        ["evaluate", "--run", "RUN", "--data", "PAIRS", "--temperature", "0.5"],
        "--temperature 0.5: only goes with --sample",
    ),
    "options of an engine that takes them later": (
        ["export", "--run", "RUN", "--format", "ctranslate2", "--beam", "4"],
        "--beam: CTranslate2 takes its options",
    ),
    "unknown checkpoint": (
        ["translate", "--run", "RUN", "--checkpoint", "first", "a"],
        "there are best, last",
    ),
    "missing pairs": (
        ["evaluate", "--run", "RUN", "--data", "no.tsv"],
        "no.tsv",
    ),
    "unwritable output": (
        ["evaluate", "--run", "RUN", "--data", "PAIRS", "--output", "no/where.txt"],
        "--output no/where.txt: there is no folder",
    ),
    "no encoding": (
        ["translate", "--run", "RUN", "--input", "PAIRS", "--encoding", "latin-0"],
        "--encoding 'latin-0': there is no such encoding",
    ),
    "an encoding without lines": (
        ["translate", "--run", "RUN", "-i", "PAIRS", "--encoding", "utf-16"],
        "--encoding 'utf-16': such files cannot be read by lines; save them as UTF-8",
    ),
    "no encoding to train on": (
        ["train", "--data", "PAIRS", "--encoding", "latin-0", "--out", "OUT"],
        "data.encoding = 'latin-0': there is no such encoding",
    ),
    "one column": (
        ["evaluate", "--run", "RUN", "--data", "PAIRS", "--columns", "2"],
        "--columns [2]: must be two numbers from 1, such as [2, 1]",
    ),
    "one column twice": (
        ["train", "--data", "PAIRS", "--columns", "2,2", "--out", "OUT"],
        "data.columns = [2, 2]: must be two numbers from 1, such as [2, 1]",
    ),
    "a picture of no columns": (
        ["plot", "lengths", "--data", "PAIRS", "--columns", "a,b", "--out", "x.svg"],
        "--columns 'a,b': give",
    ),
    "a setting of one column": (
        ["train", "--data", "PAIRS", "--set", "data.columns=[1]", "--out", "OUT"],
        "data.columns = [1]: must be two numbers from 1, such as [2, 1]",
    ),
    "text that is not UTF-8": (
        ["translate", "--run", "RUN", "um", "n\udce3o"],
        "text 2: not UTF-8; name its encoding, such as --encoding latin-1",
    ),
    "a sentence to draw that is not UTF-8": (
        ["plot", "attention", "n\udce3o", "--run", "RUN", "--out", "x.svg"],
        "the text is not UTF-8",
    ),
    "bad model name": (
        ["export", "--run", "RUN", "--to", "OUT", "--name", "a/b"],
        "model name 'a/b'",
    ),
    "nothing to verify": (["verify", "OUT"], "there is no such folder"),
    "verify a run": (["verify", "RUN"], "not a SavedModel"),
    "unknown option": (["translate", "--rum", "x"], "--rum"),
    "unknown command": (["tranlate"], "tranlate"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_ends_in_one_clear_line(name, wrong, run_folder, tmp_path):
    args, message = WRONG[name]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("um gato\ta cat\n", encoding="utf-8")
    places = {"OUT": tmp_path / "out", "RUN": run_folder, "PAIRS": pairs}
    line = wrong(*(places.get(arg, arg) for arg in args))
    assert message in line, line


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_another_backend_is_refused(wrong, monkeypatch, tmp_path, backend):
    monkeypatch.setenv("KERAS_BACKEND", backend)
    for args in (["train", "--out", tmp_path / "out"], ["translate", "um gato"]):
        assert f"set KERAS_BACKEND=tensorflow, not {backend}" in wrong(*args)
    assert not (tmp_path / "out").exists()
