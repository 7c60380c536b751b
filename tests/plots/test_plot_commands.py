"""`tfxformer plot` writes one file and prints its path; wrong input is an error."""

import pytest
from numpy.testing import assert_array_equal

pytest.importorskip("matplotlib")


from tfxformer import commands, plots, positional_encoding
from tfxformer.layers.masking import look_ahead_mask
from tfxformer.plots.attention_maps import attention_maps, readable
from tfxformer.translator import Translator

TEXT = "O gato."


@pytest.fixture
def drawn(command, tmp_path, monkeypatch):
    """Runs a command that must draw; returns the arguments of its drawing function."""

    def run(function, *args):
        calls = []
        draw = getattr(plots, function)

        def watched(*values, **names):
            calls.append((*values, *names.values()))
            return draw(*values, **names)

        monkeypatch.setattr(plots, function, watched)
        path = tmp_path / "picture.png"
        out, err, code = command("plot", *args, "--out", path)
        assert (out, code) == (f"{path}\n", 0), err
        assert path.read_bytes().startswith(b"\x89PNG")
        return calls[0]

    return run


@pytest.fixture
def model(monkeypatch, run_folder, translator):
    """Options that name the shared model, which is already loaded."""
    monkeypatch.setattr(Translator, "load", lambda *_: translator)
    return ["--run", run_folder]


def test_plot_positions_draws_the_positional_encoding(drawn):
    options = ["--kind", "curves", "--length", 9]
    given, kind = drawn("draw_positions", "positions", *options, "--dark")
    assert_array_equal(given, positional_encoding(9, 512))
    assert kind == "curves"


def test_plot_masks_draws_the_look_ahead_and_padding_masks(drawn):
    queries, keys, mask, title = drawn("draw_mask", "masks", "Hi how")
    assert queries == keys == ["[start]", "Hi", "how"] and title == "Look-ahead mask"
    assert_array_equal(mask, look_ahead_mask(3)[0, 0])
    queries, _, mask, _ = drawn("draw_mask", "masks", "Hi", "--kind", "padding")
    assert queries == ["[start]", "Hi", "[pad]", "[pad]", "[pad]"]
    assert mask.tolist() == [[True] * 2 + [False] * 3] * 5
    mask = drawn("draw_mask", "masks", "Hi", "--kind", "both")[2]
    assert mask.astype(int).tolist() == [[1, 0, 0, 0, 0], *[[1, 1, 0, 0, 0]] * 4]


def test_plot_attention_draws_the_chosen_heads(drawn, model, translator):
    maps = attention_maps(translator, TEXT)
    attention = ["attention", TEXT, *model]
    *tokens, weights, title, rows, columns = drawn("draw_attention", *attention)
    assert tokens == [readable(side) for side in maps["cross"][:2]]
    assert title == "Cross-attention"
    assert (rows, columns) == ("target token to write (query)", "source token (key)")
    assert_array_equal(weights, maps["cross"][2])
    options = ["--layer", 1, "--head", 4, "--kind", "decoder"]
    *_, weights, title, rows, columns = drawn("draw_attention", *attention, *options)
    assert_array_equal(weights, maps["decoder"][2][0, 3])
    assert title == "Self-attention of the decoder, layer 1, head 4"
    assert (rows, columns) == ("target token (query)", "target token (key)")


def test_without_matplotlib_plot_says_how_to_install_it(command, tmp_path, monkeypatch):
    monkeypatch.setattr(commands.importlib.util, "find_spec", lambda name: None)
    _, err, code = command("plot", "positions", "--out", tmp_path / "x.png")
    assert code == 1 and "pip install 'tfxformer[plots]'" in err


def test_plot_schedule_draws_presets_and_plot_curves_draws_metrics(drawn, tmp_path):
    schedules, steps = drawn("draw_schedules", "schedule")
    assert [*schedules] == [f"preset {n}" for n in ("tiny", "tutorial", "base", "big")]
    assert steps == 20_000
    schedules, _ = drawn("draw_schedules", "schedule", "--preset", "base")
    assert [*schedules] == ["preset base"]
    row = '{"step": 1, "split": "train", "loss": 2}'
    (tmp_path / "metrics.jsonl").write_text(f'{row}\n{{"half', "utf-8")
    (runs,) = drawn("draw_curves", "curves", tmp_path)
    assert runs == {str(tmp_path): [{"step": 1, "split": "train", "loss": 2}]}


def test_plot_lengths_counts_the_words_of_sources_and_targets(drawn, tmp_path):
    (tmp_path / "pairs.tsv").write_text("um gato\ta cat\nolá\toh hi you\n", "utf-8")
    options = ["lengths", "--data", tmp_path / "pairs.tsv"]
    counts = {"source": [2, 1], "target": [2, 3]}
    assert drawn("draw_lengths", *options) == (counts, "words")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("positions --out x.jpg", "--out x.jpg: its name must end in .png or .svg"),
        (
            "attention a --out x.html",
            "--out x.html: its name must end in .png or .svg; for a page to explore: "
            "tfxformer demo --to x.html",
        ),
        ("attention _", "the text is empty: give a sentence"),
        ("attention \u200b", "the text is empty: give a sentence"),
        ("attention a --head 1", "--head: give --layer, too"),
        ("lengths", "name the pairs, such as --data pairs.tsv"),
        ("curves none", "[Errno 2] No such file or directory: 'none/metrics.jsonl'"),
        ("curves .", "the runs have no measurements to draw"),
        ("schedule --preset bas", "bas: no such preset"),
        ("attention a RUN --layer 2", "--layer 2: the model has 1"),
    ],
)
def test_plot_refuses_wrong_input_in_one_line(
    command, tmp_path, monkeypatch, model, arguments, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "metrics.jsonl").touch()
    words = [word.replace("_", " ") for word in arguments.split()]
    words = [part for word in words for part in (model if word == "RUN" else [word])]
    words += [] if "--out" in words else ["--out", "x.png"]
    out, err, code = command("plot", *words)
    assert (out, code, len([*tmp_path.iterdir()])) == ("", 1, 1)
    assert err.splitlines()[-1].startswith(f"tfxformer: error: {message}")


def test_a_picture_does_not_overwrite_its_data(command, tmp_path):
    pairs = tmp_path / "pairs.svg"
    pairs.write_text("Olá!\tHello!\n", "utf-8")
    _, err, code = command("plot", "lengths", "--data", pairs, "--out", pairs)
    assert code == 1 and f"--out {pairs}: is also an input" in err
    assert pairs.read_text("utf-8") == "Olá!\tHello!\n"
