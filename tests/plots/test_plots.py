"""Pictures: their contents, in any script, on light and dark backgrounds."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

pytest.importorskip("matplotlib")

from tfxformer import plots, positional_encoding

TRAIN = [{"step": n, "split": "train", "loss": 9 / n} for n in range(1, 30)]
VALID = [{"step": 9, "split": "validation", "loss": 2.0, "masked_accuracy": 0.5}]
ODD = ["▁مرحبا", "שלום", "▁汉字", "😀", "$5", "$x^2$", r"\frac", ""]
POSITIONS = np.asarray(positional_encoding(30, 16))


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


UNIT = POSITIONS / np.linalg.norm(POSITIONS, axis=1, keepdims=True)
HEADS = weights(2, 2, 2, 3)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("draw", "shown"),  # what the first panel shows
    [
        (lambda: plots.draw_attention([*"ab"], [*"xyz"], HEADS[0, 0]), HEADS[0, 0]),
        (lambda: plots.draw_attention([*"ab"], [*"xyz"], HEADS), HEADS[0, 0]),
        (lambda: plots.draw_mask([*"ab"], [*"ab"], np.tri(2)), np.tri(2)),
        # The sines; the cosines are beside them.
        (lambda: plots.draw_positions(POSITIONS), POSITIONS[:, ::2]),
        (lambda: plots.draw_positions(POSITIONS, "curves", (1, 5)), POSITIONS[:, 1]),
        (lambda: plots.draw_positions(POSITIONS, "similarity"), UNIT @ UNIT.T),
        (lambda: plots.draw_tensors({"x": HEADS[0, 0]}, [*"ab"]), HEADS[0, 0]),
        (
            lambda: plots.draw_schedules({"a": lambda step: step / 9}, 10),
            np.arange(10) / 9,
        ),
        (lambda: plots.draw_lengths({"a": [1, 1, 3], "b": [200]}), [3, 1]),
        (
            lambda: plots.draw_curves({"one": TRAIN, "two": VALID}),
            [row["loss"] for row in TRAIN],
        ),
    ],
)
def test_each_plot_shows_its_data_fits_its_page_and_follows_the_user_s_style(
    draw, shown
):
    import matplotlib.style
    from matplotlib.colors import same_color

    with matplotlib.style.context("dark_background"):
        figure = draw()
    assert_allclose(numbers(figure.axes[0]), shown, atol=1e-6)
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


def test_draw_tensors_centres_the_scale_of_each_matrix_on_zero():
    tensors = {"first": [[3, -3], [3, 3]], "second": [[0.2, 0.2, 0.2]] * 2}
    figure = plots.draw_tensors(tensors, [*"ab"])
    first, second, *scales = figure.axes
    assert first.images[0].get_clim() == scales[0].get_xlim() == (-3, 3)
    assert second.images[0].get_clim() == scales[1].get_xlim() == (-0.2, 0.2)
    assert second.get_title() == "second\n2 × 3"
    assert labels(first.yaxis) == [*"ab"] and not labels(second.yaxis)
    figure = plots.draw_tensors(tensors, [*"ab"], columns=2, shared=True)
    assert [axes.images[0].get_clim() for axes in figure.axes[:2]] == [(-3, 3)] * 2
    assert figure.axes[1].images[0].get_array().shape == (2, 2)
    assert figure.axes[1].get_title() == "second\n2 × 3"
    with pytest.raises(ValueError, match="3 tokens, first has shape"):
        plots.draw_tensors(tensors, [*"abc"])


def test_draw_attention_gives_each_head_a_panel_on_one_colour_scale():
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
def test_draw_attention_labels_tokens_of_any_script_where_they_fit():
    tokens = ODD * 7
    (one,) = panels(plots.draw_attention(tokens, tokens, weights(56, 56)))
    assert labels(one.yaxis) == tokens and not one.texts
    many = plots.draw_attention(ODD * 40, ODD * 40, weights(1, 4, 320, 320))
    assert ODD[0] not in labels(panels(many)[0].yaxis)
    assert max(many.get_size_inches()) < 200


def test_draw_attention_keeps_the_labels_of_a_long_sentence_readable():
    tokens = [*"abcdefghijklmnopqrstuvwxy"]
    figure = plots.draw_attention(tokens, tokens, weights(2, 4, 25, 25))
    assert figure.get_size_inches()[0] < 10 and len(panels(figure)) == 8
    for axes in panels(figure):
        assert labels(axes.xaxis) == tokens
        assert axes.get_xticklabels()[0].get_fontsize() > 7.5


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (1, 1, 1, 2, 2), (2,), (0, 2, 2)])
def test_tokens_must_be_as_many_as_the_weights(shape):
    with pytest.raises(ValueError, match="2 x 2 tokens"):
        plots.draw_attention([*"ab"], [*"xy"], np.ones(shape))
