"""Pictures: what they show, in any script and both themes, without a warning."""

import functools
import io
import logging
import math
import subprocess
import sys
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from tfxformer import plots, plots_attention, plots_canvas
from tfxformer.errors import UserError
from tfxformer.plots import draw_attention, png


def weights(layers, heads, target, source, seed=0):
    raw = np.random.default_rng(seed).random((layers, heads, target, source))
    return (raw / raw.sum(-1, keepdims=True)).astype("float32")


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def panels(figure):
    """The axes with a picture: the mean, then each head."""
    return [axes for axes in figure.axes if axes.images]


def test_the_mean_and_every_head_of_the_last_layer():
    given = weights(3, 4, 5, 6)
    source, target = [*"abcdef"], [*"vwxyz"]
    mean, *heads = panels(draw_attention(source, target, given))
    shown = np.asarray(mean.images[0].get_array())
    np.testing.assert_allclose(shown, given[-1].mean(axis=0), rtol=1e-6)
    assert len(heads) == 4
    for number, axes in enumerate(heads):
        np.testing.assert_array_equal(axes.images[0].get_array(), given[-1, number])
        assert axes.get_title() == f"head {number + 1}"
        # One scale for all, or their colours could not be compared.
        assert axes.images[0].norm.vmin == 0 and axes.images[0].norm.vmax == 1
    assert (mean.get_xlabel(), mean.get_ylabel()) == ("source", "target")
    assert (labels(mean.xaxis), labels(mean.yaxis)) == (source, target)
    # The first target piece is at the top, as one reads.
    bottom, top = mean.get_ylim()
    assert bottom > top


def lightness(colours):
    """From 0, black, to 1, white (relative luminance, WCAG 2)."""
    colours = np.asarray(colours)[..., :3]
    linear = np.where(
        colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4
    )
    return linear @ (0.2126, 0.7152, 0.0722)


@pytest.mark.parametrize(("dark", "sign"), [(False, -1), (True, 1)])
def test_lightness_alone_tells_shares_apart(dark, sign):
    """For any kind of colour-blindness, and on paper: none is like the background."""
    figure = draw_attention(["a"], ["b"], weights(1, 1, 1, 1), dark=dark)
    image = panels(figure)[0].images[0]
    light = lightness(image.cmap(image.norm(np.linspace(0, 1, 50))))
    assert (sign * np.diff(light) > 0).all() and abs(light[0] - light[-1]) > 0.7
    assert abs(light[0] - lightness(figure.get_facecolor())) < 0.05


@pytest.mark.parametrize(
    ("heads", "target", "source"),
    [(1, 1, 1), (1, 2, 3), (2, 60, 4), (8, 7, 90), (16, 12, 12), (7, 3, 3)],
)
def test_every_size_is_a_picture_without_overlap(heads, target, source):
    from matplotlib.image import imread

    figure = draw_attention(
        ["▁s"] * source, ["▁t"] * target, weights(2, heads, target, source)
    )
    image = imread(io.BytesIO(png(figure)))
    assert max(image.shape) < 4000
    boxes = [axes.get_position() for axes in figure.axes]
    for number, box in enumerate(boxes):
        assert box.width > 0 and box.height > 0
        for other in boxes[:number]:
            assert (
                box.x0 >= other.x1
                or other.x0 >= box.x1
                or box.y0 >= other.y1
                or other.y0 >= box.y1
            )


def test_many_pieces_are_cut_and_that_is_said():
    source = [f"▁s{number}" for number in range(200)]
    figure = draw_attention(source, ["a", "b"], weights(1, 2, 2, 200))
    mean, *_ = panels(figure)
    assert labels(mean.xaxis) == source[: plots_attention.MOST_PIECES]
    assert "the first 128 pieces" in figure.texts[0].get_text()
    assert (
        "pieces"
        not in draw_attention(["a"], ["b"], weights(1, 1, 1, 1)).texts[0].get_text()
    )


def test_pieces_must_be_as_many_as_the_weights():
    with pytest.raises(ValueError, match="3 x 2 pieces"):
        draw_attention([*"abc"], [*"de"], weights(1, 1, 3, 2))


ODD = [
    *["▁مرحبا", "שלום", "▁汉字", "日本語", "हिन्दी", "한국어", "ไทย", "😀", "🦄", "🇵🇹"],
    *["$5", "$x^2$", r"\frac", "a\tb", "\n", "\u200d", "♥\ufe0f", "é", "é", ""],
    *["<0xE6>", "</s>", "\x00", "\U0010ffff", "x" * 100],
]


def test_any_script_gives_no_warning(caplog, capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)  # not for users
        figure = draw_attention(ODD, ODD[:5], weights(1, 2, 5, len(ODD)))
        assert png(figure).startswith(b"\x89PNG")
    assert not caplog.records and capfd.readouterr() == ("", "")
    shown = dict(zip(ODD, labels(panels(figure)[0].xaxis), strict=True))
    for same in ("▁مرحبا", "שלום", "$5", "$x^2$", r"\frac", "é", "é", "<0xE6>"):
        assert shown[same] == same
    assert shown["a\tb"] == "a\\u0009b" and shown["\n"] == "\\u000a"
    assert shown["\u200d"] == "" and shown["♥\ufe0f"].rstrip("\ufe0f") == "♥"
    assert shown["x" * 100] == "x" * 20 + "…"


def test_a_character_of_no_font_is_its_number(monkeypatch):
    monkeypatch.setattr(plots_canvas, "_families", lambda text: ("DejaVu Sans",))
    figure = draw_attention(["▁汉"], ["🦄"], weights(1, 1, 1, 1))
    mean = panels(figure)[0]
    assert labels(mean.xaxis) == ["▁\\u6c49"] and labels(mean.yaxis) == ["\\u1f984"]


def test_another_font_is_found_for_what_the_first_lacks():
    # U+2312 is in DejaVu Sans Mono and U+1D84 in STIX alone, which Matplotlib brings.
    first, *others = plots_canvas._families(frozenset("a\u2312\u1d84"))
    assert first == "DejaVu Sans" and others
    assert {0x2312, 0x1D84} <= plots_canvas._characters((first, *others))
    assert not {0x2312, 0x1D84} & plots_canvas._characters((first,))
    assert plots_canvas._families(frozenset("aé")) == ("DejaVu Sans",)
    mean = panels(draw_attention(["\u2312"], ["\u1d84"], weights(1, 1, 1, 1)))[0]
    assert labels(mean.xaxis) == ["\u2312"] and labels(mean.yaxis) == ["\u1d84"]


def test_matplotlib_s_log_is_as_it_was():
    log = logging.getLogger("matplotlib")
    before = log.level
    png(draw_attention(["a"], ["b"], weights(1, 1, 1, 1)))
    assert log.level == before


def test_no_screen_no_words_where_nothing_is_set_up(tmp_path):
    """A first start, which builds the cache of fonts, on a server."""
    code = """
import sys
import numpy as np
from tfxformer.plots import draw_attention, png
png(draw_attention(["a"], ["b"], np.ones((1, 1, 1, 1))))
assert "matplotlib.pyplot" not in sys.modules and "tensorflow" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"MPLCONFIGDIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


# --- One head, all heads, all layers ---


def texts(axes):
    return [text.get_text() for text in axes.texts]


def spelled(figure):
    return [text.get_text() for text in figure.texts]


def test_one_head_says_its_percents():
    shares = [[0.126, 0.874], [0.5, 0.5], [1, 0]]
    figure = plots.draw_head([*"abc"], [*"xy"], shares, title="layer 1, head 2")
    (axes,) = panels(figure)
    np.testing.assert_allclose(axes.images[0].get_array(), shares)
    assert texts(axes) == ["13", "87", "50", "50", "100", "0"]
    assert (labels(axes.xaxis), labels(axes.yaxis)) == ([*"xy"], [*"abc"])
    assert {"layer 1, head 2", *NAMED} <= {*spelled(figure)}


NAMED = ["token that is read (key)", "token that reads (query)"]


@pytest.mark.parametrize("dark", [False, True])
def test_percents_can_be_read_on_their_cells(dark):
    shares = np.linspace(0, 1, 12)[None]
    axes = panels(plots.draw_head(["a"], ["b"] * 12, shares, dark=dark))[0]
    from matplotlib.colors import to_rgba

    image = axes.images[0]
    cells = lightness(image.cmap(image.norm(image.get_array())))[0]
    letters = lightness([to_rgba(text.get_color()) for text in axes.texts])
    assert len(letters) == 12
    least, most = np.sort([cells, letters], axis=0)
    assert ((most + 0.05) / (least + 0.05) > 4.2).all()


def test_all_heads_of_a_layer():
    given = weights(1, 6, 3, 4)[0]
    drawn = panels(plots.draw_heads([*"abc"], [*"wxyz"], given))
    assert [axes.get_title() for axes in drawn] == [f"head {n}" for n in range(1, 7)]
    for axes, head in zip(drawn, given, strict=True):
        np.testing.assert_allclose(axes.images[0].get_array(), head)
    # Queries are named at the left, keys below: of a column too that ends higher.
    assert [labels(axes.yaxis) for axes in drawn] == [
        *[[*"abc"], [], [], []],
        *[[*"abc"], []],
    ]
    assert [bool(labels(axes.xaxis)) for axes in drawn] == [False, False, *[True] * 4]


def test_all_layers_are_a_grid():
    given = weights(3, 2, 4, 4)
    drawn = panels(plots.draw_layers([*"abcd"], [*"abcd"], given))
    titles = [axes.get_title() for axes in drawn]
    assert titles[:3] == ["layer 1, head 1", "layer 1, head 2", "layer 2, head 1"]
    for axes, head in zip(drawn, given.reshape(6, 4, 4), strict=True):
        np.testing.assert_allclose(axes.images[0].get_array(), head)
    places = np.array([axes.get_position().p0 for axes in drawn]).reshape(3, 2, 2)
    assert (np.diff(places[..., 0], axis=1) > 0).all()  # heads from left to right
    assert (np.diff(places[..., 1], axis=0) < 0).all()  # layers from top to bottom


def test_tokens_of_a_long_sentence_are_listed_by_number():
    tokens = [f"▁t{number}" for number in range(40)]
    others = [f"▁u{number}" for number in range(20)]
    figure = plots.draw_heads(tokens, others, weights(1, 2, 40, 20)[0])
    listed = spelled(figure)
    assert {*tokens, *others, "39", "The keys by number:"} <= {*listed}
    assert panels(figure)[0].get_yticks().tolist() == [0, 10, 20, 30]
    same = spelled(plots.draw_layers(tokens, tokens, weights(1, 2, 40, 40)))
    assert same.count("▁t7") == 1 and "The tokens by number:" in same
    # One head has room for all.
    (axes,) = panels(plots.draw_head(tokens, others, weights(1, 1, 40, 20)[0, 0]))
    assert labels(axes.yaxis) == tokens and not texts(axes)


@pytest.mark.parametrize(
    ("layers", "heads", "queries", "keys"),
    [(1, 1, 1, 1), (2, 3, 1, 60), (2, 8, 16, 5), (2, 5, 40, 40), (1, 3, 150, 3)],
)
def test_every_grid_is_a_picture_without_overlap(layers, heads, queries, keys):
    given = weights(layers, heads, queries, keys)
    arguments = ["▁q"] * queries, ["▁k"] * keys
    for figure in (
        plots.draw_layers(*arguments, given, title="t"),
        plots.draw_heads(*arguments, given[0], title="t"),
        plots.draw_head(*arguments, given[0, 0], title="t"),
    ):
        figure.draw_without_rendering()
        page = figure.bbox
        drawn = [axes.get_tightbbox() for axes in figure.axes]
        drawn += [text.get_window_extent() for text in figure.texts]
        for number, box in enumerate(drawn):
            assert page.x0 <= box.x0 < box.x1 <= page.x1
            assert page.y0 <= box.y0 < box.y1 <= page.y1
            for other in drawn[:number]:
                wide = min(box.x1, other.x1) - max(box.x0, other.x0)
                high = min(box.y1, other.y1) - max(box.y0, other.y0)
                assert wide < 2 or high < 2, (box, other)
        assert max(page.width, page.height) < 4000


def test_the_first_tokens_alone_are_drawn_of_many():
    figure = plots.draw_head(["q"] * 3, ["k"] * 200, weights(1, 1, 3, 200)[0, 0], "a")
    assert "a (the first 128 tokens)" in spelled(figure)
    assert panels(figure)[0].images[0].get_array().shape == (3, 128)


@pytest.mark.parametrize(
    ("draw", "shape"),
    [
        (plots.draw_head, (3, 2)),
        (plots.draw_heads, (1, 3, 2)),
        (plots.draw_layers, (1, 1, 3, 2)),
        (plots.draw_mask, (3, 2)),
    ],
)
def test_tokens_must_be_as_many_as_the_weights(draw, shape):
    array = np.ones(shape)
    draw([*"abc"], [*"de"], array)
    for queries, keys, wrong in [
        ("ab", "de", array),
        ("abc", "d", array),
        ("abc", "de", array[None]),
        ("abc", "de", array[0]),
    ]:
        with pytest.raises(ValueError, match="pieces, weights"):
            draw([*queries], [*keys], wrong)
    with pytest.raises(ValueError, match="nothing to draw"):
        draw([], [*"de"], np.ones((*shape[:-2], 0, 2)))


# --- Masks ---


def test_a_mask_says_what_is_added_to_the_scores():
    figure = plots.draw_mask([*"abc"], [*"abc"], np.tri(3, dtype=bool), title="m")
    (axes,) = panels(figure)
    assert texts(axes) == ["0", "−∞", "−∞", "0", "0", "−∞", "0", "0", "0"]
    assert axes.images[0].get_array().astype(int).tolist() == np.tri(3).tolist()
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["may be read", "is hidden"]
    may, may_not = [
        lightness(patch.get_facecolor()) for patch in axes.get_legend().get_patches()
    ]
    assert abs(may - may_not) > 0.7
    assert [axes.get_xlabel(), axes.get_ylabel()] == NAMED


# --- Positions ---


def encoding(length, depth):
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, depth, 2) / depth)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, depth)


@pytest.mark.parametrize("dark", [False, True])
def test_positions_as_a_heat_map(dark):
    given = encoding(50, 64)
    (axes,) = panels(plots.draw_positions(given, dark=dark))
    np.testing.assert_array_equal(axes.images[0].get_array(), given)
    assert "position" in axes.get_ylabel() and "depth" in axes.get_xlabel()
    light = lightness(axes.images[0].cmap(np.linspace(0, 1, 50)))
    assert (np.diff(light) > 0).all()


def test_curves_of_single_depths():
    given = encoding(30, 512)
    figure = plots.draw_position_curves(given)
    assert [axes.get_ylabel() for axes in figure.axes] == [
        *["depth 1", "depth 5", "depth 15", "depth 20"]
    ]
    for axes, depth in zip(figure.axes, (1, 5, 15, 20), strict=True):
        np.testing.assert_array_equal(axes.lines[0].get_ydata(), given[:, depth])
    looks = {
        (line.get_color(), line.get_linestyle(), line.get_marker())
        for axes in figure.axes
        for line in axes.lines
    }
    assert len(looks) == 4
    for wrong in ((), (512,), (1, -1)):
        with pytest.raises(ValueError, match="there are 0 to 511"):
            plots.draw_position_curves(given, wrong)


def test_similarity_of_positions_is_the_cosine():
    given = np.array([[3.0, 0], [1, 1], [0, 0]])
    (axes,) = panels(plots.draw_position_similarity(given))
    expected = [[1, 0.5**0.5, 0], [0.5**0.5, 1, 0], [0, 0, 0]]
    np.testing.assert_allclose(axes.images[0].get_array(), expected)


@pytest.mark.parametrize("wrong", [np.ones(3), np.ones((2, 0)), np.ones((1, 2, 3))])
def test_an_encoding_has_rows_and_columns(wrong):
    for draw in (
        plots.draw_positions,
        plots.draw_position_curves,
        plots.draw_position_similarity,
    ):
        with pytest.raises(ValueError, match=r"encoding\.shape="):
            draw(wrong)


# --- Lines ---


def test_lines_differ_in_more_than_colour():
    for theme in (plots_canvas.LIGHT, plots_canvas.DARK):
        looks = [plots_canvas.line(theme, number) for number in range(36)]
        for trait in ("color", "linestyle", "marker"):
            assert len({str(look[trait]) for look in looks[:6]}) == 6
        alike = {tuple(map(str, look.values())) for look in looks}
        assert len(alike) == 36


OKABE_ITO = ["E69F00", "56B4E9", "009E73", "F0E442", "0072B2", "D55E00", "CC79A7"]


@pytest.mark.parametrize("theme", [plots_canvas.LIGHT, plots_canvas.DARK])
def test_colours_stand_out_from_the_paper(theme):
    from matplotlib.colors import to_rgb

    assert {colour[1:] for colour in theme.lines} <= {*OKABE_ITO}
    paper = lightness(to_rgb(theme.paper))

    def contrast(colour):
        light = lightness(to_rgb(colour))
        return (max(light, paper) + 0.05) / (min(light, paper) + 0.05)

    assert contrast(theme.ink) > 12
    assert all(contrast(colour) > 3 for colour in theme.lines[:3])
    assert all(contrast(colour) > 2 for colour in theme.lines)


def test_schedules_over_steps():
    figure = plots.draw_schedules(
        {"rise": lambda step: step / 100, "$flat 猫": lambda step: 0.5}, 100
    )
    (axes,) = figure.axes
    rise, flat = axes.lines
    assert rise.get_xdata().min() == 0 and rise.get_xdata().max() == 99
    np.testing.assert_allclose(rise.get_ydata(), rise.get_xdata() / 100)
    assert {*flat.get_ydata()} == {0.5}
    assert axes.get_legend().get_texts()[1].get_text().startswith("$flat")
    assert axes.get_ylim()[0] == 0
    assert png(plots.draw_schedules({"a": float}, 1))
    for schedules, steps in (({}, 5), ({"a": float}, 0)):
        with pytest.raises(ValueError, match="schedules of"):
            plots.draw_schedules(schedules, steps)


def test_lengths_are_counted():
    (axes,) = plots.draw_lengths({"a": [1, 2, 2, 4], "b": [7]}, unit="words").axes
    first, second = axes.lines
    assert first.get_ydata().tolist() == [0, 1, 2, 0, 1, 0, 0, 0]
    assert second.get_ydata().tolist() == [0] * 7 + [1]
    assert first.get_xdata().tolist() == [*range(8)]
    assert axes.get_xlabel() == "length (words)"
    many = {"a": [*range(1000)]}
    (axes,) = plots.draw_lengths(many).axes
    assert axes.get_xlabel() == "length (tokens, 20 a step)"
    assert sum(axes.lines[0].get_ydata()) == 1000
    for nothing in ({}, {"a": [1], "b": []}):
        with pytest.raises(ValueError, match="no sentences"):
            plots.draw_lengths(nothing)


def rows(split, **values):
    return [
        {"step": 10 * step, "split": split, **dict(zip(values, row, strict=True))}
        for step, row in enumerate(zip(*values.values(), strict=True), 1)
    ]


def test_a_panel_for_each_thing_that_was_measured():
    runs = {
        "one": rows("train", loss=[3, 2, 1])
        + rows("validation", loss=[2, 1], bleu=[5, 9]),
        "two": rows("train", loss=[4, math.nan, 2]),
    }
    figure = plots.draw_curves(runs)
    loss, valid, bleu = figure.axes
    assert [axes.get_ylabel().split(" (")[0] for axes in figure.axes] == [
        *["training loss", "validation loss", "validation BLEU"]
    ]
    assert [line.get_label() for line in loss.lines] == ["one", "two"]
    assert loss.lines[1].get_xydata().tolist() == [[10, 4], [30, 2]]
    assert valid.lines[0].get_ydata().tolist() == [2, 1]
    assert bleu.lines[0].get_ydata().tolist() == [5, 9]
    # A run that did not measure it keeps its look for the others.
    assert loss.lines[0].get_color() == valid.lines[0].get_color()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["one", "two"]
    with pytest.raises(ValueError, match="no measurements"):
        plots.draw_curves({"one": [{"step": 1, "split": "train", "loss": "?"}]})


def test_bleu_by_length_of_systems_with_other_buckets():
    scores = {
        "a": [(5, 40.0, 3), (math.inf, 20.0, 2)],
        "b": [(10, 30.0, 1234), (math.inf, 10.0, 2)],
    }
    (axes,) = plots.draw_bleu_by_length(scores).axes
    assert labels(axes.xaxis) == ["1–5\n(3)", "6–10\n(1,234)", "11 or more\n(2)"]
    assert axes.lines[0].get_xydata().tolist() == [[0, 40], [2, 20]]
    assert axes.lines[1].get_xydata().tolist() == [[1, 30], [2, 10]]
    for nothing in ({}, {"a": []}):
        with pytest.raises(ValueError, match="no scores"):
            plots.draw_bleu_by_length(nothing)


# --- Neighbours ---


def test_neighbours_are_the_nearest_directions():
    vectors = np.array([[1, 0.1], [100, 5], [0.9, 0.4], [0, 1], [-1, 0]])
    pieces = ["▁cat", "▁dog", "猫", "▁$2", "not"]
    figure = plots.draw_neighbours(vectors, pieces, ["▁cat", "▁$2"], neighbours=2)
    plane, cat, two = figure.axes
    assert cat.get_title() == "▁cat" and two.get_title() == "▁$2"
    assert labels(cat.yaxis)[0] == "▁dog" and len(labels(cat.yaxis)) == 2
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(
        [bar.get_width() for bar in cat.patches], [unit[0] @ unit[1], unit[0] @ unit[2]]
    )
    # Each piece stands once on the plane, at a marker of its group.
    assert sorted(texts(plane))[-1] != "not"
    assert len(texts(plane)) == len({*texts(plane)}) == 4
    assert sum(len(line.get_xdata()) for line in plane.lines) == 4
    assert len({line.get_marker() for line in plane.lines}) == 2


def test_the_plane_is_that_of_the_principal_components():
    from tfxformer.plots_model import _plane

    rng = np.random.default_rng(0)
    flat = (
        rng.normal(size=(20, 2)) * (5, 1) @ np.linalg.qr(rng.normal(size=(6, 2)))[0].T
    )
    points, shares = _plane(flat)
    between = np.linalg.norm(points[:, None] - points, axis=-1)
    np.testing.assert_allclose(
        between, np.linalg.norm(flat[:, None] - flat, axis=-1), atol=1e-9
    )
    assert shares[0] > shares[1] and shares.sum() == pytest.approx(1)
    points, shares = _plane(np.ones((1, 4)))
    assert points.tolist() == [[0, 0]] and shares.tolist() == [0, 0]


def test_pieces_do_not_hide_one_another():
    rng = np.random.default_rng(1)
    pieces = [f"▁piece{number}" for number in range(60)]
    chosen = pieces[:4]
    figure = plots.draw_neighbours(rng.normal(size=(60, 8)), pieces, chosen, 7)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) > 20
    for number, box in enumerate(boxes):
        for other in boxes[:number]:
            wide = min(box.x1, other.x1) - max(box.x0, other.x0)
            high = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert wide < 4 or high < 4


def test_neighbours_of_what_is_not_there():
    vectors = np.eye(3)
    for pieces, chosen, message in [
        ([*"abc"], ["d"], "'d': there is no such piece"),
        ([*"abc"], [], "no piece is chosen"),
        ([*"ab"], ["a"], "3 embeddings of 2 pieces"),
    ]:
        with pytest.raises(ValueError, match=message):
            plots.draw_neighbours(vectors, pieces, chosen)


# --- Themes, notebooks and files ---


SOME = [*ODD[:12:3], *ODD[12:18], ODD[-1]]


@functools.cache
def every_picture(dark):
    return [*_every_picture(SOME, SOME[:3], dark)]


def _every_picture(odd, few, dark):
    shares = weights(2, 2, 3, len(odd))
    yield draw_attention(odd, few, shares, dark=dark)
    yield plots.draw_head(few, odd, shares[0, 0], "$x 猫", dark=dark)
    yield plots.draw_heads(few, odd, shares[0], "مرحبا", dark=dark)
    yield plots.draw_layers(few, odd, shares, dark=dark)
    yield plots.draw_mask(few, odd, shares[0, 0] > 0.05, dark=dark)
    yield plots.draw_positions(encoding(9, 8), dark=dark)
    yield plots.draw_position_curves(encoding(9, 32), dark=dark)
    yield plots.draw_position_similarity(encoding(9, 8), dark=dark)
    yield plots.draw_neighbours(encoding(len(odd), 8), odd, [odd[3]], dark=dark)
    names = dict.fromkeys(["$a_$", "مرحبا", "汉字"])
    yield plots.draw_schedules({name: lambda _: 0.1 for name in names}, 9, dark=dark)
    yield plots.draw_lengths({name: [3, 4] for name in names}, dark=dark)
    curves = {name: rows("train", loss=[2, 1]) for name in names}
    yield plots.draw_curves(curves, dark=dark)
    yield plots.draw_bleu_by_length({n: [(5, 30.0, 2)] for n in names}, dark=dark)


@pytest.mark.parametrize("dark", [False, True])
def test_every_picture_in_both_themes_and_any_script(dark, caplog, capfd):
    from matplotlib.colors import to_rgb

    theme = plots_canvas.DARK if dark else plots_canvas.LIGHT
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)  # not for users
        for figure in every_picture(dark):
            file = figure._repr_png_()  # as a notebook asks
            assert file.startswith(b"\x89PNG")
            from matplotlib.image import imread

            pixels = imread(io.BytesIO(file))[..., :3]
            paper = to_rgb(theme.paper)
            for corner in pixels[[0, 0, -1, -1], [0, -1, 0, -1]]:
                np.testing.assert_allclose(corner, paper, atol=0.01)
            for axes in figure.axes:
                for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
                    assert not text.get_text() or text.get_color() == theme.ink
    assert not caplog.records and capfd.readouterr() == ("", "")


def test_axes_say_what_they_measure():
    for figure in every_picture(False):
        named = [
            axes for axes in figure.axes if axes.get_xlabel() and axes.get_ylabel()
        ]
        assert named or {*NAMED} <= {*spelled(figure)} or len(figure.axes) == 4


def test_a_picture_s_size_is_what_is_on_it():
    """Whoever saves it without ``bbox_inches="tight"`` gets all of it, too."""
    figure = plots.draw_head([*"abc"], [*"de"], weights(1, 1, 3, 2)[0, 0], "title")
    wide, high = figure.get_size_inches()
    box = figure.get_tightbbox()
    assert 0 <= box.x0 < box.x1 <= wide and 0 <= box.y0 < box.y1 <= high
    assert wide - box.width < 0.4 and high - box.height < 0.4


def test_files_are_of_the_kind_that_their_names_say(tmp_path):
    figure = plots.draw_mask([*"ab"], [*"ab"], np.tri(2, dtype=bool))
    assert plots.save(figure, tmp_path / "a.PNG") == tmp_path / "a.PNG"
    assert (tmp_path / "a.PNG").read_bytes() == png(figure)
    plots.save(figure, str(tmp_path / "a.svg"))
    root = ElementTree.fromstring((tmp_path / "a.svg").read_bytes())
    assert root.tag.endswith("}svg")
    # Its letters are drawn: it looks the same without the fonts.
    assert not [node for node in root.iter() if node.tag.endswith("}text")]
    assert b"<dc:date>" not in plots.svg(figure)
    with pytest.raises(UserError, match=r"a\.jpg: a picture's name ends in \.png or"):
        plots.save(figure, tmp_path / "a.jpg")
    with pytest.raises(UserError, match=r"none/a\.png: No such file"):
        plots.save(figure, tmp_path / "none" / "a.png")


def test_every_public_name_is_there():
    for name in plots.__all__:
        assert getattr(plots, name).__doc__
