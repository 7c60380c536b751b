"""Pictures of attention: what they show, in any script, without a warning."""

import io
import logging
import subprocess
import sys
import warnings

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from tfxformer import plots
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


def test_dark_is_much():
    """Lightness alone tells the shares apart: for any kind of colour-blindness."""
    image = panels(draw_attention(["a"], ["b"], weights(1, 1, 1, 1)))[0].images[0]
    red, green, blue, _ = image.cmap(image.norm(np.linspace(0, 1, 50))).T
    light = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    assert (np.diff(light) < 0).all() and light[0] - light[-1] > 0.7


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
    assert labels(mean.xaxis) == source[: plots.MOST_PIECES]
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
    monkeypatch.setattr(plots, "_families", lambda text: ("DejaVu Sans",))
    figure = draw_attention(["▁汉"], ["🦄"], weights(1, 1, 1, 1))
    mean = panels(figure)[0]
    assert labels(mean.xaxis) == ["▁\\u6c49"] and labels(mean.yaxis) == ["\\u1f984"]


def test_another_font_is_found_for_what_the_first_lacks():
    # U+2312 is in DejaVu Sans Mono and U+1D84 in STIX alone, which Matplotlib brings.
    first, *others = plots._families(frozenset("a\u2312\u1d84"))
    assert first == "DejaVu Sans" and others
    assert {0x2312, 0x1D84} <= plots._characters((first, *others))
    assert not {0x2312, 0x1D84} & plots._characters((first,))
    assert plots._families(frozenset("aé")) == ("DejaVu Sans",)
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
