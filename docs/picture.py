"""Draws `picture.svg`, an overview of tfxformer: ``python docs/picture.py``.

The SVG has its own background, so it is readable on light and dark pages.
"""

from html import escape
from pathlib import Path

FILE = Path(__file__).with_name("picture.svg")
WIDTH, HEIGHT = 760, 348
INK, SOFT, LINE, CARD = "#1b2733", "#52606d", "#7b8794", "#f7f9fb"
BLUE, ORANGE, GREEN = "#d7e8f7", "#fde3c8", "#d5efe3"

BOX_WIDTH, BOX_HEIGHT, TOP, BOTTOM = 212, 100, 56, 228
LEFT, MIDDLE, RIGHT = 24, 274, 524
# x, y, colour, title and the lines below it, in the order of the arrows.
BOXES = [
    (LEFT, TOP, BLUE, "sentence pairs", "two columns of text,", "cleaned and counted"),
    (
        MIDDLE,
        TOP,
        BLUE,
        "tokens, batches",
        "one vocabulary for both",
        "(SentencePiece)",
    ),
    (RIGHT, TOP, ORANGE, "Transformer", "the paper's Figure 1", "as Keras 3 layers"),
    (RIGHT, BOTTOM, ORANGE, "training", "one device or several;", "stops and resumes"),
    (
        MIDDLE,
        BOTTOM,
        GREEN,
        "SavedModel",
        "strings in, strings out,",
        "checked in a session",
    ),
    (
        LEFT,
        BOTTOM,
        GREEN,
        "serving",
        "TensorFlow Serving, a local",
        "server, files in bulk",
    ),
]
# Each arrow goes from the edge of one box to the edge of the next.
ARROWS = [
    (LEFT + BOX_WIDTH, 106, MIDDLE, 106),
    (MIDDLE + BOX_WIDTH, 106, RIGHT, 106),
    (630, TOP + BOX_HEIGHT, 630, BOTTOM),
    (RIGHT, 278, MIDDLE + BOX_WIDTH, 278),
    (MIDDLE, 278, LEFT + BOX_WIDTH, 278),
]
NOTE = "look inside: notebooks, plots, a page with every head's attention"
TITLE = "tfxformer in one picture"
DESCRIPTION = (
    "Sentence pairs become tokens and batches, which train a Transformer. The result "
    "is exported as a SavedModel that takes strings and returns strings, and is served."
)


def draw():
    """Returns the SVG as a string."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-labelledby="title desc" '
        'font-family="system-ui, -apple-system, Segoe UI, Roboto, sans-serif">',
        f'<title id="title">{escape(TITLE)}</title>',
        f'<desc id="desc">{escape(DESCRIPTION)}</desc>',
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0L10 5L0 10z" fill="{LINE}"/>'
        "</marker></defs>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="14" fill="{CARD}"/>',
        f'<text x="24" y="34" font-size="15" fill="{SOFT}">'
        "two columns of text in, one SavedModel out</text>",
    ]
    for x, y, colour, title, *lines in BOXES:
        parts.append(
            f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="10" '
            f'fill="{colour}" stroke="{LINE}" stroke-width="1"/>'
        )
        middle = x + BOX_WIDTH / 2
        parts.append(_text(middle, y + 34, 18, INK, title, "600"))
        parts += [
            _text(middle, y + 60 + 20 * i, 14, INK, line)
            for i, line in enumerate(lines)
        ]
    for x1, y1, x2, y2 in ARROWS:
        parts.append(
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{LINE}" '
            'stroke-width="2" marker-end="url(#tip)"/>'
        )
    parts.append(_text(WIDTH / 2, 198, 14, SOFT, NOTE))
    return "\n".join([*parts, "</svg>", ""])


def _text(x, y, size, colour, text, weight="400"):
    return (
        f'<text x="{x:g}" y="{y}" font-size="{size}" font-weight="{weight}" '
        f'fill="{colour}" text-anchor="middle">{escape(text)}</text>'
    )


if __name__ == "__main__":
    FILE.write_text(draw(), "utf-8")
