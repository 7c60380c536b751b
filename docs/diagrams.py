"""Draws the model's diagrams into `diagrams/`: ``python docs/diagrams.py [NAME ...]``.

Each function in `DIAGRAMS` draws one PNG file with its name. Sizes and coordinates are
tenths of an inch; y grows upwards, and a box's coordinates are those of its centre.
"""

import itertools
import sys
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Rectangle
from matplotlib.path import Path as Lines

FOLDER = Path(__file__).with_name("diagrams")
INK, SOFT, LINE, FAINT = "#1b2733", "#5a6773", "#52606d", "#d3d9df"
BLUE, ORANGE, GREEN, YELLOW, GREY = (
    "#d7e8f7",
    "#fde3c8",
    "#d5efe3",
    "#fdf3c4",
    "#eef1f4",
)
PATH = "#c2410c"  # the path that a reader should follow


class Diagram:
    """A white page with boxes, arrows and words.

    Args:
        width, height: the size of the page.
    """

    def __init__(self, width, height):
        self.figure = Figure(figsize=(width / 10, height / 10), dpi=200)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, width), ylim=(0, height))
        self.axes.axis("off")

    def say(self, x, y, text, size=8, colour=INK, **style):
        """Writes text centred on a point, or left or right of it (``ha``)."""
        style = {"ha": "center", "va": "center", "zorder": 5} | style
        self.axes.text(x, y, text, size=size, color=colour, **style)

    def box(self, x, y, text, colour=GREY, w=15, h=4, size=8.5, **style):
        """Draws a box around text."""
        round_ = "round,pad=0,rounding_size=0.8"
        style = {"ec": LINE, "lw": 0.9, "zorder": 3} | style
        at = (x - w / 2, y - h / 2)
        self.axes.add_patch(FancyBboxPatch(at, w, h, round_, fc=colour, **style))
        self.say(x, y, text, size)

    def frame(self, left, bottom, right, top, colour="#f7f9fb"):
        """Draws a background behind a group of boxes."""
        style = {"fc": colour, "ec": "#aab4be", "lw": 0.9, "zorder": 0}
        round_ = "round,pad=0,rounding_size=1.5"
        size = right - left, top - bottom
        self.axes.add_patch(FancyBboxPatch((left, bottom), *size, round_, **style))

    def plus(self, x, y):
        """Draws a plus in a circle."""
        self.axes.add_patch(Circle((x, y), 1.3, fc="white", ec=LINE, lw=0.9, zorder=3))
        self.say(x, y - 0.05, "+", 11)

    def arrow(self, *points, colour=LINE, lw=1.1, tip="-|>", zorder=2):
        """Draws lines through points, with an arrowhead at the last."""
        style = {"arrowstyle": tip, "mutation_scale": 7, "joinstyle": "round"}
        style |= {"color": colour, "lw": lw, "shrinkA": 0, "shrinkB": 0}
        patch = FancyArrowPatch(path=Lines(points), zorder=zorder, **style)
        self.axes.add_patch(patch)

    def line(self, *points, **style):
        """Draws lines without an arrowhead."""
        self.arrow(*points, tip="-", **style)


def figure_1():
    """The whole Transformer, as in Figure 1 of the paper (post-norm)."""
    d = Diagram(70, 84)
    encoder, decoder = 21, 49
    d.frame(8, 21, 31, 50)
    d.frame(39, 21, 62, 65)
    d.say(4.8, 35, "N ×", 12)
    d.say(65.2, 42, "N ×", 12)
    d.say(29.5, 48.2, "encoder layer", 8, SOFT, ha="right")
    d.say(40.5, 63.2, "decoder layer", 8, SOFT, ha="left")
    for x, side, words in (
        (encoder, -1, "source tokens"),
        (decoder, 1, "target tokens, shifted right"),
    ):
        d.say(x, 2.2, words, 9)
        d.arrow((x, 3.7), (x, 6.2))
        d.box(x, 8.2, "embedding", BLUE)
        d.arrow((x, 10.2), (x, 14.2))
        d.plus(x, 15.5)
        other = x + side * 14.5
        d.box(other, 15.5, "positional\nencoding", BLUE, w=10.5, h=4.6, size=8)
        d.arrow((other - side * 5.25, 15.5), (x + side * 1.3, 15.5))
    itself = (-4, 0, 4)  # queries, keys and values are the same
    _sublayer(d, encoder, 16.8, 23, "multi-head\nself-attention", ORANGE, -1, itself)
    _sublayer(d, encoder, 34, 35.5, "feed-forward\nnetwork", GREEN, -1)
    words = "masked multi-head\nself-attention"
    _sublayer(d, decoder, 16.8, 23, words, ORANGE, 1, itself)
    words = "multi-head\ncross-attention"
    _sublayer(d, decoder, 34, 35.3, words, ORANGE, 1, (4.5,), 39.5)
    _sublayer(d, decoder, 49, 50.5, "feed-forward\nnetwork", GREEN, 1)
    # The encoder's output goes to cross-attention in each decoder layer.
    d.line((encoder, 46.5), (encoder, 54), (35, 54), (35, 37.4), (decoder, 37.4))
    for x, name in ((decoder - 4.5, "keys"), (decoder, "values")):
        d.arrow((x, 37.4), (x, 39.5))
        d.say(x + 0.5, 38.3, name, 6, SOFT, ha="left")
    d.say(decoder + 5, 38.3, "queries", 6, SOFT, ha="left")
    d.say(encoder, 57, "encoder output:\nto every decoder layer", 8, SOFT)
    d.arrow((decoder, 61.5), (decoder, 67))
    d.box(decoder, 69, "linear")
    d.arrow((decoder, 71), (decoder, 73.5))
    d.box(decoder, 75.5, "softmax")
    d.arrow((decoder, 77.5), (decoder, 80.2))
    d.say(decoder, 81.7, "probabilities of the next token", 9)
    return d


def _sublayer(d, x, start, turn, words, colour, side, places=(0,), bottom=None):
    """Draws a sublayer with its Add & Norm and the residual connection around both.

    The line to the sublayer begins at `start`. The residual leaves this line at `turn`.
    """
    bottom = bottom or turn + 1.5
    d.line((x, start), (x, turn))
    for place in places:
        d.arrow((x, turn), (x + place, turn), (x + place, bottom))
    d.box(x, bottom + 2.5, words, colour, h=5)
    d.arrow((x, bottom + 5), (x, bottom + 6.5))
    d.box(x, bottom + 8, "add & norm", YELLOW, h=3)
    edge, top = x + side * 10.5, bottom + 8
    d.arrow((x, turn), (edge, turn), (edge, top), (x + side * 7.5, top))


def information_flow():
    """How many steps information takes from the first position to the last."""
    d = Diagram(70, 32)
    # Left edge, title, caption, rows, and the nodes of the path, counted row by row.
    panels = (
        (
            1.8,
            "Recurrent network",
            "7 steps from position 1 to 7,\none after another",
            2,
            (0, 7, 8, 9, 10, 11, 12, 13),
        ),
        (
            25.8,
            "Convolution (width 5)",
            "3 layers from position 1 to 7,\nmore for longer sentences",
            4,
            (0, 9, 18, 27),
        ),
        (
            49.8,
            "Self-attention",
            "1 layer from any position\nto any other",
            2,
            (0, 13),
        ),
    )
    for left, title, words, rows, way in panels:
        nodes = [
            (left + 0.5 + 2.9 * column, 9 + row * (16 / (rows - 1)))
            for row in range(rows)
            for column in range(7)
        ]
        ways = [*itertools.pairwise(way)]
        for start, (x, y) in enumerate(nodes):
            for end, (to, up) in enumerate(nodes):
                near = abs(start % 7 - end % 7)
                joined = end // 7 == start // 7 + 1
                if title == "Recurrent network":
                    joined = end == start + 7
                elif title != "Self-attention":
                    joined = joined and near <= 2
                if joined and (start, end) not in ways:
                    d.line((x, y), (to, up), colour=FAINT, lw=0.7, zorder=1)
        for start, end in ways:
            d.arrow(*_between(nodes[start], nodes[end]), colour=PATH, lw=1.6)
        for place, (x, y) in enumerate(nodes):
            on = place in way
            style = {"ec": PATH if on else LINE, "lw": 1.4 if on else 0.8, "zorder": 3}
            fill = BLUE if place < 7 else ORANGE
            d.axes.add_patch(Circle((x, y), 0.85, fc=fill, **style))
        middle = left + 9.2
        d.say(middle, 29, title, 10, weight="bold")
        for column in range(7):
            d.say(nodes[column][0], 7, str(column + 1), 7, SOFT)
        d.say(middle, 3, words, 8.5)
    return d


def _between(start, end, gap=0.95):
    """Returns the ends of a line, shortened so that it stops at the circles."""
    (x, y), (to, up) = start, end
    length = ((to - x) ** 2 + (up - y) ** 2) ** 0.5
    right, high = gap * (to - x) / length, gap * (up - y) / length
    return (x + right, y + high), (to - right, up - high)


def scaled_dot_product():
    """Figure 2, left, with shapes."""
    d = Diagram(36, 48)
    x, v = 12, 30
    for y, words, colour, note in (
        (10, "MatMul", ORANGE, "scores: (queries, keys)"),
        (17, r"Scale by $1/\sqrt{d_k}$", YELLOW, ""),
        (24, "Mask (optional)", GREY, ""),
        (31, "Softmax", GREEN, "weights: 0 where the mask\nis False, rows sum to 1"),
    ):
        d.box(x, y, words, colour)
        d.arrow((x, y + 2), (x, y + 5))
        d.say(x + 0.8, y + 3.5, note, 7.5, SOFT, ha="left")
    for name, at, end in (("Q", 8, 8), ("K", 16, 8), ("V", v, 36)):
        d.say(at, 2.8, name, 10, weight="bold")
        d.arrow((at, 4.3), (at, end))
    d.box(19, 38, "MatMul", ORANGE, w=29)
    d.arrow((19, 40), (19, 43.5))
    d.say(19, 45, r"output: (queries, $d_v$)", 8.5)
    return d


def multi_head():
    """Figure 2, right, with shapes."""
    d = Diagram(36, 48)
    places = (("Q", 6), ("K", 16.5), ("V", 27))
    for shift in (2, 1, 0):  # heads, one behind another
        for _, x in places:
            d.box(x + shift, 11.5 + shift, "Linear" * (not shift), BLUE, w=7)
        words = "Scaled dot-product attention" * (not shift)
        d.box(16.5 + shift, 22.5 + shift, words, ORANGE, w=28, h=4.5)
    for name, x in places:
        d.say(x, 2.8, name, 10, weight="bold")
        d.arrow((x, 4.3), (x, 9.5))
        d.arrow((x, 15.6), (x, 20.2))
    d.say(33.2, 29, "h heads", 8, SOFT, ha="right")
    d.arrow((16.5, 26.8), (16.5, 31))
    d.box(16.5, 33, "Concatenate", YELLOW, w=20)
    d.arrow((16.5, 35), (16.5, 37.5))
    d.box(16.5, 39.5, "Linear", BLUE, w=20)
    d.arrow((16.5, 41.5), (16.5, 44))
    d.say(16.5, 45.5, r"output: (queries, $d_{model}$)", 8.5)
    return d


def _chain(d, sublayers, gap, norm):
    """Draws a pre-norm layer from left to right; returns the sublayers' centres."""
    x, y, middles = 4.2, 9.5, []
    d.say(1.8, y, "x", 10)
    for words, colour, wide in sublayers:
        turn = x
        d.arrow((x - 1, y), (x + gap, y))
        x += gap
        d.box(x + norm / 2, y, "Layer\nNorm", YELLOW, w=norm, h=5.4, size=7.5)
        x += norm
        d.arrow((x, y), (x + gap, y))
        x += gap
        d.box(x + wide / 2, y, words, colour, w=wide, h=5.4, size=8)
        middles.append(x + wide / 2)
        x += wide
        d.arrow((x, y), (x + gap, y))
        x += gap + 1.3
        d.plus(x, y)
        d.arrow((turn, y), (turn, y - 5), (x, y - 5), (x, y - 1.3))
        x += 2.3
    d.arrow((x - 1, y), (x + gap, y))
    words = "residual connections: each adds a sublayer's input to its output"
    d.say(35, 2.2, words, 7.5, SOFT)
    return middles


def encoder_layer():
    """An encoder layer, pre-norm."""
    d = Diagram(70, 14.5)
    words = "multi-head\nself-attention", "feed-forward\nnetwork"
    _chain(d, ((words[0], ORANGE, 13), (words[1], GREEN, 13)), 2.6, 6.5)
    return d


def decoder_layer():
    """A decoder layer, pre-norm."""
    d = Diagram(70, 22)
    parts = (
        ("causal\nself-\nattention", ORANGE, 7.8),
        ("cross-\nattention", ORANGE, 7.8),
        ("feed-\nforward\nnetwork", GREEN, 6.8),
    )
    middle = _chain(d, parts, 1.75, 4.8)[1]
    d.say(middle, 20.2, "encoder output", 8.5)
    for shift, side, name in ((-1.8, "right", "keys"), (1.8, "left", "values")):
        d.arrow((middle + shift, 18.9), (middle + shift, 12.2))
        d.say(middle + 1.45 * shift, 15.6, name, 7.5, SOFT, ha=side)
    return d


def encoder():
    """The stack of encoder layers, with shapes."""
    d = Diagram(70, 13)
    _stack(d, "Encoder", 7, "source\nids", "context")
    return d


def decoder():
    """The stack of decoder layers. Each layer reads the encoder's output."""
    d = Diagram(70, 18)
    layers = _stack(d, "Decoder", 7, "target\nids", "hidden\nstates")
    d.say(35, 16.6, "context, the encoder's output", 8)
    d.line((min(layers), 14), (max(layers), 14))
    d.line((35, 15.4), (35, 14))
    for x in layers:
        d.arrow((x, 14), (x, 9.5))
    return d


def _stack(d, name, y, ids, output):
    """Draws a stack from left to right; returns the centres of its layers."""
    boxes = (
        (15, "Positional\nEmbedding", BLUE, 9.5),
        (27.5, f"{name}\nLayer 1", ORANGE, 9.5),
        (42.5, f"{name}\nLayer N", ORANGE, 9.5),
        (54.3, "Layer\nNorm", YELLOW, 7.5),
    )
    d.frame(8.5, y - 4, 59.5, y + 4)
    d.say(3.8, y, ids, 8)
    d.say(65.8, y, output, 8)
    left = 6.4
    for x, words, colour, wide in boxes:
        d.arrow((left, y), (x - wide / 2, y))
        d.box(x, y, words, colour, w=wide, h=5, size=8)
        left = x + wide / 2
    d.arrow((left, y), (62, y))
    d.box(35, y, "…", "white", w=2.4, h=2.4, size=9, ec="none")
    d.say(3.8, y - 5.4, "(batch, length)", 6.5, SOFT)
    d.say(64.3, y - 5.4, "(batch, length, d_model)", 6.5, SOFT)
    return [x for x, words, _, _ in boxes if words.startswith(name)]


def transformer():
    """The whole Transformer, pre-norm, with the names of the lesson's classes."""
    d = Diagram(70, 77)
    encoder, decoder = 17.5, 52.5
    for x, name, side, layers in (
        (encoder, "Encoder", -1, 43.5),
        (decoder, "Decoder", 1, 56.5),
    ):
        top, ha = layers + 8, "right" if side > 0 else "left"
        d.frame(x - 16, 5, x + 16, top, "white")
        d.frame(x - 14, 13.3, x + 14, layers)
        d.say(x + side * 15, top - 1.8, name, 9.5, ha=ha)
        d.say(x + side * 13, layers - 1.5, f"{name}Layer × N", 8, SOFT, ha=ha)
        d.arrow((x, 3.2), (x, 7))
        d.box(x, 9, "PositionalEmbedding", BLUE, w=19)
        d.line((x, 11), (x, 15))
        d.arrow((x, layers - 3.7), (x, layers + 2))
        d.box(x, layers + 3.3, "LayerNorm", YELLOW, h=2.6)
    d.say(encoder, 2, "source ids", 8.5)
    d.say(decoder, 2, "target ids, shifted right", 8.5)
    _pre_norm(d, encoder, 14.3, "MultiHeadAttention", ORANGE, -1)
    _pre_norm(d, encoder, 27.3, "feed_forward", GREEN, -1)
    _pre_norm(d, decoder, 14.3, "MultiHeadAttention\n(causal mask)", ORANGE, 1)
    _pre_norm(d, decoder, 27.3, "MultiHeadAttention\n(cross-attention)", ORANGE, 1)
    _pre_norm(d, decoder, 40.3, "feed_forward", GREEN, 1)
    # The encoder's output goes to cross-attention in each decoder layer.
    d.arrow((encoder, 48.1), (encoder, 53.5), (35, 53.5), (35, 34.9), (43, 34.9))
    d.say(encoder, 55, "context: the keys and values", 8, SOFT)
    d.arrow((decoder, 61.1), (decoder, 66.5))
    d.box(decoder, 68.5, "logits", GREY)
    d.arrow((decoder, 70.5), (decoder, 73.3))
    d.say(decoder, 74.8, "(batch, target, vocabulary)", 8)
    return d


def _pre_norm(d, x, turn, words, colour, side):
    """Draws a pre-norm sublayer from bottom to top, with its residual connection."""
    d.arrow((x, turn - 0.5), (x, turn + 1.6))
    d.box(x, turn + 2.9, "LayerNorm", YELLOW, h=2.6)
    d.arrow((x, turn + 4.2), (x, turn + 5.4))
    d.box(x, turn + 7.6, words, colour, w=19, h=4.4, size=8)
    d.arrow((x, turn + 9.8), (x, turn + 11))
    d.plus(x, turn + 12.2)
    edge, top = x + side * 11.7, turn + 12.2
    d.arrow((x, turn), (edge, turn), (edge, top), (x + side * 1.3, top), colour=PATH)


def pre_and_post_norm():
    """Where the paper normalizes, and where the shipped model does."""
    d = Diagram(70, 42)
    for x, title, formula, order in (
        (18, "Post-norm (the paper)", "LayerNorm(x + Sublayer(x))", (2, 0, 1)),
        (52, "Pre-norm (the shipped model)", "x + Sublayer(LayerNorm(x))", (0, 1, 2)),
    ):
        post = order[0] == 2
        d.say(x, 39.5, title, 10, weight="bold")
        d.say(x, 2.2, formula, 8.5, family="monospace")
        d.say(x, 6, "x", 9)
        norm, inner, plus = (30, 16, 23.5) if post else (15, 23, 30)
        stops = sorted(((norm, 2), (inner, 2.2), (plus, 1.3)))
        y = 7.3
        for stop, half in stops:
            d.arrow((x, y), (x, stop - half))
            y = stop + half
        d.arrow((x, y), (x, 36.5))
        d.box(x, norm, "LayerNorm", YELLOW)
        d.box(x, inner, "sublayer", ORANGE, h=4.4)
        d.plus(x, plus)
        main = {"colour": PATH, "lw": 1.6}
        d.arrow((x, 9.5), (x + 11, 9.5), (x + 11, plus), (x + 1.3, plus), **main)
    d.say(35, 23.5, "the residual\nconnection", 7.5, PATH)
    return d


def teacher_forcing():
    """The decoder's input, its labels, and the positions that each position reads."""
    d = Diagram(70, 40)
    inputs = ["<s>", "this", "is", "the", "first", "book"]
    labels = [*inputs[1:], "</s>"]
    left, top, cell = 19, 31, 4.4
    d.say(
        35, 37.8, "One training step learns all predictions at once", 10, weight="bold"
    )
    d.say(9.5, top + 2.2, "decoder input\n(shifted right)", 8, SOFT)
    d.say(32.2, top + 3.3, "reads the blue positions", 8, SOFT)
    d.say(57, top + 2.2, "label\n(the true next token)", 8, SOFT)
    for row, (token, label) in enumerate(zip(inputs, labels, strict=True)):
        y = top - 3.6 - row * cell
        d.box(9.5, y, token, BLUE, w=9, h=3.4)
        d.arrow((14, y), (left - 0.4, y))
        for column, other in enumerate(inputs):
            x = left + (column + 0.5) * cell
            fill = "#0f5c99" if column <= row else GREY
            corner = (x - cell / 2, y - cell / 2)
            square = Rectangle(corner, cell, cell, fc=fill, ec="white", lw=1.5)
            d.axes.add_patch(square)
            if not row:
                d.say(x, top - 0.1, other, 8)
        d.arrow((left + 6 * cell + 0.4, y), (52.5, y))
        d.box(57, y, label, GREEN, w=9, h=3.4)
    d.say(
        32.2,
        1.6,
        "causal mask: each position reads itself and earlier positions",
        8,
        SOFT,
    )
    return d


DIAGRAMS = (
    figure_1,
    information_flow,
    scaled_dot_product,
    multi_head,
    encoder_layer,
    encoder,
    decoder_layer,
    decoder,
    transformer,
    pre_and_post_norm,
    teacher_forcing,
)

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for draw in DIAGRAMS:
        if draw.__name__ in (sys.argv[1:] or [x.__name__ for x in DIAGRAMS]):
            file = FOLDER / f"{draw.__name__}.png"
            draw().figure.savefig(file, pil_kwargs={"optimize": True})
