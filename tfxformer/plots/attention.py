"""Pictures of attention, and of the masks that say what may be read."""

import numpy as np

from tfxformer.plots.style import drawing

LONGEST_LABEL = 20  # characters
LABEL, NUMBER = 0.11, 0.3  # inches that a cell needs for a label or a number
KEYS, QUERIES = "token that is read (key)", "token that reads (query)"


def draw_attention(queries, keys, weights, title=""):
    """Draws attention: a row for each token that reads, a column for each it reads.

    One head, all heads of a layer, or all layers, a panel for each head (section
    3.2.2). Where there is room, the cells have their shares in percent. Where there is
    none for the tokens, in many panels of a long sentence, they have numbers.

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
    _check(weights, queries, keys)
    name = {3: "head {1}", 4: "layer {0}, head {1}"}.get(np.ndim(weights), "")
    weights = np.nan_to_num(np.array(weights, "float32", ndmin=4))
    layers, heads = weights.shape[:2]
    cell, width, height = _size(queries, keys, 5 if heads == 1 else 2, heads)
    with drawing(heads * (width + 0.2) + 2.4, layers * (height + 0.4) + 1.4) as figure:
        grid = figure.subplots(layers, heads, squeeze=False)
        for (layer, head), axes in np.ndenumerate(grid):
            shares = weights[layer, head]
            percents = np.round(100 * shares).astype(int)
            image = _show(axes, queries, keys, shares, cell, percents)
            axes.set_title(name.format(layer + 1, head + 1))
            axes.label_outer()
        figure.suptitle(title, fontsize=11)
        figure.supxlabel(KEYS, fontsize=10)
        figure.supylabel(QUERIES, fontsize=10)
        shrink = min(1, 2.5 / figure.get_figheight())
        bar = figure.colorbar(image, ax=grid, aspect=15, shrink=shrink)
        ticks = (0, 2, 10, 25, 50, 100)
        bar.set_ticks([tick / 100 for tick in ticks], labels=[f"{t}%" for t in ticks])
        bar.set_label("share of attention")
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

    _check(mask, queries, keys)
    mask = np.asarray(mask, "float32")
    cell, width, height = _size(queries, keys, 5)
    with drawing(width + 2.5, height + 1.4) as figure:
        axes = figure.add_subplot(title=title, xlabel=KEYS, ylabel=QUERIES)
        image = _show(axes, queries, keys, mask, cell, np.where(mask > 0, "0", "−∞"))
        may = Patch(facecolor=image.cmap(1.0), label="may be read")
        hidden = Patch(facecolor=image.cmap(0.0), label="is hidden")
        figure.legend(handles=[may, hidden], loc="outside right upper")
    return figure


def _check(weights, queries, keys):
    shape = np.shape(weights)
    if len(shape) > 4 or shape[-2:] != (len(queries), len(keys)) or 0 in shape:
        raise ValueError(f"{len(queries)} x {len(keys)} tokens, weights.{shape=}")


def _size(queries, keys, size, columns=1):
    """The side of a cell, and the width and the height of a panel: inches."""
    most = max(len(queries), len(keys))
    cell = min(max(size / most, LABEL), 30 / columns / most, 0.5)
    return cell, max(len(keys) * cell, 0.9), max(len(queries) * cell, 0.6)


def _show(axes, queries, keys, array, cell, texts):
    """Draws an array with tokens at both axes and, with room, texts in its cells."""
    from matplotlib.colors import PowerNorm

    # The root shows small shares, such as those of long sentences.
    image = axes.imshow(array, norm=PowerNorm(0.5, vmin=0, vmax=1))
    axes.locator_params(integer=True)
    if cell >= LABEL:
        for axis, tokens in ((axes.xaxis, keys), (axes.yaxis, queries)):
            cut = [
                f"{t[:LONGEST_LABEL]}{'…' * (len(t) > LONGEST_LABEL)}" for t in tokens
            ]
            axis.set_ticks(range(len(cut)), cut, fontsize=min(54 * cell, 10))
        axes.tick_params(axis="x", rotation=90)
    if cell >= NUMBER:
        colours = image.cmap(image.norm(array))
        for (row, column), text in np.ndenumerate(texts):
            light = colours[row, column, :3] @ (0.2126, 0.7152, 0.0722) > 0.45
            style = {"color": "black" if light else "white", "size": 8}
            axes.text(column, row, text, ha="center", va="center", **style)
    return image
