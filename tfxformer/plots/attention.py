"""Pictures of attention, and of the masks that say what may be read."""

import math

import numpy as np

from tfxformer.plots.style import drawing

LONGEST_LABEL = 20  # characters
LABEL, NUMBER = 0.11, 0.3  # inches that a cell needs for a label or a number
KEYS, QUERIES = "token that is read (key)", "token that reads (query)"


def draw_attention(queries, keys, weights, title=""):
    """Draws attention: a row for each token that reads, a column for each it reads.

    One head, all heads of a layer, or all layers, a panel for each head (section
    3.2.2). Where there is room, the cells have their shares in percent. In long
    sentences many panels have no room for tokens and show their positions.

    Args:
        queries: the tokens that read, Q strings.
        keys: the tokens that are read, K strings.
        weights: an array ``(Q, K)``, ``(heads, Q, K)`` or ``(layers, heads, Q, K)``;
            each row sums to 1.
        title: text above the picture.

    Returns:
        A Matplotlib figure.

    Raises:
        ValueError: when the numbers of tokens and weights differ.

    Example:
        >>> weights = [[0.9, 0.1], [0.2, 0.8]]
        >>> figure = draw_attention(["▁the", "▁cat"], ["▁o", "▁gato"], weights)
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['90', '10', '20', '80']
        >>> figure = draw_attention([*"ab"], [*"ab"], np.full((6, 8, 2, 2), 0.5))
        >>> [axes.get_title() for axes in figure.axes][8]
        'layer 2, head 1'
    """
    from matplotlib.colors import PowerNorm
    from matplotlib.ticker import PercentFormatter

    weights = _checked(weights, queries, keys, ranks=(2, 3, 4)).astype("float32")
    heads = (
        [f"head {n + 1}" for n in range(weights.shape[-3])]
        if weights.ndim > 2
        else [""]
    )
    names, columns, size = heads, min(len(heads), 4), 2.6 if weights.ndim > 2 else 5
    if weights.ndim == 4:
        names = [
            f"layer {n + 1}, {head}" for n in range(len(weights)) for head in heads
        ]
        columns, size = len(heads), 1.8
    panels = np.nan_to_num(weights.reshape(-1, *weights.shape[-2:]))
    rows = math.ceil(len(panels) / columns)
    cell, width, height = _size(queries, keys, size, columns)
    with drawing(columns * (width + 0.2) + 2.4, rows * (height + 0.4) + 1.4) as figure:
        places = figure.subplots(rows, columns, squeeze=False).ravel()
        for number, (axes, name, shares) in enumerate(
            zip(places[: len(panels)], names, panels, strict=True)
        ):
            # The root shows small shares, such as those of long sentences.
            image = axes.imshow(shares, norm=PowerNorm(0.5, vmin=0, vmax=1))
            axes.set_title(name)
            _label(axes, queries, keys, cell)
            axes.tick_params(labelbottom=number + columns >= len(panels))
            axes.tick_params(labelleft=number % columns == 0)
            if cell >= NUMBER:
                _write(axes, image, np.round(100 * shares).astype(int).astype(str))
        for axes in places[len(panels) :]:
            axes.remove()
        figure.suptitle(title)
        figure.supxlabel(KEYS, fontsize=10)
        figure.supylabel(QUERIES, fontsize=10)
        figure.colorbar(
            image,
            ax=places[: len(panels)].tolist(),
            label="share of attention",
            ticks=[0, 0.02, 0.1, 0.25, 0.5, 1],
            format=PercentFormatter(1),
            shrink=min(1, 2.5 / figure.get_figheight()),
            aspect=15,
        )
    return figure


def draw_mask(queries, keys, mask, title=""):
    """Draws a mask: which token may read which, and what is added to the scores.

    The mask adds nothing or minus infinity, and softmax makes a share of exactly 0 of
    minus infinity (section 3.2.3). Short sentences have the number in each cell.

    Args:
        queries: the tokens that read, Q strings.
        keys: the tokens that are read, K strings.
        mask: a boolean array ``(Q, K)``, True where a token may be read.
        title: text above the picture.

    Returns:
        A Matplotlib figure.

    Raises:
        ValueError: when the numbers of tokens and places in the mask differ.

    Example:
        >>> figure = draw_mask([*"ab"], [*"ab"], [[True, False], [True, True]])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['0', '−∞', '0', '0']
    """
    from matplotlib.patches import Patch

    mask = _checked(mask, queries, keys, ranks=(2,)) > 0
    cell, width, height = _size(queries, keys, 5, columns=1)
    with drawing(width + 2.5, height + 1.4) as figure:
        axes = figure.add_subplot(title=title, xlabel=KEYS, ylabel=QUERIES)
        image = axes.imshow(mask, vmin=0, vmax=1)
        _label(axes, queries, keys, cell)
        if cell >= NUMBER:
            _write(axes, image, np.where(mask, "0", "−∞"))
        patches = [
            Patch(facecolor=image.cmap(share), label=label)
            for share, label in ((1.0, "may be read"), (0.0, "is hidden"))
        ]
        figure.legend(handles=patches, loc="outside right upper")
    return figure


def _checked(weights, queries, keys, ranks):
    weights = np.asarray(weights)
    shape = weights.shape
    if len(shape) not in ranks or shape[-2:] != (len(queries), len(keys)):
        raise ValueError(f"{len(queries)} x {len(keys)} tokens, weights.{shape=}")
    if 0 in shape:
        raise ValueError(f"there is nothing to draw: weights.{shape=}")
    return weights


def _size(queries, keys, size, columns):
    """The side of a cell, and the width and the height of a panel: inches."""
    most = max(len(queries), len(keys))
    cell = min(max(size / most, LABEL), 30 / columns / most, 0.5)
    return cell, max(len(keys) * cell, 0.9), max(len(queries) * cell, 0.6)


def _label(axes, queries, keys, cell):
    """Writes the tokens at both axes, or their positions where there is no room."""
    if cell < LABEL:
        axes.locator_params(integer=True)
        return
    for axis, tokens in ((axes.xaxis, keys), (axes.yaxis, queries)):
        labels = [
            token if len(token) <= LONGEST_LABEL else f"{token[:LONGEST_LABEL]}…"
            for token in tokens
        ]
        axis.set_ticks(range(len(labels)), labels, fontsize=min(54 * cell, 10))
    axes.tick_params(axis="x", rotation=90)


def _write(axes, image, texts):
    """Writes a text in each cell: dark on light, and light on dark."""
    colours = image.cmap(image.norm(image.get_array()))
    for (row, column), text in np.ndenumerate(texts):
        light = colours[row, column, :3] @ (0.2126, 0.7152, 0.0722)
        colour = "black" if light > 0.45 else "white"
        axes.text(column, row, text, color=colour, size=8, ha="center", va="center")
