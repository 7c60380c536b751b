"""What all pictures share: their style, and how they become files."""

import contextlib
import functools
import io
from pathlib import Path

from tfxformer.errors import UserError, write_file

# Colours that all eyes tell apart (Okabe and Ito 2008). Dashes and markers differ too,
# and as there are 6 of one and 5 of the other, 30 lines look different.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
# The first comes with Matplotlib; the others serve other scripts where installed.
FONTS = ("DejaVu Sans", "Noto Sans CJK JP", "Noto Sans Devanagari", "Noto Sans Thai")
FONTS += ("Arial Unicode MS", "Microsoft YaHei", "PingFang SC")


@contextlib.contextmanager
def drawing(width, height):
    """A new figure in our style over the user's: it needs no screen and no pyplot.

    Args:
        width: inches.
        height: inches.

    Yields:
        A Matplotlib figure. Matplotlib draws a box for a character that no font has.
    """
    import matplotlib
    from cycler import cycler
    from matplotlib.figure import Figure
    from matplotlib.font_manager import get_font_names

    installed = get_font_names()
    lines = cycler(color=COLOURS * 5, marker=MARKERS * 5, linestyle=DASHES * 6)
    style = {
        "font.family": [font for font in FONTS if font in installed],
        "text.parse_math": False,  # a token may have dollar signs
        "image.interpolation": "nearest",
        "image.aspect": "auto",
        "lines.markersize": 4,
        "grid.alpha": 0.4,
        "axes.titlesize": 10,
        "axes.prop_cycle": lines,
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        figure.draw_without_rendering()  # makes the ticks while the style holds
    figure._repr_png_ = functools.partial(png, figure)  # for notebooks


def png(figure):
    """A Matplotlib figure as the bytes of a PNG file, 100 dots an inch."""
    return _file(figure, "png")


def save(figure, path):
    """Writes a figure to a file.

    Args:
        figure: a Matplotlib figure.
        path: where to; it ends in ``.png`` or ``.svg``.

    Returns:
        The path.

    Raises:
        UserError: when the path ends in something else, or cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in (".png", ".svg"):
        raise UserError(f"{path}: a picture's name ends in .png or .svg")
    return write_file(path, _file(figure, path.suffix.lower()[1:]))


def _file(figure, form):
    file = io.BytesIO()
    figure.savefig(file, format=form, dpi=100)
    return file.getvalue()
