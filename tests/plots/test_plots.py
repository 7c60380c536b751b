"""Pictures: their contents, in any script, on light and dark backgrounds."""

import io

import numpy as np
import pytest
from numpy.testing import assert_allclose

pytest.importorskip("matplotlib")

from PIL import Image

from tfxformer import plots, positional_encoding

TRAIN = [{"step": n, "split": "train", "loss": 9 / n} for n in range(1, 30)]
VALID = [{"step": 9, "split": "validation", "loss": 2.0, "masked_accuracy": 0.5}]
ODD = ["▁مرحبا", "שלום", "▁汉字", "😀", "$5", "$x^2$", r"\frac", ""]
POSITIONS = np.asarray(positional_encoding(30, 16))
VECTORS = np.array([[1, 0], [9, 1], [1, 1], [0, 2], [-1, 0]])


def weights(*shape):
    raw = np.random.default_rng(0).random(shape)
    return raw / raw.sum(-1, keepdims=True)


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def panels(figure):
    return [axes for axes in figure.axes if axes.images]


def numbers(axes):
    """The numbers that a panel shows."""
    if axes.images:
        return axes.images[0].get_array()
    if axes.lines:
        return axes.lines[0].get_ydata()
    if axes.yaxis_inverted():
        return [bar.get_width() for bar in axes.patches]
    return [bar.get_height() for bar in axes.patches if bar.get_height()]


FIGURES = {
    "head": lambda: plots.draw_attention([*"ab"], [*"xyz"], weights(2, 3)),
    "heads": lambda: plots.draw_attention([*"ab"], [*"xyz"], weights(2, 2, 2, 3)),
    "mask": lambda: plots.draw_mask([*"ab"], [*"ab"], np.tri(2)),
    "positions": lambda: plots.draw_positions(POSITIONS),
    "learned": lambda: plots.draw_positions(VECTORS / 9),
    "depths": lambda: plots.draw_positions(POSITIONS, "curves", (1, 5)),
    "similarity": lambda: plots.draw_positions(POSITIONS, "similarity"),
    "neighbours": lambda: plots.draw_neighbours(VECTORS, [*"abcde"], ["a", "d"], 2),
    "schedules": lambda: plots.draw_schedules({"a": lambda step: step / 9}, 10),
    "lengths": lambda: plots.draw_lengths({"a": [1, 1, 3], "b": [200]}),
    "curves": lambda: plots.draw_curves({"one": TRAIN, "two": VALID}),
}
UNIT = POSITIONS / np.linalg.norm(POSITIONS, axis=1, keepdims=True)
SHOWN = {  # in the first panel
    "head": weights(2, 3),
    "heads": weights(2, 2, 2, 3)[0, 0],
    "mask": np.tri(2),
    "positions": POSITIONS[:, ::2],  # the sines; the cosines are beside them
    "learned": VECTORS / 9,
    "depths": POSITIONS[:, 1],
    "similarity": UNIT @ UNIT.T,
    "neighbours": [9 / 82**0.5, 0.5**0.5],
    "schedules": np.arange(10) / 9,
    "lengths": [3, 1],
    "curves": [row["loss"] for row in TRAIN],
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", FIGURES)
def test_every_picture_is_true_and_within_its_edges_in_the_user_s_style(name):
    import matplotlib.style
    from matplotlib.colors import same_color

    with matplotlib.style.context("dark_background"):
        figure = FIGURES[name]()
    assert_allclose(numbers(figure.axes[0]), SHOWN[name], atol=1e-6)
    assert figure._repr_png_().startswith(b"\x89PNG")  # what a notebook shows
    page = figure.bbox.padded(3)
    for axes in figure.axes:
        box = axes.get_tightbbox()
        assert page.x0 <= box.x0 < box.x1 <= page.x1, axes
        assert page.y0 <= box.y0 < box.y1 <= page.y1, axes
        # Text has the colour of the dark style.
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
    # Queries are on the left, the first at the top; keys are below.
    assert labels(drawn[0].yaxis) == [*"abcd"] and labels(drawn[5].xaxis) == [*"vwxyz"]
    assert drawn[0].get_ylim()[0] > drawn[0].get_ylim()[1]


@pytest.mark.filterwarnings("ignore:Glyph")  # Matplotlib draws a box and says so
def test_tokens_of_any_script_are_drawn_where_there_is_room():
    tokens = ODD * 7
    (one,) = panels(plots.draw_attention(tokens, tokens, weights(56, 56)))
    assert labels(one.yaxis) == tokens and not one.texts
    many = plots.draw_attention(tokens, tokens, weights(1, 8, 56, 56))
    assert ODD[0] not in labels(panels(many)[0].yaxis)
    assert max(many.get_size_inches()) < 40


def test_heads_of_a_long_sentence_have_labels_that_a_page_shows_readably():
    tokens = [*"abcdefghijklmnopqrstuvwxy"]
    figure = plots.draw_attention(tokens, tokens, weights(2, 4, 25, 25))
    assert figure.get_size_inches()[0] < 10 and len(panels(figure)) == 8
    for axes in panels(figure):
        assert labels(axes.xaxis) == tokens
        assert axes.get_xticklabels()[0].get_fontsize() > 7.5


def test_decoding_writes_one_token_after_another():
    decoding = [*"ab"], [*"xy"], [[0.3, 0.7], [1, 0]], [0.9, 0.8]
    for step, shown, words, lines in (
        (0, 0.5, "a b", 2),
        (0, 1, "a b x 90%", 2),
        (1, 1, "a b x y 90% 80%", 1),
        (None, 1, "a b x y 90% 80%", 3),
    ):
        (axes,) = plots.draw_decoding(*decoding, step, shown).axes
        texts = [text.get_text() for text in axes.texts if text.get_visible()]
        assert " ".join(texts).strip() == words
        assert [patch.get_zorder() for patch in axes.patches].count(0) == lines
    image = Image.open(io.BytesIO(plots.gif(plots.decoding_frames(*decoding))))
    assert (image.format, image.n_frames) == ("GIF", 9)


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (1, 1, 1, 2, 2), (2,), (0, 2, 2)])
def test_tokens_must_be_as_many_as_the_weights(shape):
    with pytest.raises(ValueError, match="2 x 2 tokens"):
        plots.draw_attention([*"ab"], [*"xy"], np.ones(shape))


def test_files(tmp_path):
    for name, start in (("a.png", b"\x89PNG"), ("a.SVG", b"<?xml")):
        saved = plots.save(FIGURES["head"](), tmp_path / name)
        assert saved.read_bytes().startswith(start)
