"""Pictures: what they show, in any script and with either background."""

import json
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from tfxformer import plots
from tfxformer.errors import UserError
from tfxformer.plots import png

TRAIN = [{"step": n, "split": "train", "loss": 9 / n} for n in range(1, 30)]
VALID = [{"step": 9, "split": "validation", "loss": 2.0, "masked_accuracy": 0.5}]


def weights(*shape):
    raw = np.random.default_rng(0).random(shape)
    return raw / raw.sum(-1, keepdims=True)


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def texts(axes):
    return [text.get_text() for text in axes.texts]


def panels(figure):
    return [axes for axes in figure.axes if axes.images]


FIGURES = {
    "head": lambda: plots.draw_attention([*"ab"], [*"xyz"], weights(2, 3)),
    "heads": lambda: plots.draw_attention([*"ab"], [*"xyz"], weights(6, 2, 3)),
    "layers": lambda: plots.draw_attention([*"ab"], [*"xyz"], weights(2, 2, 2, 3)),
    "mask": lambda: plots.draw_mask([*"ab"], [*"ab"], np.tri(2)),
    "positions": lambda: plots.draw_positions(weights(4, 6)),
    "position curves": lambda: plots.draw_positions(weights(4, 6), "curves", (0, 5)),
    "similarity": lambda: plots.draw_positions(weights(4, 6), "similarity"),
    "neighbours": lambda: plots.draw_neighbours(weights(9, 4), [*"abcdefghi"], "ac"),
    "schedules": lambda: plots.draw_schedules({"a": lambda step: step / 9}, 10),
    "lengths": lambda: plots.draw_lengths({"a": [1, 2, 3], "b": [4]}),
    "curves": lambda: plots.draw_curves({"a": TRAIN + VALID, "b": TRAIN[:1]}),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", FIGURES)
def test_every_picture_is_drawn_within_its_edges_in_the_user_s_style(name):
    import matplotlib.style
    from matplotlib.colors import same_color

    with matplotlib.style.context("dark_background"):
        figure = FIGURES[name]()
    assert png(figure).startswith(b"\x89PNG")
    page = figure.bbox.padded(3)
    for axes in figure.axes:
        box = axes.get_tightbbox()
        assert page.x0 <= box.x0 < box.x1 <= page.x1, axes
        assert page.y0 <= box.y0 < box.y1 <= page.y1, axes
        # Letters keep the style's colour outside it.
        for label in (*axes.get_xticklabels(), axes.title, axes.xaxis.label):
            assert same_color(label.get_color(), "white")
    assert figure.get_supxlabel() or any(axes.get_xlabel() for axes in figure.axes)


# --- Attention and masks ---


def test_each_head_has_a_panel_on_one_scale():
    given = weights(2, 3, 4, 5)
    drawn = panels(plots.draw_attention([*"abcd"], [*"vwxyz"], given, "title"))
    assert [axes.get_title() for axes in drawn[2:4]] == [
        "layer 1, head 3",
        "layer 2, head 1",
    ]
    for axes, head in zip(drawn, given.reshape(6, 4, 5), strict=True):
        np.testing.assert_allclose(axes.images[0].get_array(), head, rtol=1e-6)
        assert (axes.images[0].norm.vmin, axes.images[0].norm.vmax) == (0, 1)
    # The tokens stand at the left and below, the first query at the top.
    assert labels(drawn[0].yaxis) == [*"abcd"] and labels(drawn[5].xaxis) == [*"vwxyz"]
    assert drawn[0].get_ylim()[0] > drawn[0].get_ylim()[1]


def test_the_cells_of_a_short_sentence_have_their_percents():
    shares = [[0.126, 0.874], [0.5, 0.5], [1, 0]]
    (axes,) = panels(plots.draw_attention([*"abc"], [*"xy"], shares))
    assert texts(axes) == ["13", "87", "50", "50", "100", "0"]


def luminance(colours):
    """From 0, black, to 1, white (WCAG 2)."""
    rgb = np.asarray(colours)[..., :3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return linear @ (0.2126, 0.7152, 0.0722)


def test_colours_can_be_told_apart_by_lightness_and_percents_be_read_on_them():
    from matplotlib.colors import to_rgba

    shares = np.linspace(0, 1, 12)[None]
    (axes,) = panels(plots.draw_attention(["a"], ["b"] * 12, shares))
    image = axes.images[0]
    cells = luminance(image.cmap(image.norm(image.get_array())))[0]
    assert (np.diff(cells) > 0).all() and cells[-1] - cells[0] > 0.6
    letters = luminance([to_rgba(text.get_color()) for text in axes.texts])
    least, most = np.sort([cells, letters], axis=0)
    assert ((most + 0.05) / (least + 0.05) > 3).all()


def test_long_sentences_have_tokens_in_one_panel_and_positions_in_many():
    tokens = [f"▁token{number}" for number in range(90)]
    (one,) = panels(plots.draw_attention(tokens, tokens, weights(90, 90)))
    assert labels(one.yaxis) == tokens and not texts(one)
    many = plots.draw_attention(tokens, tokens, weights(1, 8, 90, 90))
    assert "▁token1" not in labels(panels(many)[0].yaxis)
    assert max(many.get_size_inches()) < 40


def test_a_mask_says_what_is_added_to_the_scores():
    figure = plots.draw_mask([*"abc"], [*"abc"], np.tri(3, dtype=bool), title="m")
    (axes,) = panels(figure)
    assert texts(axes) == ["0", "−∞", "−∞", "0", "0", "−∞", "0", "0", "0"]
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["may be read", "is hidden"]


@pytest.mark.parametrize(
    ("queries", "shape", "message"),
    [
        ("ab", (2, 3), "2 x 2 tokens"),
        ("ab", (3, 2), "2 x 2 tokens"),
        ("ab", (1, 1, 1, 2, 2), "2 x 2 tokens"),
        ("ab", (2,), "2 x 2 tokens"),
        ("", (0, 2), "0 x 2 tokens"),
    ],
)
def test_tokens_must_be_as_many_as_the_weights(queries, shape, message):
    with pytest.raises(ValueError, match=message):
        plots.draw_attention([*queries], [*"xy"], np.ones(shape))


ODD = ["▁مرحبا", "שלום", "▁汉字", "😀", "$5", "$x^2$", r"\frac", "x" * 100, ""]


@pytest.mark.filterwarnings("ignore:Glyph")  # Matplotlib draws a box and says so
def test_any_token_is_drawn_and_a_long_one_is_cut():
    figure = plots.draw_attention(ODD, ODD, weights(len(ODD), len(ODD)))
    assert png(figure)
    shown = labels(panels(figure)[0].yaxis)
    assert shown == [*ODD[:-2], "x" * 20 + "…", ""]


def test_no_screen_and_no_words_where_nothing_is_set_up(tmp_path):
    code = """
import sys
from tfxformer.plots import draw_attention, png
png(draw_attention(["a"], ["b"], [[1]]))
assert "matplotlib.pyplot" not in sys.modules and "tensorflow" not in sys.modules
"""
    env = {"MPLCONFIGDIR": str(tmp_path), "HOME": str(tmp_path)}
    env["PYTHONPATH"] = ":".join(sys.path)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True)
    assert (done.returncode, done.stdout) == (0, b""), done.stderr


# --- The model ---


def test_positions_are_shown_as_they_are():
    from tfxformer import positional_encoding

    encoding = np.asarray(positional_encoding(30, 16))
    (heat,) = panels(plots.draw_positions(encoding))
    np.testing.assert_allclose(heat.images[0].get_array(), encoding)
    curves = plots.draw_positions(encoding, "curves", (0, 15)).axes
    for axes, depth in zip(curves, (0, 15), strict=True):
        np.testing.assert_allclose(axes.lines[0].get_ydata(), encoding[:, depth])
    (alike,) = panels(plots.draw_positions(encoding, "similarity"))
    norms = np.linalg.norm(encoding, axis=1)
    expected = encoding @ encoding.T / np.outer(norms, norms)
    np.testing.assert_allclose(alike.images[0].get_array(), expected, atol=1e-6)


def test_neighbours_are_the_nearest_directions():
    vectors = [[1, 0], [9, 1], [1, 1], [0, 2], [-1, 0]]
    figure = plots.draw_neighbours(vectors, [*"abcde"], ["a", "d"], neighbours=2)
    first, second = figure.axes
    assert (first.get_title(), labels(first.yaxis)) == ("a", ["b", "c"])
    assert (second.get_title(), labels(second.yaxis)) == ("d", ["c", "b"])
    widths = [bar.get_width() for bar in first.patches]
    np.testing.assert_allclose(widths, [9 / 82**0.5, 0.5**0.5])
    with pytest.raises(ValueError, match="'x' is not in list"):
        plots.draw_neighbours(vectors, [*"abcde"], ["x"])


# --- Training ---


def test_schedules_have_a_line_each():
    figure = plots.draw_schedules({"a": lambda s: s, "b": lambda s: 2.0}, 1000)
    one, two = figure.axes[0].lines
    assert one.get_ydata()[-1] == 999 and {*two.get_ydata()} == {2}
    assert (one.get_color(), one.get_linestyle()) != (
        two.get_color(),
        two.get_linestyle(),
    )


def test_lengths_are_counted():
    figure = plots.draw_lengths({"source": [1, 1, 3], "target": [200]}, "words")
    (axes,) = figure.axes
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == [
        "source: half up to 1, 95% up to 3 words",
        "target: half up to 200, 95% up to 200 words",
    ]
    assert sum(bar.get_height() for bar in axes.patches) == 4
    for none in ({}, {"source": []}):
        with pytest.raises(ValueError, match="no sentences"):
            plots.draw_lengths(none)


def test_curves_have_a_panel_for_what_was_measured():
    odd = [{"step": 30, "split": "train", "loss": bad} for bad in (None, np.nan, "x")]
    figure = plots.draw_curves({"one": TRAIN + odd, "two": VALID})
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "training loss (nats a token)",
        "validation loss (nats a token)",
        "validation accuracy (share)",
    ]
    one, two = figure.axes[0].lines
    assert one.get_xdata()[-1] == 29 and one.get_ydata()[0] == 9
    assert len(two.get_xdata()) == 0
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two"]
    with pytest.raises(ValueError, match="no measurements"):
        plots.draw_curves({"one": [json.loads('{"step": 1}')]})


# --- Files ---


def test_files(tmp_path):
    figure = FIGURES["head"]()
    assert figure._repr_png_().startswith(b"\x89PNG")  # what a notebook shows
    for name, start in (("a.png", b"\x89PNG"), ("a.SVG", b"<?xml")):
        assert plots.save(figure, tmp_path / name).read_bytes().startswith(start)
    with pytest.raises(UserError, match=r"a\.jpg: a picture's name ends in"):
        plots.save(figure, tmp_path / "a.jpg")
    with pytest.raises(UserError, match="No such file"):
        plots.save(figure, tmp_path / "none" / "a.png")
