"""Pictures, drawn by Matplotlib: the extra ``plots``.

Each function takes arrays and returns a Matplotlib figure. A notebook shows the
figure, and its ``savefig`` writes it to a file. Matplotlib's styles apply: with
``matplotlib.style.context("dark_background")`` around the call, letters are light.
"""

import contextlib
import io
import math

import numpy as np

from tfxformer.errors import UserError

# In inches. A page shows a picture readably if it is at most 10 inches wide.
PANELS_WIDTH = 8  # of the panels of a row, without what is around them
PANELS_HEIGHT = 150  # of the panels of a column
LABELLED_CELL = 0.13  # a cell of this size has room for its token's label
NUMBERED_CELL = 0.3  # a cell of this size has room for a number

POSITION = "position (tokens from the start)"
# What a run measures: the label of the axis, then the split and the name in records.
MEASUREMENTS = {
    "training loss (nats a token)": ("train", "loss"),
    "validation loss (nats a token)": ("validation", "loss"),
    "validation accuracy (share)": ("validation", "masked_accuracy"),
    "validation BLEU (0 to 100)": ("validation", "bleu"),
    "learning rate (no unit)": ("train", "learning_rate"),
    "speed (target tokens a second)": ("train", "target_tokens_per_second"),
}


def draw_attention(
    queries, keys, weights, title="", *, rows="token (query)", columns="token (key)"
):
    """Draws attention: a row for each query, a column for each key.

    Each head has a panel (section 3.2.2). Where there is room, the cells have their
    shares in percent.

    Args:
        queries: the tokens that read, Q strings.
        keys: the tokens that are read, K strings.
        weights: an array ``(Q, K)``, ``(heads, Q, K)`` or ``(layers, heads, Q, K)``;
            each row sums to 1.
        title: text above the picture.
        rows: what the rows are, such as "target token".
        columns: what the columns are, such as "source token".

    Returns:
        A Matplotlib figure.

    Raises:
        ValueError: when the numbers of tokens and weights differ.

    Example:
        >>> figure = draw_attention(["▁cat"], ["▁o", "▁gato"], [[0.1, 0.9]])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['10', '90']
    """
    # Panels have names where the weights have heads, and maybe layers.
    names = {3: "head {head}", 4: "layer {layer}, head {head}"}
    name = names.get(np.ndim(weights), "")
    weights = expand_weights(queries, keys, weights)  # (layers, heads, Q, K)
    texts = np.round(100 * weights).astype(int)
    # The bar of colours has these ticks, and a label.
    ticks = {share: f"{share:.0%}" for share in (0, 0.1, 0.5, 1)}
    names = {"title": title, "rows": rows, "columns": columns, "name": name}
    label = "share of attention, square-root scale"
    return _draw_heads(queries, keys, weights, texts, ticks=ticks, label=label, **names)


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
    mask = expand_weights(queries, keys, mask)  # (1, 1, Q, K), 1 where it was True
    texts = np.where(mask, "0", "−∞")  # what the mask adds to the scores
    ticks = {0: "is hidden", 1: "may be read"}
    names = {"title": title, "rows": "token (query)", "columns": "token (key)"}
    return _draw_heads(queries, keys, mask, texts, ticks=ticks, levels=2, **names)


def expand_weights(queries, keys, weights):
    """Adds the axes that weights lack.

    Args:
        queries: the tokens that read, Q strings.
        keys: the tokens that are read, K strings.
        weights: an array of any shape that `draw_attention` takes.

    Returns:
        A float32 array ``(layers, heads, Q, K)``.

    Raises:
        ValueError: when the numbers of tokens and weights differ.

    Example:
        >>> expand_weights(["▁cat"], ["▁o", "▁gato"], [[0.1, 0.9]]).shape
        (1, 1, 1, 2)
    """
    weights = np.array(weights, "float32", ndmin=4)
    shape = weights.shape
    if len(shape) > 4 or shape[2:] != (len(queries), len(keys)) or 0 in shape:
        raise ValueError(f"{len(queries)} x {len(keys)} tokens, weights.{shape=}")
    return weights


def _draw_heads(
    queries,
    keys,
    weights,
    texts,
    *,
    title,
    rows,
    columns,
    ticks,
    label="",
    levels=256,
    name="",
):
    """Draws a panel for each head, with tokens and texts where there is room."""
    from matplotlib import colormaps
    from matplotlib.colors import PowerNorm

    layers, heads = weights.shape[:2]
    tokens = max(len(queries), len(keys))
    # The heads of a layer fill whole rows, which leave room for the tokens' labels.
    divisors = [n for n in range(1, heads + 1) if heads % n == 0]
    fitting = [n for n in divisors if n * tokens * LABELLED_CELL <= PANELS_WIDTH]
    across = max(fitting, default=1)
    down = layers * heads // across
    cell = max(PANELS_WIDTH / across / tokens, LABELLED_CELL)
    cell = min(cell, PANELS_HEIGHT / down / tokens, 0.5)
    # Besides cells, there is room for titles, labels and the colour bar.
    width = max(across * max(len(keys) * cell, 1.1), 2.5) + 1.4
    height = down * (max(len(queries) * cell, 0.6) + 1.2) + 1.1
    # The root shows small shares, such as those of long sentences.
    scale = PowerNorm(0.5, vmin=0, vmax=1)
    colours = colormaps["viridis"].resampled(levels)
    with drawing(width, height) as figure:
        panels = figure.subplots(down, across, sharey=True, squeeze=False)
        for (layer, head), axes in np.ndenumerate(panels.reshape(layers, heads)):
            axes.set_title(name.format(layer=layer + 1, head=head + 1))
            image = axes.imshow(weights[layer, head], norm=scale, cmap=colours)
            if cell >= LABELLED_CELL:
                size = min(62 * cell, 10)  # points
                axes.set_xticks(range(len(keys)), keys, rotation=90, fontsize=size)
                axes.set_yticks(range(len(queries)), queries, fontsize=size)
            else:
                axes.locator_params(integer=True)
            if cell >= NUMBERED_CELL:
                _write_texts(axes, texts[layer, head], weights[layer, head])
        figure.suptitle(title)
        figure.supxlabel(columns)
        figure.supylabel(rows)
        place = {"location": "top", "aspect": 40, "pad": 0.3 / height}
        bar = figure.colorbar(image, ax=panels, label=label, **place)
        bar.set_ticks([*ticks], labels=ticks.values())
    return figure


def _write_texts(axes, texts, weights):
    """Writes a text into each cell of a panel, in black where the cell is light."""
    for (row, column), text in np.ndenumerate(texts):
        colour = "black" if weights[row, column] > 0.35 else "white"
        axes.text(column, row, text, color=colour, ha="center", va="center", size=8)


def draw_positions(encoding, kind="heatmap", columns=(1, 5, 15, 20)):
    """Draws positional encodings (section 3.5).

    Args:
        encoding: an array ``(positions, columns)``.
        kind: "heatmap" of all values, "curves" of some columns over position, or
            "similarity": the cosine of each position's angle to each other one. The
            heat map shows all even columns first, the paper's sines, then all odd ones.
        columns: which columns curves show, from 0.

    Returns:
        A Matplotlib figure.

    Example:
        >>> from tfxformer import positional_encoding
        >>> figure = draw_positions(positional_encoding(50, 128), "curves", (1, 7))
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['column 1', 'column 7']
    """
    encoding = np.asarray(encoding, "float64")
    if kind == "curves":
        return _draw_position_curves(encoding, columns)
    if kind == "heatmap":
        return _draw_position_heat_map(encoding)
    return _draw_position_similarity(encoding)


def _draw_position_curves(encoding, columns):
    """Draws a panel for each column: its values over position."""
    with drawing(8, 1.2 * len(columns) + 0.9) as figure:
        panels = figure.subplots(len(columns), sharex=True, squeeze=False)[:, 0]
        for axes, column in zip(panels, columns, strict=True):
            axes.plot(encoding[:, column])
            axes.set_ylabel(f"column {column}")
            axes.grid(True)
        panels[0].set_title("Positional encoding over position: values (no unit)")
        panels[-1].set_xlabel(POSITION)
        panels[-1].locator_params(axis="x", integer=True)
    return figure


def _draw_position_heat_map(encoding):
    """Draws two panels with the values of the even and of the odd columns."""
    with drawing(8, min(1.8 + 0.2 * len(encoding), 4.5)) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        for first_column, axes in enumerate(panels):
            values = encoding[:, first_column::2]  # (positions, columns / 2)
            # A cell is 2 columns wide, with its own column in the middle.
            left = first_column - 1
            right = left + 2 * values.shape[1]
            extent = (left, right, len(values) - 0.5, -0.5)
            image = axes.imshow(values, extent=extent, vmin=-1, vmax=1)
            axes.set_xlabel("column (from 0)")
            axes.locator_params(integer=True)
        panels[0].set(title="even columns (sines in the paper)", ylabel=POSITION)
        panels[1].set_title("odd columns (cosines in the paper)")
        figure.colorbar(image, ax=panels, label="value (no unit)")
    return figure


def _draw_position_similarity(encoding):
    """Draws the cosine similarity of each two positions."""
    with drawing(6, 5) as figure:
        axes = figure.add_subplot(title="Similarity between positions")
        axes.set(xlabel=POSITION, ylabel=POSITION)
        vectors = _normalize(encoding)  # their products are cosines
        image = axes.imshow(vectors @ vectors.T, vmax=1, aspect="equal")
        axes.locator_params(integer=True)
        figure.colorbar(image, label="cosine similarity (no unit)")
    return figure


def _normalize(vectors):
    """Gives each row the length 1; rows of zeros stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)  # (rows, 1)
    return vectors / np.maximum(lengths, 1e-12)


def draw_tensors(tensors, tokens, *, columns=None, shared=False):
    r"""Draws matrices with a row for each token, side by side.

    Blue is negative, white is 0, red is positive. Each matrix has a scale below it,
    which leaves out the largest hundredth of its numbers.

    Args:
        tensors: a dict of names and arrays ``(tokens, columns)``, in the order of
            their computation.
        tokens: the tokens of the rows, strings.
        columns: how many columns to draw, the first ones; None draws all.
        shared: give all matrices one scale, so that their colours compare.

    Returns:
        A Matplotlib figure. The names of matrices have their whole shapes below.

    Raises:
        ValueError: when the numbers of tokens and rows differ.

    Example:
        >>> figure = draw_tensors({"x": [[1, -1], [0, 2]]}, ["▁a", "▁cat"])
        >>> figure.axes[0].get_title()
        'x\n2 × 2'
    """
    matrices = {name: np.asarray(matrix) for name, matrix in tensors.items()}
    for name, matrix in matrices.items():
        if matrix.ndim != 2 or len(matrix) != len(tokens):
            raise ValueError(f"{len(tokens)} tokens, {name} has shape {matrix.shape}")
    drawn = {name: matrix[:, :columns] for name, matrix in matrices.items()}
    largest = [np.percentile(abs(matrix), 99) for matrix in drawn.values()]
    # Wide matrices have wider panels, and narrow ones have room for their names.
    widths = [max(matrix.shape[1], 40) for matrix in drawn.values()]
    with drawing(PANELS_WIDTH + 1, 1.6 + 0.25 * len(tokens)) as figure:
        panels = figure.subplots(1, len(matrices), width_ratios=widths, squeeze=False)
        for axes, name, own in zip(panels[0], drawn, largest, strict=True):
            most = max(max(largest) if shared else own, 1e-12)
            colours = {"cmap": "RdBu_r", "vmin": -most, "vmax": most}
            image = axes.imshow(drawn[name], aspect="auto", **colours)
            place = {"location": "bottom", "pad": 0.02, "extend": "both"}
            figure.colorbar(image, ax=axes, **place)
            axes.set_title("{}\n{} × {}".format(name, *matrices[name].shape))
            axes.set(xticks=[], yticks=[])
        panels[0, 0].set_yticks(range(len(tokens)), tokens)
        first = f"the first {columns} " if columns else ""
        figure.supxlabel(f"{first}numbers of each token's vector")
    return figure


def draw_schedules(schedules, steps):
    """Draws learning rates over training steps (section 5.3).

    Args:
        schedules: a dict of names and callables, each from a step, from 0, to a rate.
        steps: how many steps.

    Returns:
        A Matplotlib figure.

    Example:
        >>> figure = draw_schedules({"constant": lambda step: 1e-3}, 1000)
        >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
        ('training step', 'learning rate (no unit)')
    """
    # 400 points make a smooth curve.
    drawn_steps = np.unique(np.linspace(0, steps - 1, 400).astype(int)).tolist()
    runs = {}
    for name, schedule in schedules.items():
        runs[name] = [
            {"split": "train", "step": step, "learning_rate": float(schedule(step))}
            for step in drawn_steps
        ]
    return draw_curves(runs)


def draw_lengths(lengths, unit="tokens"):
    """Draws how long sentences are, a histogram for each side.

    Args:
        lengths: a dict of names and integers, the sentences' lengths.
        unit: what the lengths count.

    Returns:
        A Matplotlib figure.

    Example:
        >>> figure = draw_lengths({"source": [3, 4, 4, 9]})
        >>> figure.axes[0].get_legend().get_texts()[0].get_text()
        'source: half up to 4, 95% up to 9 tokens'
    """
    longest = max(max(side) for side in lengths.values())
    bin_width = longest // 50 + 1  # some 50 bins
    # Each bin has whole lengths, so its edges lie halfway between two.
    edges = np.arange(0, longest + 51, bin_width) - 0.5
    with drawing(8, 4.5) as figure:
        axes = figure.add_subplot(title="How long sentences are")
        axes.set(xlabel=f"length ({unit})", ylabel="sentences (count)")
        for name, side in lengths.items():
            half, most = np.percentile(side, (50, 95), method="higher")
            label = f"{name}: half up to {half:,}, 95% up to {most:,} {unit}"
            axes.hist(side, edges, alpha=0.5, label=label)
        axes.set_xlim(0, longest + 1)
        axes.grid(True)
        axes.legend()
    return figure


def draw_curves(runs):
    """Draws the training curves of runs: a panel for each thing that was measured.

    Args:
        runs: a dict of names and lists of records, as a run folder's
            ``metrics.jsonl`` has them: dicts with ``step``, ``split`` ("train" or
            "validation") and values, such as ``loss``.

    Returns:
        A Matplotlib figure.

    Raises:
        UserError: when the records have no measurements.

    Example:
        >>> rows = [{"step": n, "split": "train", "loss": 9 / n} for n in (1, 2, 3)]
        >>> [axes.get_ylabel() for axes in draw_curves({"tiny": rows}).axes]
        ['training loss (nats a token)']
    """
    panels = {}  # the curves of all runs, by the label of their panel
    for label, (split, name) in MEASUREMENTS.items():
        curves = {run: _pick_curve(rows, split, name) for run, rows in runs.items()}
        if any(curves.values()):
            panels[label] = curves
    if not panels:
        raise UserError("the runs have no measurements to draw")
    columns = min(len(panels), 2)
    rows = math.ceil(len(panels) / columns)
    with drawing(9, 3 * rows + 1.5) as figure:
        for place, (label, curves) in enumerate(panels.items(), 1):
            axes = figure.add_subplot(rows, columns, place, ylabel=label)
            for number, (run, curve) in enumerate(curves.items()):
                (line,) = axes.plot(curve.keys(), curve.values(), label=run)
                # Where curves lie on each other, their markers stay apart.
                first_marker = number * 0.03  # as a share of the panel's diagonal
                line.set_markevery((first_marker, 0.12))
            axes.set_xlabel("training step")
            axes.grid(True)
        # All panels have the same runs, so the last one's legend is for all.
        handles, names = axes.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper left", ncols=min(len(runs), 3))
    return figure


def _pick_curve(rows, split, name):
    """The values of one measurement in a run's records: a dict by step."""
    rows = [row for row in rows if row.get("split") == split and name in row]
    return {row["step"]: row[name] for row in rows}


def png(figure, form="png"):
    """Turns a Matplotlib figure into the bytes of a file.

    Args:
        figure: a Matplotlib figure.
        form: "png", or another form that Matplotlib writes.

    Returns:
        The bytes.

    Example:
        >>> png(draw_lengths({"source": [3, 4, 4, 9]}))[1:4]
        b'PNG'
    """
    file = io.BytesIO()
    figure.savefig(file, format=form, dpi=figure.dpi)
    return file.getvalue()


@contextlib.contextmanager
def drawing(width, height):
    """Makes a figure in our style over the user's. It needs no screen.

    Args:
        width: of the figure, in inches.
        height: of the figure, in inches.

    Yields:
        A Matplotlib figure to draw on; a notebook shows it.

    Example:
        >>> with drawing(8, 4.5) as figure:
        ...     axes = figure.add_subplot(title="A title")
    """
    from matplotlib import font_manager, rcParams, style
    from matplotlib.figure import Figure

    with style.context("tfxformer.plots.pictures"):  # pictures.mplstyle
        installed = set(font_manager.get_font_names())
        fonts = [font for font in rcParams["font.family"] if font in installed]
        rcParams["font.family"] = fonts
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        figure.draw_without_rendering()  # makes the ticks while the style holds
    figure._repr_png_ = lambda: png(figure)  # for notebooks
