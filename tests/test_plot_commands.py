"""`tfxformer plot`: one file written, its path the answer, and wrong input told."""

import json
import shutil
import sys
from functools import partial

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from tfxformer import plot_commands, plots


@pytest.fixture
def plot(command):
    return partial(command, "plot")


@pytest.fixture
def drawn(plot, tmp_path, monkeypatch):
    """Runs a command that must draw; gives what its picture was drawn of."""

    def run(command, *args, function, suffix=".png"):
        calls = []
        draw = getattr(plots, function)
        monkeypatch.setattr(
            plots,
            function,
            lambda *a, **named: calls.append((a, named)) or draw(*a, **named),
        )
        path = tmp_path / f"picture{suffix}"
        out, err, code = plot(command, *args, "--out", path)
        assert (out, code) == (f"{path}\n", 0), err
        assert "Traceback" not in err
        beginning = {".png": b"\x89PNG", ".svg": b"<?xml"}[suffix]
        assert path.read_bytes().startswith(beginning)
        (call,) = calls
        return call

    return run


@pytest.fixture
def wrong(plot, tmp_path):
    """Runs a command that must fail; gives its one line."""

    def run(*args, out="x.png"):
        answer, err, code = plot(*args, "--out", tmp_path / out)
        assert (answer, code) == ("", 1)
        assert not (tmp_path / out).is_file()
        (line,) = [x for x in err.splitlines() if x.startswith("tfxformer: error: ")]
        assert "Traceback" not in err
        return line.removeprefix("tfxformer: error: ")

    return run


# --- What needs no model ---


def test_positions(drawn):
    from tfxformer import positional_encoding

    (given,), named = drawn("positions", function="draw_positions")
    assert np.shape(given) == (100, 512) and named == {"dark": False}
    options = ["--kind", "curves", "--length", 9, "--depth", 8, "--depths", "0,7"]
    (given, depths), named = drawn(
        "positions", *options, "--dark", function="draw_position_curves", suffix=".svg"
    )
    np.testing.assert_array_equal(given, positional_encoding(9, 8))
    assert (depths, named) == ([0, 7], {"dark": True})
    drawn("positions", "--kind", "similarity", function="draw_position_similarity")


def test_masks_of_words(drawn):
    (queries, keys, mask, title), _ = drawn("masks", "Hi how", function="draw_mask")
    assert queries == keys == ["[start]", "Hi", "how"]
    assert mask.tolist() == np.tri(3, dtype=bool).tolist()
    assert title == "Look-ahead mask"
    (queries, _, mask, title), _ = drawn(
        "masks", "Hi how", "--kind", "padding", "--length", 5, function="draw_mask"
    )
    assert queries == ["Hi", "how", "[end]", "[pad]", "[pad]"]
    assert mask.tolist() == [[True] * 3 + [False] * 2] * 5
    (_, _, mask, _), _ = drawn("masks", "Hi", "--kind", "both", function="draw_mask")
    assert mask.astype(int).tolist() == [[1, 0, 0, 0, 0], *[[1, 1, 0, 0, 0]] * 4]


def test_schedules_of_presets_and_runs(drawn, tmp_path):
    (schedules, steps), _ = drawn("schedule", function="draw_schedules")
    assert [*schedules] == [f"preset {n}" for n in ("tiny", "tutorial", "base", "big")]
    assert steps == 20_000
    run = tmp_path / "mine"
    run.mkdir()
    (run / "config.yaml").write_text("training: {warmup_steps: 10, learning_rate: 0.5}")
    options = ["--preset", "base", "--run", run, "--steps", 40]
    (schedules, steps), _ = drawn("schedule", *options, function="draw_schedules")
    assert [*schedules] == ["preset base", "mine"] and steps == 40
    assert float(schedules["mine"](9)) == pytest.approx(0.5)


def test_lengths_in_words(drawn, tmp_path):
    (tmp_path / "pairs.tsv").write_text("um gato\ta cat\nolá\toh hi you\n", "utf-8")
    options = ["--data", tmp_path / "pairs.tsv"]
    (counts, unit), _ = drawn("lengths", *options, function="draw_lengths")
    assert counts == {"source": [2, 1], "target": [2, 3]} and unit == "words"


def measured(folder, *losses):
    folder.mkdir(parents=True)
    rows = [
        {"step": step, "split": "train", "loss": loss}
        for step, loss in enumerate(losses, 1)
    ]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (folder / "metrics.jsonl").write_text(text + '{"half', encoding="utf-8")
    return folder


def test_curves_of_runs(drawn, tmp_path):
    one = measured(tmp_path / "a" / "run", 3, 2)
    two = measured(tmp_path / "b" / "second", 4)
    (runs,), _ = drawn("curves", one, two, function="draw_curves")
    assert {name: [row["loss"] for row in rows] for name, rows in runs.items()} == {
        "run": [3, 2],
        "second": [4],
    }
    # Two that are called alike are told apart by their paths.
    three = measured(tmp_path / "b" / "run", 4)
    (runs,), _ = drawn("curves", one, three, function="draw_curves")
    assert [*runs] == [str(one), str(three)]


# --- What needs one ---


TEXT = "O gato bebe leite."


@pytest.fixture
def model(monkeypatch, run_folder, translator):
    """The run folder of the model that the tests share, which is loaded already."""
    from tfxformer.translator import Translator

    def load(path, checkpoint):
        assert (path, checkpoint) == (run_folder, "best")
        return translator

    monkeypatch.setattr(Translator, "load", load)
    return run_folder


def test_attention_by_layers_and_heads(drawn, model, translator):
    from tfxformer.attention_maps import attention_maps

    maps = attention_maps(translator, TEXT)
    options = ["attention", TEXT, "--run", model]
    (queries, keys, weights, title), _ = drawn(*options, function="draw_layers")
    assert (queries, keys) == (maps.target_tokens, maps.source_tokens)
    np.testing.assert_allclose(weights, maps.cross, atol=1e-5)
    assert title == "Cross-attention"
    options += ["--layer", 1]
    (queries, keys, weights, title), _ = drawn(
        *options, "--kind", "encoder", function="draw_heads"
    )
    assert queries == keys == maps.source_tokens
    np.testing.assert_allclose(weights, maps.encoder[0], atol=1e-5)
    assert title == "Self-attention of the encoder, layer 1"
    (queries, keys, weights, title), named = drawn(
        *options, "--kind", "decoder", "--head", 4, "--dark", function="draw_head"
    )
    assert queries == keys == maps.target_inputs
    np.testing.assert_allclose(weights, maps.decoder[0, 3], atol=1e-5)
    assert title.endswith(", layer 1, head 4") and named == {"dark": True}


def test_attention_to_play_with(plot, model, tmp_path):
    path = tmp_path / "page.HTML"
    out, _, code = plot("attention", TEXT, "--run", model, "--out", path)
    assert (out, code) == (f"{path}\n", 0)
    page = path.read_text("utf-8")
    assert page.startswith("<!doctype html>") and 'data-theme="auto"' in page
    plot("attention", TEXT, "--run", model, "--out", path, "--dark")
    assert 'data-theme="dark"' in path.read_text("utf-8")


def test_layers_and_heads_that_are_not_there(wrong, model):
    options = ["attention", TEXT, "--run", model]
    assert wrong(*options, "--layer", 2) == "--layer 2: the model has 1 to 1"
    assert wrong(*options, "--layer", 1, "--head", 5) == (
        "--head 5: the model has 1 to 4"
    )


def test_pieces_of_a_model(drawn, model, translator):
    tokenizer = translator.tokenizer
    cut = tokenizer.tokens(tokenizer.tokenize([TEXT])[0].numpy())
    (tokens, _, _, _), _ = drawn("masks", TEXT, "--run", model, function="draw_mask")
    assert tokens == ["[start]", *cut]


def test_positions_of_a_model(drawn, wrong, model, translator):
    options = ["positions", "--run", model, "--length"]
    (given,), _ = drawn(*options, 48, function="draw_positions")
    layer = translator.transformer.encoder.pos_embedding
    np.testing.assert_array_equal(given, layer.encodings(48))
    assert wrong(*options, 49) == "--length 49: the model has 48 positions"
    assert "does not go with --run" in wrong(*options, 9, "--depth", 9)


def test_lengths_in_tokens(drawn, model, translator, tmp_path):
    (tmp_path / "pairs.tsv").write_text("O gato bebe leite.\tMilk, please\n", "utf-8")
    options = ["--data", tmp_path / "pairs.tsv", "--run", model]
    (counts, unit), _ = drawn("lengths", *options, function="draw_lengths")
    texts = ["O gato bebe leite.", "Milk, please"]
    ids = translator.tokenizer.tokenize(texts)
    assert [*counts.values()] == [[len(row)] for row in ids.to_list()]
    assert unit == "tokens"


def test_neighbours_of_words(drawn, wrong, model, translator):
    pieces = translator.tokenizer.tokens(range(translator.tokenizer.vocab_size))
    word = next(p for p in pieces if p.startswith("▁") and p[1:] not in ["", *pieces])
    options = ["--run", model, "--count", 3]
    (vectors, given, chosen, count), _ = drawn(
        "neighbours", word[1:], word, *options, function="draw_neighbours"
    )
    assert (given, chosen, count) == (pieces, [word], 3)
    assert np.shape(vectors) == (len(pieces), 64)
    message = wrong("neighbours", "xyzzyq", *options)
    assert message.startswith("'xyzzyq': the vocabulary has it in pieces only: ▁")


@pytest.mark.slow
def test_an_export_is_drawn_as_its_run_is(drawn, exported, run_folder):
    options = ["attention", TEXT, "--run"]
    ours, _ = drawn(*options, exported, function="draw_layers")
    theirs, _ = drawn(*options, run_folder, function="draw_layers")
    assert ours[:2] == theirs[:2]
    np.testing.assert_allclose(ours[2], theirs[2], atol=1e-5)
    options = ["masks", TEXT, "--run", exported]
    (tokens, _, _, _), _ = drawn(*options, function="draw_mask")
    assert len(tokens) > 3


# --- Wrong input ---


COMMANDS = [
    ["positions"],
    ["masks", "a b"],
    ["attention", "a b", "--run", "none"],
    ["schedule"],
    ["lengths", "--data", "phrasebook"],
    ["curves", "none"],
    ["neighbours", "a", "--run", "none"],
]


@pytest.fixture
def no_model(monkeypatch):
    """What is wrong with a command is told before any work."""

    def refuse(*_):
        raise AssertionError("a model was loaded")

    from tfxformer.translator import Translator

    monkeypatch.setattr(Translator, "load", refuse)
    monkeypatch.setattr(plot_commands, "start_tensorflow", refuse)


@pytest.mark.parametrize("picture", COMMANDS, ids=lambda picture: picture[0])
def test_where_a_picture_cannot_be_written(wrong, tmp_path, no_model, picture):
    html = ".png, .svg or .html" if picture[0] == "attention" else ".png or .svg"
    for name in ("x.jpg", "x", "x.png.gz"):
        assert wrong(*picture, out=name) == (
            f"--out {tmp_path / name}: its name must end in {html}"
        )
    message = wrong(*picture, out="none/x.png")
    assert message.endswith(f"there is no folder {tmp_path / 'none'}")
    (tmp_path / "folder.svg").mkdir()
    assert wrong(*picture, out="folder.svg").endswith("is a folder; name a file")


@pytest.mark.parametrize("picture", COMMANDS, ids=lambda picture: picture[0])
def test_a_missing_extra_is_named(wrong, monkeypatch, no_model, picture):
    find = plot_commands.importlib.util.find_spec
    monkeypatch.setattr(
        plot_commands.importlib.util,
        "find_spec",
        lambda name: None if name == "matplotlib" else find(name),
    )
    assert wrong(*picture) == "matplotlib is missing: pip install 'tfxformer[plots]'"


def test_a_page_needs_no_matplotlib(plot, monkeypatch, model, tmp_path):
    # As where it is not installed.
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    path = tmp_path / "x.html"
    out, err, code = plot("attention", TEXT, "--run", model, "--out", path)
    assert (out, code) == (f"{path}\n", 0), err


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        (["positions", "--kind", "map"], "--kind 'map': there are heatmap, curves"),
        (["positions", "--depths", "1,x"], "--depths '1,x': write whole numbers"),
        (["positions", "--depths", "-1"], "--depths '-1': write whole numbers"),
        (["masks", "a", "--kind", "x"], "--kind 'x': there are look-ahead, padding"),
        (["masks", " \t"], "the text is empty: give a sentence"),
        (["attention", "", "--run", "none"], "the text is empty: give a sentence"),
        (
            ["attention", "a", "--run", "none", "--kind", "self"],
            "--kind 'self': there are cross, encoder, decoder",
        ),
        (["attention", "a", "--run", "none", "--head", "1"], "--head: give --layer"),
        (["attention", "a", "--run", "none"], "none: there is no such run folder or"),
        (["neighbours", "a", "--run", "none"], "none: there is no such run folder or"),
        (["lengths", "--data", "none.tsv"], "'none.tsv' is no pair source"),
        (["curves", "none"], "none/metrics.jsonl: No such file"),
        (["schedule", "--run", "none"], "none: no run folder, it has no config.yaml"),
        (["schedule", "--preset", "bas"], "preset bas does not exist"),
    ],
)
def test_wrong_input_is_one_line_before_any_work(wrong, no_model, picture, message):
    assert wrong(*picture).startswith(message)


def test_more_wrong_input(wrong, tmp_path):
    assert wrong("positions", "--kind", "curves", "--depth", 4) == (
        "--depths 1,5,15,20: there are 0 to 3"
    )
    assert wrong("masks", "a b c", "--length", 3) == (
        "--length 3: the sentence has 4 tokens"
    )
    options = ["attention", "a", "--run", "none", "--layer", 1]
    assert wrong(*options, out="x.html").startswith("--layer does not go with .html")
    empty = measured(tmp_path / "empty")
    assert wrong("curves", empty) == f"{empty}: the runs have no measurements to draw"
    assert wrong("lengths", "--data", "phrasebook", "--run", empty).startswith(
        f"{empty}: not a run folder, config.yaml is missing"
    )


def test_a_run_that_is_damaged(wrong, run_folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run_folder, copy, ignore=shutil.ignore_patterns("*.h5", "tokens"))
    message = wrong("attention", TEXT, "--run", copy)
    assert message == f"{copy}: best.weights.h5 is missing: train the run first"
