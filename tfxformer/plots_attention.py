"""Pictures of what attention reads, and of the masks that say what it may read."""

import math

import numpy as np

from tfxformer.plots_canvas import drawing, gradient, spell, write_pieces

# A picture of more pieces a side would be a wall.
MOST_PIECES = 128
# Inches: a cell of less has no room for a label beside it, or for a number in it.
LABEL = 0.15
NUMBER = 0.3
KEYS, QUERIES = "token that is read (key)", "token that reads (query)"


def draw_attention(source, target, weights, dark=False):
    """Draws what the last decoder layer looked at: the mean of its heads, and each.

    Args:
        source: the source's pieces.
        target: the pieces that were written, in any script.
        weights: an array ``(layers, heads, target, source)``; each row sums to 1.
        dark: light letters on dark paper.

    Returns:
        A Matplotlib figure; `png` makes a file of it.

    Raises:
        ModuleNotFoundError: when Matplotlib is not installed.

    Example:
        >>> weights = np.full((2, 4, 1, 2), 0.5)  # layers, heads, target, source
        >>> figure = draw_attention(["um", "gato"], ["cat"], weights)
        >>> [axes.get_title() for axes in figure.axes][:2]
        ['mean of all heads', 'head 1']
    """
    _check(target, source, weights, 4)
    heads = np.asarray(weights)[-1][:, :MOST_PIECES, :MOST_PIECES]
    shown = [pieces[:MOST_PIECES] for pieces in (source, target)]
    count, height, width = heads.shape
    with drawing(dark) as (figure, theme):
        # A cell of the big panel is as high as its label at least.
        cell = min(max(5 / max(height, width), 0.17), 0.55)
        right, top = width * cell, height * cell
        mean = figure.add_axes((0, 0, right, top))
        image = _show(mean, heads.mean(axis=0), theme)
        mean.set_title("mean of all heads" if count > 1 else "the only head", size=9)
        mean.set_xlabel("source")
        mean.set_ylabel("target")
        for axis, pieces in zip((mean.xaxis, mean.yaxis), shown, strict=True):
            write_pieces(axis, pieces, size=min(72 * cell * 0.7, 10))
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
                _show(axes, heads[number], theme)
                axes.set_title(f"head {number + 1}", fontsize=8)
                axes.set(xticks=[], yticks=[])
            right = left + columns * (wide + 0.15)
        _bar(figure, image, right + 0.15, top)
        cut = max(len(source), len(target)) > MOST_PIECES
        title = f"Attention of decoder layer {len(weights)}"
        title += f" (the first {MOST_PIECES} pieces)" if cut else ""
        figure.text(0, top + 0.35, title, fontsize=11)
    return figure


def draw_head(queries, keys, weights, title="", dark=False):
    """Draws one head: a row for each token that reads, a column for each it reads.

    Where there is room, each cell has its share in percent. Of more than 128 tokens a
    side, the first 128 are drawn.

    Args:
        queries: the tokens that read, strings in any script.
        keys: the tokens that are read.
        weights: an array ``(queries, keys)``; each row sums to 1.
        title: what stands above.
        dark: light letters on dark paper.

    Returns:
        A Matplotlib figure; a notebook shows it, `save` makes a file of it.

    Raises:
        ValueError: when there are not as many tokens as weights.
        ModuleNotFoundError: when Matplotlib is not installed.

    Example:
        >>> weights = [[0.9, 0.1], [0.2, 0.8]]
        >>> figure = draw_head(["▁the", "▁cat"], ["▁o", "▁gato"], weights)
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['90', '10', '20', '80']
    """
    _check(queries, keys, weights, 2)
    return _panels(queries, keys, [[weights]], title, dark, lambda *_: "", size=5)


def draw_heads(queries, keys, weights, title="", dark=False):
    """Draws all heads of a layer, a panel each (section 3.2.2).

    In a long sentence tokens have numbers, and are listed below.

    Args:
        queries: the tokens that read, strings in any script.
        keys: the tokens that are read.
        weights: an array ``(heads, queries, keys)``; each row sums to 1.
        title: what stands above.
        dark: light letters on dark paper.

    Returns:
        A Matplotlib figure; a notebook shows it, `save` makes a file of it.

    Raises:
        ValueError: when there are not as many tokens as weights.
        ModuleNotFoundError: when Matplotlib is not installed.

    Example:
        >>> import numpy as np
        >>> figure = draw_heads([*"ab"], [*"ab"], np.full((8, 2, 2), 0.5))
        >>> [axes.get_title() for axes in figure.axes if axes.images][:2]
        ['head 1', 'head 2']
    """
    _check(queries, keys, weights, 3)
    columns = min(len(weights), 4)
    rows = [weights[n : n + columns] for n in range(0, len(weights), columns)]

    def name(row, column):
        return f"head {row * columns + column + 1}"

    return _panels(queries, keys, rows, title, dark, name, size=2.6, labelled=33)


def draw_layers(queries, keys, weights, title="", dark=False):
    """Draws all heads of all layers: a row of panels for each layer.

    In a long sentence tokens have numbers, and are listed below.

    Args:
        queries: the tokens that read, strings in any script.
        keys: the tokens that are read.
        weights: an array ``(layers, heads, queries, keys)``; each row sums to 1.
        title: what stands above.
        dark: light letters on dark paper.

    Returns:
        A Matplotlib figure; a notebook shows it, `save` makes a file of it.

    Raises:
        ValueError: when there are not as many tokens as weights.
        ModuleNotFoundError: when Matplotlib is not installed.

    Example:
        >>> import numpy as np
        >>> figure = draw_layers([*"ab"], [*"ab"], np.full((6, 8, 2, 2), 0.5))
        >>> len([axes for axes in figure.axes if axes.images])
        48
    """
    _check(queries, keys, weights, 4)

    def name(row, column):
        return f"layer {row + 1}, head {column + 1}"

    return _panels(queries, keys, weights, title, dark, name, size=1.4, labelled=16)


def draw_mask(queries, keys, mask, title="", dark=False):
    """Draws a mask: which token may read which, and what is added to the scores.

    Where there is room, each cell has it in writing: nothing, or minus infinity, of
    which softmax makes a share of exactly 0 (section 3.2.3).

    Args:
        queries: the tokens that read, strings in any script.
        keys: the tokens that are read.
        mask: a boolean array ``(queries, keys)``, True where it may be looked at.
        title: what stands above.
        dark: light letters on dark paper.

    Returns:
        A Matplotlib figure; a notebook shows it, `save` makes a file of it.

    Raises:
        ValueError: when there are not as many tokens as the mask has places.
        ModuleNotFoundError: when Matplotlib is not installed.

    Example:
        >>> figure = draw_mask([*"ab"], [*"ab"], [[True, False], [True, True]])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['0', '−∞', '0', '0']
    """
    from matplotlib.patches import Patch

    _check(queries, keys, mask, 2)
    mask = np.asarray(mask, "bool")[:MOST_PIECES, :MOST_PIECES]
    with drawing(dark) as (figure, theme):
        axes, cell = _panel(figure, queries, keys, 5)
        colours = gradient(theme.shares)
        image = axes.imshow(mask, cmap=colours, vmin=0, vmax=1, aspect="auto")
        _write_in_cells(axes, image, cell, np.where(mask, "0", "−∞"))
        axes.set(xlabel=KEYS, ylabel=QUERIES)
        _write_title(figure, title, queries, keys)
        patches = [
            Patch(facecolor=colours(1.0), edgecolor=theme.faint, label="may be read"),
            Patch(facecolor=colours(0.0), edgecolor=theme.faint, label="is hidden"),
        ]
        axes.legend(
            handles=patches, loc="upper left", bbox_to_anchor=(1.02, 1), fontsize=9
        )
    return figure


def _check(queries, keys, weights, rank):
    shape = np.shape(weights)
    if len(shape) != rank or shape[-2:] != (len(queries), len(keys)):
        raise ValueError(f"{len(keys)} x {len(queries)} pieces, weights.{shape=}")
    if 0 in shape:
        raise ValueError(f"there is nothing to draw: weights.{shape=}")


def _panels(queries, keys, grid, title, dark, name, size, labelled=MOST_PIECES):
    """Panels in rows, each a head.

    Args:
        queries: the tokens that read.
        keys: the tokens that are read.
        grid: rows of arrays ``(queries, keys)``.
        title: what stands above all.
        dark: which theme.
        name: gives a panel's title, from its row and column.
        size: how wide and high a panel is to be, inches.
        labelled: with more tokens a side than this, they are numbered.
    """
    height, width = min(len(queries), MOST_PIECES), min(len(keys), MOST_PIECES)
    numbered = max(height, width) > labelled
    with drawing(dark) as (figure, theme):
        y = 0
        for row, heads in enumerate(grid):
            x = 0
            last = row == len(grid) - 1
            for column, weights in enumerate(heads):
                below = last or column >= len(grid[row + 1])
                axes, cell = _panel(
                    figure,
                    queries if column == 0 else None,
                    keys if below else None,
                    size,
                    (x, y),
                    (height, width),
                    numbered,
                    len(grid[0]),
                )
                shares = np.nan_to_num(np.asarray(weights)[:height, :width])
                image = _show(axes, shares, theme)
                percents = np.round(100 * shares).astype(int).astype(str)
                _write_in_cells(axes, image, cell, percents)
                axes.set_title(name(row, column), fontsize=8)
                box = axes.get_position()
                x = box.x1 + 0.15
            if row == 0:
                right = x
            y = box.y0 - 0.3
        # Once for all panels, in their middle.
        labels = figure.get_tightbbox()
        x, y = (right - 0.15) / 2, box.y0 / 2
        figure.text(x, labels.y0 - 0.1, KEYS, size=10, va="top", ha="center")
        figure.text(
            labels.x0 - 0.1, y, QUERIES, size=10, va="center", ha="right", rotation=90
        )
        _bar(figure, image, right + 0.05, 0)
        _write_title(figure, title, queries, keys)
        if numbered:
            _list(figure, theme, queries, keys, right)
    return figure


def _panel(
    figure, queries, keys, size, corner=(0, 0), shape=None, numbered=False, columns=1
):
    """Axes below and right of a corner, inches; without tokens they have no labels.

    Returns:
        The axes, and how high a cell is.
    """
    height, width = shape or (
        min(len(queries), MOST_PIECES),
        min(len(keys), MOST_PIECES),
    )
    cell = min(size / max(height, width), 0.5)
    if not numbered:
        cell = max(cell, LABEL)
    # A picture of one token is a picture still, and has room for what stands below.
    wide, high = max(width * cell, 0.9, 1.9 / columns), max(height * cell, 0.4)
    x, y = corner
    axes = figure.add_axes((x, y - high, wide, high))
    for axis, pieces, count in (
        (axes.yaxis, queries, height),
        (axes.xaxis, keys, width),
    ):
        if pieces is None:
            axis.set_ticks([])
        elif numbered:
            axis.set_ticks(range(0, count, 10 if count > 30 else 5))
            axis.set_tick_params(labelsize=8)
        else:
            write_pieces(axis, pieces[:count], min(72 * cell * 0.7, 10))
    if not numbered:
        axes.tick_params(axis="x", rotation=90)
    return axes, min(high / height, wide / width)


def _write_in_cells(axes, image, cell, texts):
    """Writes in each cell, if there is room: dark on light, and light on dark."""
    if cell < NUMBER:
        return
    colours = image.cmap(image.norm(image.get_array()))
    for (row, column), text in np.ndenumerate(texts):
        light = colours[row, column, :3] @ (0.2126, 0.7152, 0.0722)
        axes.text(
            column,
            row,
            text,
            color="black" if light > 0.45 else "white",
            fontsize=8,
            ha="center",
            va="center",
        )


def _write_title(figure, title, queries, keys):
    if max(len(queries), len(keys)) > MOST_PIECES:
        title = f"{title} (the first {MOST_PIECES} tokens)".strip()
    if title:
        (text,), families = spell([title], longest=200)
        figure.text(
            0,
            0.3,
            text,
            fontsize=11,
            fontfamily=families,
            parse_math=False,
            va="bottom",
        )


def _list(figure, theme, queries, keys, right):
    """Lists the tokens below a picture that has but their numbers."""
    y = figure.get_tightbbox().y0 - 0.35
    same = list(queries) == list(keys)
    columns = max(int(right / 1.3), 1)
    sides = [("tokens", keys)] if same else [("keys", keys), ("queries", queries)]
    for name, pieces in sides:
        figure.text(0, y, f"The {name} by number:", fontsize=9)
        y -= 0.22
        labels, families = spell(pieces[:MOST_PIECES])
        for number, label in enumerate(labels):
            row, column = divmod(number, columns)
            x, at = column * 1.3 + 0.25, y - row * 0.16
            # By themselves, or they would change places beside Arabic and Hebrew.
            figure.text(x - 0.05, at, number, fontsize=7, va="baseline", ha="right")
            figure.text(x, at, label, fontsize=8, fontfamily=families, parse_math=False)
        y -= math.ceil(len(labels) / columns) * 0.16 + 0.2


def _show(axes, weights, theme):
    from matplotlib.colors import PowerNorm

    # One hue from light to dark: the same for those who see few colours, and on paper.
    # The root lets small shares be seen, as those of long sentences are.
    return axes.imshow(
        weights,
        cmap=gradient(theme.shares),
        norm=PowerNorm(0.5, vmin=0, vmax=1),
        interpolation="nearest",
        aspect="auto",
    )


def _bar(figure, image, left, top):
    """A scale of shares, that hangs from a height."""
    high = 1.2
    bar = figure.add_axes((left, top - high, 0.12, high))
    bar = figure.colorbar(image, cax=bar, label="share of attention")
    ticks = [0, 0.02, 0.1, 0.25, 0.5, 1]
    bar.set_ticks(ticks, labels=[f"{tick:.0%}" for tick in ticks])
    bar.outline.set_visible(False)


def _grid(count):
    """Rows and columns for so many panels: higher than wide, without holes if it can.

    Example:
        >>> [_grid(count) for count in (2, 4, 7, 8, 16)]
        [(2, 1), (2, 2), (3, 3), (4, 2), (4, 4)]
    """
    least = math.ceil(math.sqrt(count))
    rows = next((n for n in range(least, 2 * least) if count % n == 0), least)
    return rows, math.ceil(count / rows)
