"""`tfxformer plot`: one file written, its path the answer, and wrong input told."""

import json
from functools import partial

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from tfxformer import plots
from tfxformer.plots import commands
from tfxformer.plots.attention_maps import attention_maps
from tfxformer.translator import Translator

TEXT = "O gato bebe leite."


@pytest.fixture
def plot(command):
    return partial(command, "plot")


@pytest.fixture
def drawn(plot, tmp_path, monkeypatch):
    """Runs a command that must draw; gives what its picture was drawn of."""

    def run(function, *args):
        calls = []
        draw = getattr(plots, function)
        monkeypatch.setattr(plots, function, lambda *a: calls.append(a) or draw(*a))
        path = tmp_path / "picture.png"
        out, err, code = plot(*args, "--out", path)
        assert (out, code) == (f"{path}\n", 0), err
        assert path.read_bytes().startswith(b"\x89PNG")
        return calls[0]

    return run


@pytest.fixture
def model(monkeypatch, run_folder, translator):
    """The run folder of the model that the tests share, which is loaded already."""
    monkeypatch.setattr(Translator, "load", lambda *_: translator)
    return run_folder


# --- Pictures ---


def test_positions(drawn, model, translator):
    from tfxformer import positional_encoding

    (given,) = drawn("draw_positions", "positions")
    assert np.shape(given) == (100, 512)
    options = ["--kind", "curves", "--length", 9, "--depth", 8, "--depths", "0,7"]
    given, depths = drawn("draw_position_curves", "positions", *options, "--dark")
    np.testing.assert_array_equal(given, positional_encoding(9, 8))
    assert depths == [0, 7]
    options = ["--kind", "similarity", "--run", model, "--length", 48]
    (given,) = drawn("draw_position_similarity", "positions", *options)
    layer = translator.transformer.encoder.pos_embedding
    np.testing.assert_array_equal(given, layer.encodings(48))


def test_masks(drawn, model, translator):
    queries, keys, mask, title = drawn("draw_mask", "masks", "Hi how")
    assert queries == keys == ["[start]", "Hi", "how"]
    assert mask.tolist() == np.tri(3, dtype=bool).tolist()
    assert title == "Look-ahead mask"
    options = ["--kind", "padding", "--length", 5]
    queries, _, mask, _ = drawn("draw_mask", "masks", "Hi how", *options)
    assert queries == ["Hi", "how", "[end]", "[pad]", "[pad]"]
    assert mask.tolist() == [[True] * 3 + [False] * 2] * 5
    mask = drawn("draw_mask", "masks", "Hi", "--kind", "both")[2]
    assert mask.astype(int).tolist() == [[1, 0, 0, 0, 0], *[[1, 1, 0, 0, 0]] * 4]
    tokens = drawn("draw_mask", "masks", TEXT, "--run", model)[0]
    assert tokens == ["[start]", *translator.explain(TEXT).source_tokens[:-1]]


def test_attention(drawn, plot, model, translator, tmp_path):
    maps = attention_maps(translator, TEXT)
    attention = partial(drawn, "draw_attention", "attention", TEXT, "--run", model)
    queries, keys, weights, title = attention()
    assert (queries, keys) == (maps.target_tokens, maps.source_tokens)
    np.testing.assert_allclose(weights, maps.cross, atol=1e-5)
    assert title == "Cross-attention"
    _, _, weights, title = attention("--layer", 1, "--kind", "encoder")
    np.testing.assert_allclose(weights, maps.encoder[0], atol=1e-5)
    assert title == "Self-attention of the encoder, layer 1"
    weights = attention("--layer", 1, "--head", 4, "--kind", "decoder")[2]
    np.testing.assert_allclose(weights, maps.decoder[0, 3], atol=1e-5)
    path = tmp_path / "page.HTML"
    out, _, code = plot("attention", TEXT, "--run", model, "--out", path)
    assert (out, code) == (f"{path}\n", 0)
    assert path.read_text("utf-8").startswith("<!doctype html>")


def test_schedules(drawn, run_folder):
    schedules, steps = drawn("draw_schedules", "schedule")
    assert [*schedules] == [f"preset {n}" for n in ("tiny", "tutorial", "base", "big")]
    assert steps == 20_000
    options = ["--preset", "base", "--run", run_folder, "--steps", 40]
    schedules, steps = drawn("draw_schedules", "schedule", *options)
    assert [*schedules] == ["preset base", run_folder.name] and steps == 40


def test_lengths(drawn, model, translator, tmp_path):
    (tmp_path / "pairs.tsv").write_text("um gato\ta cat\nolá\toh hi you\n", "utf-8")
    options = ["lengths", "--data", tmp_path / "pairs.tsv"]
    counts, unit = drawn("draw_lengths", *options)
    assert counts == {"source": [2, 1], "target": [2, 3]} and unit == "words"
    counts, unit = drawn("draw_lengths", *options, "--run", model)
    ids = translator.tokenizer.tokenize(["um gato", "olá"]).to_list()
    assert [*counts["source"]] == [*map(len, ids)] and unit == "tokens"


def test_curves(drawn, tmp_path):
    folders = [
        tmp_path / "a" / "run",
        tmp_path / "b" / "second",
        tmp_path / "b" / "run",
    ]
    for number, folder in enumerate(folders):
        folder.mkdir(parents=True)
        row = json.dumps({"step": 1, "split": "train", "loss": number})
        (folder / "metrics.jsonl").write_text(f'{row}\n{{"half', "utf-8")
    (runs,) = drawn("draw_curves", "curves", *folders[:2])
    assert {name: rows[0]["loss"] for name, rows in runs.items()} == {
        "run": 0,
        "second": 1,
    }
    # Two that are called alike are told apart by their paths.
    (runs,) = drawn("draw_curves", "curves", folders[0], folders[2])
    assert [*runs] == [str(folders[0]), str(folders[2])]


def test_neighbours(drawn, model, translator):
    tokens = translator.tokenizer.tokens(range(translator.tokenizer.vocab_size))
    word = next(t for t in tokens if t.startswith("▁") and t[1:] not in ["", *tokens])
    options = ["neighbours", word[1:], word, "--run", model, "--count", 3]
    vectors, given, chosen, count = drawn("draw_neighbours", *options)
    assert (given, chosen, count) == (tokens, [word], 3)
    assert np.shape(vectors) == (len(tokens), 64)


# --- Wrong input ---


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("positions --out x.jpg", "--out x.jpg: its name must end in .png or .svg"),
        ("positions --out x.html", "--out x.html: its name must end in .png or .svg"),
        ("positions --out none/x.png", "--out none/x.png: there is no folder"),
        ("positions --depths 1,x", "--depths '1,x': write whole numbers, such as 1,5"),
        ("masks _", "the text is empty: give a sentence"),
        ("attention a --head 1", "--head: give --layer, too"),
        ("attention a --layer 1 --out x.html", "--layer does not go with .html"),
        ("attention a --run none", "none: there is no such run folder"),
        ("lengths --data none.tsv", "'none.tsv' is no pair source"),
        ("curves none", "none/metrics.jsonl: No such file"),
        ("schedule --run none", "none: there is no such run folder"),
        ("schedule --preset bas", "there is no preset bas"),
    ],
)
def test_wrong_input_is_one_line(plot, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    words = [word.replace("_", " ") for word in arguments.split()]
    out, err, code = plot(*words, *([] if "--out" in words else ["--out", "x.png"]))
    assert (out, code) == ("", 1) and not [*tmp_path.iterdir()]
    assert err.splitlines()[-1].startswith(f"tfxformer: error: {message}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["attention", TEXT, "--layer", 2], "--layer 2: the model has 1 to 1"),
        (["attention", TEXT, "--layer", 1, "--head", 5], "--head 5: the model has 1"),
        (["positions", "--length", 49], "--length 49: the model has 48 positions"),
        (
            ["positions", "--length", 9, "--kind", "curves", "--depths", 64],
            "--depths 64",
        ),
        (["masks", TEXT, "--length", 2], "--length 2: the sentence has"),
        (["neighbours", "xyzzyq"], "'xyzzyq': the vocabulary has parts of it only: ▁"),
    ],
)
def test_what_the_model_does_not_have(plot, model, tmp_path, arguments, message):
    out, err, code = plot(*arguments, "--run", model, "--out", tmp_path / "x.png")
    assert (out, code) == ("", 1)
    assert err.splitlines()[-1].startswith(f"tfxformer: error: {message}")


def test_a_missing_extra_is_named_where_it_is_needed(
    plot, monkeypatch, model, tmp_path
):
    monkeypatch.setattr(commands.importlib.util, "find_spec", lambda name: None)
    _, err, code = plot("positions", "--out", tmp_path / "x.png")
    assert code == 1 and "pip install 'tfxformer[plots]'" in err
    attention = ["attention", TEXT, "--run", model, "--out", tmp_path / "x.html"]
    assert plot(*attention)[2] == 0
