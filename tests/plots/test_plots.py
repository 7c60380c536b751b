"""Pictures: what they show, in any script and with either background."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

pytest.importorskip("matplotlib")

from tfxformer import plots, positional_encoding
from tfxformer.errors import UserError
from tfxformer.plots import png

TRAIN = [{"step": n, "split": "train", "loss": 9 / n} for n in range(1, 30)]
VALID = [{"step": 9, "split": "validation", "loss": 2.0, "masked_accuracy": 0.5}]
ODD = ["▁مرحبا", "שלום", "▁汉字", "😀", "$5", "$x^2$", r"\frac", "x" * 100, ""]


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
    "layers": lambda: plots.draw_attention([*"ab"], [*"xyz"], weights(2, 2, 2, 3)),
    "mask": lambda: plots.draw_mask([*"ab"], [*"ab"], np.tri(2)),
    "positions": lambda: plots.draw_positions(weights(4, 6)),
    "curves of positions": lambda: plots.draw_positions(
        weights(4, 6), "curves", (0, 5)
    ),
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


def test_each_head_has_a_panel_on_one_scale():
    given = weights(2, 3, 4, 5)
    drawn = panels(plots.draw_attention([*"abcd"], [*"vwxyz"], given, "title"))
    for axes, head in zip(drawn, given.reshape(6, 4, 5), strict=True):
        assert_allclose(axes.images[0].get_array(), head, rtol=1e-6)
        assert (axes.images[0].norm.vmin, axes.images[0].norm.vmax) == (0, 1)
    assert drawn[3].get_title() == "layer 2, head 1"
    # Tokens are at the left and below, the first query at the top.
    assert labels(drawn[0].yaxis) == [*"abcd"] and labels(drawn[5].xaxis) == [*"vwxyz"]
    assert drawn[0].get_ylim()[0] > drawn[0].get_ylim()[1]
    shares = [[0.126, 0.874], [0.5, 0.5], [1, 0]]
    (one,) = panels(plots.draw_attention([*"abc"], [*"xy"], shares))
    assert texts(one) == ["13", "87", "50", "50", "100", "0"]


def test_a_long_sentence_has_tokens_in_one_panel_and_numbers_in_many():
    tokens = [f"▁token{number}" for number in range(60)]
    (one,) = panels(plots.draw_attention(tokens, tokens, weights(60, 60)))
    assert labels(one.yaxis) == tokens and not texts(one)
    many = plots.draw_attention(tokens, tokens, weights(1, 8, 60, 60))
    assert "▁token1" not in labels(panels(many)[0].yaxis)
    assert max(many.get_size_inches()) < 40


@pytest.mark.filterwarnings("ignore:Glyph")  # Matplotlib draws a box and says so
def test_any_token_is_drawn_and_a_long_one_is_cut():
    figure = plots.draw_attention(ODD, ODD, weights(len(ODD), len(ODD)))
    assert labels(panels(figure)[0].yaxis) == [*ODD[:-2], "x" * 20 + "…", ""]


def test_a_mask_says_what_is_added_to_the_scores():
    figure = plots.draw_mask([*"abc"], [*"abc"], np.tri(3, dtype=bool))
    assert texts(figure.axes[0]) == ["0", "−∞", "−∞", "0", "0", "−∞", "0", "0", "0"]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["may be read", "is hidden"]


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (1, 1, 1, 2, 2), (2,), (0, 2, 2)])
def test_tokens_must_be_as_many_as_the_weights(shape):
    with pytest.raises(ValueError, match="2 x 2 tokens"):
        plots.draw_attention([*"ab"], [*"xy"], np.ones(shape))


def test_positions_are_shown_as_they_are():
    encoding = np.asarray(positional_encoding(30, 16))
    (heat,) = panels(plots.draw_positions(encoding))
    assert_allclose(heat.images[0].get_array(), encoding)
    curves = plots.draw_positions(encoding, "curves", (0, 15)).axes
    for axes, depth in zip(curves, (0, 15), strict=True):
        assert_allclose(axes.lines[0].get_ydata(), encoding[:, depth])
    (alike,) = panels(plots.draw_positions(encoding, "similarity"))
    norms = np.linalg.norm(encoding, axis=1)
    expected = encoding @ encoding.T / np.outer(norms, norms)
    assert_allclose(alike.images[0].get_array(), expected, atol=1e-6)


def test_neighbours_are_the_nearest_directions():
    vectors = [[1, 0], [9, 1], [1, 1], [0, 2], [-1, 0]]
    figure = plots.draw_neighbours(vectors, [*"abcde"], ["a", "d"], neighbours=2)
    first, second = figure.axes
    assert (first.get_title(), labels(first.yaxis)) == ("a", ["b", "c"])
    assert (second.get_title(), labels(second.yaxis)) == ("d", ["c", "b"])
    widths = [bar.get_width() for bar in first.patches]
    assert_allclose(widths, [9 / 82**0.5, 0.5**0.5])


def test_lengths_are_counted():
    (axes,) = plots.draw_lengths({"source": [1, 1, 3], "target": [200]}).axes
    assert sum(bar.get_height() for bar in axes.patches) == 4
    with pytest.raises(ValueError, match="no sentences"):
        plots.draw_lengths({"source": []})


def test_curves_have_a_panel_for_what_was_measured():
    odd = [{"step": 30, "split": "train", "loss": bad} for bad in (None, np.nan, "x")]
    figure = plots.draw_curves({"one": TRAIN + odd, "two": VALID})
    one, two = figure.axes[0].lines
    assert [*one.get_xdata()] == [row["step"] for row in TRAIN]
    assert [*one.get_ydata()] == [row["loss"] for row in TRAIN]
    assert len(two.get_xdata()) == 0 and len(figure.axes) == 3
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two"]


def test_files(tmp_path):
    figure = FIGURES["head"]()
    assert figure._repr_png_().startswith(b"\x89PNG")  # what a notebook shows
    for name, start in (("a.png", b"\x89PNG"), ("a.SVG", b"<?xml")):
        assert plots.save(figure, tmp_path / name).read_bytes().startswith(start)
    with pytest.raises(UserError, match=r"a\.jpg: a picture's name ends in"):
        plots.save(figure, tmp_path / "a.jpg")
