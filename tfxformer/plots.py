"""Pictures, drawn by Matplotlib: the extra ``plots``."""

import contextlib
import functools
import io
import logging
import math
import unicodedata

# The one that Matplotlib brings: Latin, Greek, Cyrillic, Hebrew, Arabic and more.
FONT = "DejaVu Sans"
# Fonts that have signs in the places of letters, or a box for every character.
NOT_FOR_TEXT = ("cm", "STIXNonUnicode", "STIXSize", "Last Resort")

# A picture of more pieces a side would be a wall.
MOST_PIECES = 128
LONGEST_LABEL = 20


def draw_attention(source, target, weights):
    """Draws what the last decoder layer looked at: the mean of its heads, and each.

    Args:
        source: the source's pieces.
        target: the pieces that were written, in any script.
        weights: an array ``(layers, heads, target, source)``; each row sums to 1.

    Returns:
        A Matplotlib figure; `png` makes a file of it.

    Raises:
        ModuleNotFoundError: when Matplotlib is not installed.
    """
    with _quiet():
        return _draw_attention(source, target, weights)


def png(figure):
    """A figure as the bytes of a PNG file."""
    file = io.BytesIO()
    with _quiet():
        figure.savefig(file, format="png", dpi=100, bbox_inches="tight")
    return file.getvalue()


def _draw_attention(source, target, weights):
    from matplotlib.figure import Figure

    heads = weights[-1][:, :MOST_PIECES, :MOST_PIECES]
    shown = [pieces[:MOST_PIECES] for pieces in (source, target)]
    count, height, width = heads.shape
    if (width, height) != (len(shown[0]), len(shown[1])):
        raise ValueError(f"{len(source)} x {len(target)} pieces, {weights.shape=}")
    # All in inches, as if the figure were one inch; `png` cuts it to what is drawn.
    # No pyplot: it would keep the figure, and may look for a screen.
    figure = Figure(figsize=(1, 1))
    # A cell of the big panel is as high as its label at least.
    cell = min(max(5 / max(height, width), 0.17), 0.55)
    right, top = width * cell, height * cell
    mean = figure.add_axes((0, 0, right, top))
    image = _show(mean, heads.mean(axis=0))
    mean.set_title("mean of all heads" if count > 1 else "the only head", fontsize=9)
    mean.set_xlabel("source")
    mean.set_ylabel("target")
    for axis, pieces in zip((mean.xaxis, mean.yaxis), shown, strict=True):
        _label(axis, pieces, size=min(72 * cell * 0.7, 10))
    mean.tick_params(axis="x", rotation=90)
    if count > 1:
        rows, columns = _grid(count)
        gap = 0.3  # room for a title
        high = max((top - (rows - 1) * gap) / rows, 0.8)
        wide = high * width / height
        left = right + gap
        for number in range(count):
            row, column = divmod(number, columns)
            x, y = left + column * (wide + 0.15), top - row * (high + gap) - high
            axes = figure.add_axes((x, y, wide, high))
            _show(axes, heads[number])
            axes.set_title(f"head {number + 1}", fontsize=8)
            axes.set(xticks=[], yticks=[])
        right = left + columns * (wide + 0.15)
    bar = figure.add_axes((right + 0.15, top - max(top, 1.2), 0.12, max(top, 1.2)))
    bar = figure.colorbar(image, cax=bar, label="share of attention")
    ticks = [0, 0.02, 0.1, 0.25, 0.5, 1]
    bar.set_ticks(ticks, labels=[f"{tick:.0%}" for tick in ticks])
    bar.outline.set_visible(False)
    cut = max(len(source), len(target)) > MOST_PIECES
    title = f"Attention of decoder layer {len(weights)}"
    title += f" (the first {MOST_PIECES} pieces)" if cut else ""
    figure.text(0, top + 0.35, title, fontsize=11)
    return figure


def _show(axes, weights):
    from matplotlib.colors import PowerNorm

    axes.spines[:].set_color("#cccccc")
    # One hue from light to dark: the same for those who see few colours, and on paper.
    # The root lets small shares be seen, as those of long sentences are.
    scale = PowerNorm(0.5, vmin=0, vmax=1)
    return axes.imshow(
        weights, cmap="Blues", norm=scale, interpolation="nearest", aspect="auto"
    )


def _label(axis, pieces, size):
    families = _families(frozenset("".join(pieces)))
    has = _characters(families)
    labels = ["".join(_spell(c, has) for c in piece) for piece in pieces]
    labels = [x if len(x) <= LONGEST_LABEL else f"{x[:LONGEST_LABEL]}…" for x in labels]
    axis.set_ticks(range(len(labels)), labels, fontsize=size, fontfamily=families)
    for label in axis.get_ticklabels():
        label.set_parse_math(False)  # a piece may have dollar signs
    axis.set_tick_params(length=0)


def _spell(character, has):
    """A character, or its number where no font has it."""
    if character.isprintable() and ord(character) in has:
        return character
    # Of marks that nobody sees, such as joiners, nothing is missed.
    if unicodedata.category(character) in ("Cf", "Mn", "Me"):
        return ""
    return f"\\u{ord(character):04x}"


def _grid(count):
    """Rows and columns for so many panels: higher than wide, without holes if it can.

    Example:
        >>> [_grid(count) for count in (2, 4, 7, 8, 16)]
        [(2, 1), (2, 2), (3, 3), (4, 2), (4, 4)]
    """
    least = math.ceil(math.sqrt(count))
    rows = next((n for n in range(least, 2 * least) if count % n == 0), least)
    return rows, math.ceil(count / rows)


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
def _quiet():
    """Keeps Matplotlib's notes on its cache of fonts out of the program's output."""
    log = logging.getLogger("matplotlib")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
