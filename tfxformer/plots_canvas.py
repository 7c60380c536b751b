"""What all pictures share: themes, letters of any script, and files."""

import contextlib
import dataclasses
import functools
import io
import logging
import unicodedata
from pathlib import Path

from tfxformer.errors import UserError
from tfxformer.outputs import write_file

# The one that Matplotlib brings: Latin, Greek, Cyrillic, Hebrew, Arabic and more.
FONT = "DejaVu Sans"
# Fonts that have signs in the places of letters, or a box for every character.
NOT_FOR_TEXT = ("cm", "STIXNonUnicode", "STIXSize", "Last Resort")

LONGEST_LABEL = 20
SUFFIXES = (".png", ".svg")

# Lines differ in these as well as in colour, for those who see few, and on paper.
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
MARKERS = ("o", "s", "^", "D", "v", "P")


@dataclasses.dataclass(frozen=True)
class Theme:
    """The colours of a picture.

    Attributes:
        paper: behind everything.
        ink: letters.
        faint: frames and grids.
        lines: one colour a line: of Okabe and Ito (2008), told apart by all eyes,
            in the order in which they stand out from the paper.
        nothing: the colours of a share of attention, from none to all.
    """

    paper: str
    ink: str
    faint: str
    lines: tuple
    shares: tuple


LIGHT = Theme(
    paper="#ffffff",
    ink="#1a1a1a",
    faint="#cccccc",
    lines=("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    shares=("#f7fbff", "#6baed6", "#08306b"),
)
DARK = Theme(
    paper="#14171c",
    ink="#ececec",
    faint="#4a505a",
    lines=("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#CC79A7", "#D55E00"),
    shares=("#14171c", "#2b7bba", "#f2f9ff"),
)


@contextlib.contextmanager
def drawing(dark, size=(1, 1), layout=None):
    """A new figure to draw on, painted and cut to what is drawn when that is done.

    Without a layout it is one inch wide and high, so that places on it are inches.
    No pyplot: it would keep the figure, and may look for a screen.

    Args:
        dark: light letters on dark paper.
        size: width and height, inches.
        layout: a layout engine of Matplotlib, such as "constrained".

    Yields:
        The figure and its `Theme`.
    """
    from matplotlib.figure import Figure

    theme = DARK if dark else LIGHT
    with quiet():
        figure = Figure(figsize=size, layout=layout)
        if layout is not None:
            figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)  # inches
        yield figure, theme
        _paint(figure, theme)
        if layout is None:
            _fit(figure)
        # Notebooks ask for it; with pyplot loaded they draw figures by themselves.
        figure._repr_png_ = functools.partial(png, figure)


def _paint(figure, theme):
    """Gives all parts of a figure the theme's colours, where they have none of own."""
    figure.set_facecolor(theme.paper)
    for text in figure.texts:
        text.set_color(theme.ink)
    for axes in figure.axes:
        axes.set_facecolor(theme.paper)
        axes.spines[:].set_color(theme.faint)
        axes.tick_params(colors=theme.faint, labelcolor=theme.ink, which="both")
        for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
            text.set_color(theme.ink)
        for line in [*axes.get_xgridlines(), *axes.get_ygridlines()]:
            line.set_color(theme.faint)
            line.set_linewidth(0.5)
    for legend in (*figure.legends, *(axes.get_legend() for axes in figure.axes)):
        if legend:
            legend.get_frame().set(facecolor=theme.paper, edgecolor=theme.faint)
            for text in legend.get_texts():
                text.set_color(theme.ink)


def _fit(figure, margin=0.1):
    """Makes a figure as large as what is on it; sizes in inches stay."""
    box = figure.get_tightbbox()
    width, height = box.width + 2 * margin, box.height + 2 * margin
    left, bottom = box.x0 - margin, box.y0 - margin
    for axes in figure.axes:
        x, y, wide, high = axes.get_position().bounds
        place = ((x - left) / width, (y - bottom) / height, wide / width, high / height)
        axes.set_position(place)
    for text in figure.texts:
        x, y = text.get_position()
        text.set_position(((x - left) / width, (y - bottom) / height))
    figure.set_size_inches(width, height)


def png(figure):
    """A figure as the bytes of a PNG file, 100 dots an inch.

    Args:
        figure: a Matplotlib figure.

    Returns:
        Bytes.

    Example:
        >>> from matplotlib.figure import Figure
        >>> png(Figure(figsize=(1, 1)))[1:4]
        b'PNG'
    """
    return _file(figure, "png")


def svg(figure):
    """A figure as the bytes of an SVG file, its letters drawn: it needs no fonts.

    Args:
        figure: a Matplotlib figure.

    Returns:
        Bytes.

    Example:
        >>> from matplotlib.figure import Figure
        >>> b"<svg" in svg(Figure(figsize=(1, 1)))
        True
    """
    return _file(figure, "svg")


def save(figure, path):
    """Writes a figure to a file.

    Args:
        figure: a Matplotlib figure.
        path: where to; it ends in ``.png`` or ``.svg``.

    Returns:
        The path.

    Raises:
        UserError: when it ends in something else, or cannot be written.

    Example:
        >>> import tempfile
        >>> from matplotlib.figure import Figure
        >>> save(Figure(figsize=(1, 1)), Path(tempfile.mkdtemp(), "empty.png")).name
        'empty.png'
    """
    path = Path(path)
    check_suffix(path, SUFFIXES)
    return write_file(path, _file(figure, path.suffix.lower()[1:]))


def check_suffix(path, suffixes):
    """Stops what would be drawn for a file of another kind.

    Args:
        path: where to write.
        suffixes: what it may end in.

    Raises:
        UserError: when it does not.
    """
    if Path(path).suffix.lower() not in suffixes:
        raise UserError(f"{path}: a picture's name ends in {' or '.join(suffixes)}")


def _file(figure, form):
    file = io.BytesIO()
    with quiet():
        figure.savefig(file, format=form, dpi=100, metadata=_SAME_EACH_TIME[form])
    return file.getvalue()


# No date: the same picture is the same file.
_SAME_EACH_TIME = {"png": {}, "svg": {"Date": None}}


def gradient(colours):
    """A colour map through colours.

    Args:
        colours: names of colours, the one of the lowest value first.

    Returns:
        A Matplotlib colour map.
    """
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("shares", colours)


def line(theme, number):
    """How a picture's nth line looks: colour, dashes and markers of its own.

    Args:
        theme: a `Theme`.
        number: from 0.

    Returns:
        Options for Matplotlib's ``plot``.
    """
    return {
        "color": theme.lines[number % len(theme.lines)],
        # Of as many kinds, shifted: the 7th line differs from the 1st by dashes.
        "linestyle": DASHES[(number + number // 6) % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 5,
    }


# --- Letters ---


def write_pieces(axis, pieces, size):
    """Labels an axis with pieces, in any script.

    Args:
        axis: a Matplotlib axis; piece n stands at n.
        pieces: strings.
        size: the letters', points.
    """
    labels, families = spell(pieces)
    axis.set_ticks(range(len(labels)), labels, fontsize=size, fontfamily=families)
    for label in axis.get_ticklabels():
        label.set_parse_math(False)  # a piece may have dollar signs
    axis.set_tick_params(length=0)


def spell(pieces, longest=LONGEST_LABEL):
    """What to write for pieces, and in which fonts.

    Args:
        pieces: strings.
        longest: how many characters to show of each.

    Returns:
        A list of strings that fonts can show, long ones cut, and the fonts' names.
    """
    families = _families(frozenset("".join(pieces)))
    has = _characters(families)
    labels = ["".join(_spell(c, has) for c in piece) for piece in pieces]
    labels = [x if len(x) <= longest else f"{x[:longest]}…" for x in labels]
    return labels, families


def _spell(character, has):
    """A character, or its number where no font has it."""
    if character.isprintable() and ord(character) in has:
        return character
    # Of marks that nobody sees, such as joiners, nothing is missed.
    if unicodedata.category(character) in ("Cf", "Mn", "Me"):
        return ""
    return f"\\u{ord(character):04x}"


@functools.lru_cache(maxsize=64)
def _families(text):
    """The fewest of the installed fonts that have most of the characters."""
    from matplotlib import font_manager

    families = [FONT]
    missing = {ord(c) for c in text} - _characters((FONT,))
    if missing:
        names = {
            font.name
            for font in font_manager.fontManager.ttflist
            if font.style == "normal" and not font.name.startswith(NOT_FOR_TEXT)
        }
        while missing:
            best = max(sorted(names), key=lambda n: len(missing & _characters((n,))))
            if not missing & _characters((best,)):
                break
            families.append(best)
            missing -= _characters((best,))
    return tuple(families)


@functools.cache
def _characters(families):
    """Which characters fonts have, as numbers."""
    from matplotlib import font_manager

    found = set()
    for family in families:
        # A font that cannot be read has none, such as one of coloured bitmaps.
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            file = font_manager.findfont(family, fallback_to_default=False)
            found |= font_manager.get_font(file).get_charmap().keys()
    return found


@contextlib.contextmanager
def quiet():
    """Keeps Matplotlib's notes on its cache of fonts out of the program's output."""
    log = logging.getLogger("matplotlib")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
