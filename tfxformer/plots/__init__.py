"""Pictures, drawn by Matplotlib: the extra ``plots``.

Each function takes arrays and returns a Matplotlib figure. A notebook shows the
figure, and `save` writes it to a PNG or SVG file. Matplotlib's styles apply: with
``matplotlib.style.context("dark_background")`` around the call, letters are light.
"""

import contextlib
import io
import math
from pathlib import Path

import numpy as np

from tfxformer.errors import write_file

LABEL, NUMBER = 0.13, 0.3  # inches that a cell needs for a label or a number
WIDE, HIGH = 7, 50  # inches of a picture's panels: a page shows 10 inches readably
FLOW = "#0f5c99"  # the colour of attention in `draw_decoding`
POSITION = "position (tokens from the start)"
STEP, RATE = "training step", "learning rate (no unit)"
# What a run measures: the split, the name, the label of the axis.
CURVES = (
    ("train", "loss", "training loss (nats a token)"),
    ("validation", "loss", "validation loss (nats a token)"),
    ("validation", "masked_accuracy", "validation accuracy (share)"),
    ("validation", "bleu", "validation BLEU (0 to 100)"),
    ("train", "learning_rate", RATE),
    ("train", "target_tokens_per_second", "speed (target tokens a second)"),
)


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
        >>> figure = draw_attention(["▁cat"], ["▁o", "▁gato"], [[0.1, 0.9]])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['10', '90']
    """
    from matplotlib.ticker import PercentFormatter

    name = {3: "head {1}", 4: "layer {0}, head {1}"}.get(np.ndim(weights), "")
    weights = by_layers(queries, keys, weights)
    percents = np.round(100 * weights).astype(int)
    with _panels(queries, keys, weights, percents, title) as (figure, grid):
        for number, axes in enumerate(grid.flat):
            layer, head = divmod(number, weights.shape[1])
            axes.set_title(name.format(layer + 1, head + 1))
        bar = {"aspect": 15, "shrink": min(1, 2.5 / figure.get_figheight())}
        bar |= {"ticks": (0, 0.02, 0.1, 0.25, 0.5, 1), "format": PercentFormatter(1, 0)}
        image = grid[0, 0].images[0]
        figure.colorbar(image, ax=grid, label="share of attention", **bar)
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

    mask = by_layers(queries, keys, mask)
    added = np.where(mask, "0", "−∞")
    with _panels(queries, keys, mask, added, title) as (figure, grid):
        colour = grid[0, 0].images[0].cmap
        may = Patch(facecolor=colour(1.0), label="may be read")
        hidden = Patch(facecolor=colour(0.0), label="is hidden")
        figure.legend(handles=[may, hidden], loc="outside right upper")
    return figure


def by_layers(queries, keys, weights):
    """Weights of any of the shapes above as a float array ``(layers, heads, Q, K)``."""
    weights = np.array(weights, "float32", ndmin=4)
    shape = weights.shape
    if len(shape) > 4 or shape[2:] != (len(queries), len(keys)) or 0 in shape:
        raise ValueError(f"{len(queries)} x {len(keys)} tokens, weights.{shape=}")
    return weights


@contextlib.contextmanager
def _panels(queries, keys, weights, texts, title):
    """Draws a panel for each head, with tokens and texts where there is room."""
    from matplotlib.colors import PowerNorm

    layers, heads = weights.shape[:2]
    most = max(len(queries), len(keys))
    # As many panels in a row as leave room for labels; else all heads of a layer.
    fitting = [
        columns
        for columns in range(1, heads + 1)
        if heads % columns == 0
        and columns * (most * LABEL + 0.2) <= WIDE
        and layers * heads / columns * (most * LABEL + 1) <= HIGH
    ]
    columns = max(fitting, default=heads)
    cell = min(max(2 / most, LABEL), 30 / heads / most)
    if fitting:
        cell = min(
            (WIDE / columns - 0.2) / most, 0.5 if heads == 1 else max(2 / most, 0.17)
        )
    rows = layers * heads // columns
    width, height = max(len(keys) * cell, 0.9), max(len(queries) * cell, 0.6)
    # With many rows, each has its own labels below.
    below = 0.4 if rows < 3 or cell < LABEL else 1.2
    size = columns * (width + 0.2) + 2.4, rows * (height + below) + 1.4
    with _drawing(*size) as figure:
        grid = figure.subplots(rows, columns, squeeze=False)
        panels = zip(weights.reshape(-1, *weights.shape[2:]), grid.flat, strict=True)
        for number, (shares, axes) in enumerate(panels):
            # The root shows small shares, such as those of long sentences.
            image = axes.imshow(shares, norm=PowerNorm(0.5, vmin=0, vmax=1))
            axes.locator_params(integer=True)
            if cell >= LABEL:
                style = {"fontsize": min(62 * cell, 10)}
                axes.set_xticks(range(len(keys)), keys, rotation=90, **style)
                axes.set_yticks(range(len(queries)), queries, **style)
            if cell >= NUMBER:
                place = divmod(number, heads)
                colours = image.cmap(image.norm(shares))
                for (row, column), text in np.ndenumerate(texts[place]):
                    light = colours[row, column, :3] @ (0.2126, 0.7152, 0.0722) > 0.45
                    style = {"color": "black" if light else "white", "size": 8}
                    axes.text(column, row, text, ha="center", va="center", **style)
            if rows < 3:
                axes.label_outer()
            elif number % columns:
                axes.tick_params(labelleft=False)
        figure.suptitle(title)
        figure.supxlabel("token that is read (key)")
        figure.supylabel("token that reads (query)")
        yield figure, grid


def draw_positions(encoding, kind="heatmap", depths=(1, 5, 15, 20)):
    """Draws positional encodings (section 3.5).

    Args:
        encoding: an array ``(positions, depth)``.
        kind: "heatmap" of all values, "curves" of some depths over position, or
            "similarity": the cosine of each position's angle to each other one. A
            heat map of sines and cosines shows all sines first, then all cosines.
        depths: which depths curves show, from 0.

    Returns:
        A Matplotlib figure.

    Example:
        >>> from tfxformer import positional_encoding
        >>> figure = draw_positions(positional_encoding(50, 128), "curves", (1, 7))
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['depth 1', 'depth 7']
    """
    encoding = np.asarray(encoding, "float64")
    if kind == "curves":
        with _drawing(8, 1.2 * len(depths) + 0.9) as figure:
            panels = figure.subplots(len(depths), sharex=True, squeeze=False)[:, 0]
            for axes, depth in zip(panels, depths, strict=True):
                axes.plot(encoding[:, depth])
                axes.set_ylabel(f"depth {depth}")
                axes.grid(True)
            panels[0].set_title("Positional encoding over position: values (no unit)")
            panels[-1].set_xlabel(POSITION)
            panels[-1].locator_params(axis="x", integer=True)
        return figure
    if kind == "heatmap":
        parts = [(encoding, "positional encoding", 0, 1)]
        pairs = encoding[:, : encoding.shape[1] // 2 * 2] ** 2
        if np.allclose(pairs[:, ::2] + pairs[:, 1::2], 1, atol=1e-3):
            parts = [(encoding[:, ::2], "sines: even depths", 0, 2)]
            parts += [(encoding[:, 1::2], "cosines: odd depths", 1, 2)]
        with _drawing(8, min(1.8 + 0.2 * len(encoding), 4.5)) as figure:
            grid = figure.subplots(1, len(parts), sharey=True, squeeze=False)[0]
            for axes, (values, title, first, step) in zip(grid, parts, strict=True):
                last = first + step * values.shape[1]
                edges = first - step / 2, last - step / 2, len(values) - 0.5, -0.5
                image = axes.imshow(values, extent=edges, vmin=-1, vmax=1)
                axes.set(title=title, xlabel="depth (component, from 0)")
                axes.locator_params(integer=True)
            grid[0].set_ylabel(POSITION)
            figure.colorbar(image, ax=grid, label="value (no unit)")
        return figure
    with _drawing(6, 5) as figure:
        axes = figure.add_subplot(title="Similarity between positions")
        axes.set(xlabel=POSITION, ylabel=POSITION)
        vectors = _unit(encoding)
        image = axes.imshow(vectors @ vectors.T, vmax=1, aspect="equal")
        axes.locator_params(integer=True)
        figure.colorbar(image, label="cosine similarity (no unit)")
    return figure


def draw_decoding(source, target, weights, shares, step=None, shown=1.0, note=""):
    """Draws a step of decoding: the new token, and which source tokens it reads.

    Args:
        source: the source's tokens, S strings.
        target: the translation's tokens, T strings.
        weights: attention of each target token to the source, an array ``(T, S)``.
        shares: the probability of each target token, T numbers.
        step: the number of the new token, from 0; None for all of them.
        shown: how much of the lines to draw, 0 to 1. Below 1, the token is not written.
        note: text below the picture.

    Returns:
        A Matplotlib figure.

    Example:
        >>> figure = draw_decoding(["gato"], ["a", "cat"], [[1], [1]], [0.9, 0.8], 1)
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['gato', 'a', 'cat', '90%', '80%', '']
    """
    from matplotlib.patches import FancyBboxPatch, PathPatch
    from matplotlib.path import Path as Curve

    weights = by_layers(target, source, weights)[0, 0]
    new = range(len(target)) if step is None else [step]
    tall, above, middle, below = 2.8, 2.25, 1.6, 0.95
    with _drawing(WIDE, tall) as figure:
        figure.set(dpi=150, layout_engine="none")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.axis("off")
        words = {"size": 13, "color": "black", "ha": "center", "va": "center_baseline"}
        texts = [axes.text(0, 0, token, **words) for token in (*source, *target)]
        widths = [text.get_window_extent().width / figure.dpi + 0.17 for text in texts]
        rows = np.split(np.array(widths) + 0.12, [len(source)])
        wide = max(WIDE, *(row.sum() + 0.4 for row in rows))
        middles = [row.cumsum() - row / 2 + (wide - row.sum()) / 2 for row in rows]
        figure.set_size_inches(wide, tall)
        axes.set(xlim=(0, wide), ylim=(0, tall))
        for number, (text, x) in enumerate(
            zip(texts, np.concatenate(middles), strict=True)
        ):
            query = number - len(source)
            y, edge = (below if query >= 0 else above), {"ec": "#aab4be", "lw": 1}
            if query < 0:
                read = 0 if step is None else shown * weights[step, number]
                fill = 1, 0.93 - 0.2 * read, 0.87 - 0.5 * read
            else:
                fill, edge = "#e3edf6", {"ec": FLOW, "lw": 2} if query == step else edge
            text.set_position((x, y))
            corner, width = (x - widths[number] / 2, y - 0.16), widths[number]
            round_ = "round,pad=0,rounding_size=0.06"
            chip = FancyBboxPatch(corner, width, 0.32, round_, fc=fill, **edge)
            axes.add_patch(chip).set_visible(query <= new[-1])
            text.set_visible(query <= new[-1] - (shown < 1))
            if 0 <= query <= new[-1] - (shown < 1):
                share = f"{shares[query]:.0%}"
                axes.text(x, y - 0.4, share, size=9, ha="center", alpha=0.7)
        for query, key in np.argwhere(weights > 0.01):
            if query in new:
                x, to, share = middles[1][query], middles[0][key], weights[query, key]
                points = (x, below + 0.2), (x, middle), (to, middle), (to, above - 0.2)
                line = {"lw": 0.5 + 6 * share, "alpha": shown * (0.2 + 0.6 * share)}
                curve = Curve(points, [Curve.MOVETO] + 3 * [Curve.CURVE4])
                axes.add_patch(PathPatch(curve, fc="none", ec=FLOW, zorder=0, **line))
        axes.text(wide / 2, 0.15, note, size=9, ha="center", alpha=0.7)
    return figure


def decoding_frames(source, target, weights, shares, note=""):
    """The frames of an animation: each token reads the source, then is written.

    It takes the arguments of `draw_decoding`, and yields pairs of a Matplotlib figure
    and the seconds to show it, for `gif`.
    """
    for step in range(len(target)):
        for shown, seconds in ((0.3, 0.1), (0.6, 0.1), (0.99, 0.4), (1, 0.7)):
            figure = draw_decoding(source, target, weights, shares, step, shown, note)
            yield figure, seconds
    yield draw_decoding(source, target, weights, shares, note=note), 3


def gif(frames):
    """An animated GIF, as bytes.

    Args:
        frames: pairs of a Matplotlib figure and how many seconds to show it.
    """
    from PIL import Image

    figures, seconds = zip(*frames, strict=True)
    images = [Image.open(io.BytesIO(png(x))).convert("RGB") for x in figures]
    palette = images[-2].quantize(64)  # one for all: what does not move stays the same
    first, *others = (image.quantize(palette=palette, dither=0) for image in images)
    file, times = io.BytesIO(), [round(1000 * x) for x in seconds]
    first.save(file, "GIF", save_all=True, append_images=others, duration=times, loop=0)
    return file.getvalue()


def draw_neighbours(embeddings, tokens, chosen, neighbours=6):
    """Draws which tokens' embeddings have the directions nearest to those of others.

    Args:
        embeddings: an array ``(tokens, depth)``.
        tokens: as many strings.
        chosen: some of the tokens, a panel each.
        neighbours: how many to show of each.

    Returns:
        A Matplotlib figure.

    Example:
        >>> vectors, tokens = [[1, 0.1], [1, 0], [0, 1]], ["▁cat", "▁dog", "▁the"]
        >>> figure = draw_neighbours(vectors, tokens, ["▁cat"])
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['▁dog', '▁the']
    """
    vectors, tokens = _unit(np.asarray(embeddings, "float64")), list(tokens)
    with _drawing(3.2 * len(chosen) + 0.5, 0.25 * neighbours + 1.7) as figure:
        for number, token in enumerate(chosen, 1):
            own = tokens.index(token)
            cosines = vectors @ vectors[own]
            near = [n for n in np.argsort(-cosines) if n != own][:neighbours]
            axes = figure.add_subplot(1, len(chosen), number, title=token)
            axes.barh(range(len(near)), cosines[near], color=f"C{number}")
            axes.set_yticks(range(len(near)), [tokens[place] for place in near])
            axes.set_xlim(min(0, cosines[near].min(initial=0)), 1)
            axes.invert_yaxis()
        figure.supxlabel("cosine similarity (no unit)")
    return figure


def _unit(vectors):
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


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
    at = np.unique(np.linspace(0, steps - 1, 400).astype(int))
    with _drawing(8, 4.5) as figure:
        axes = figure.add_subplot(title="Learning-rate schedule")
        axes.set(xlabel=STEP, ylabel=RATE)
        for number, (name, schedule) in enumerate(schedules.items()):
            rates = [float(schedule(int(step))) for step in at]
            axes.plot(at, rates, label=name, markevery=(number * 0.03, 0.12))
        axes.set_ylim(bottom=0)
        axes.grid(True)
        axes.legend()
    return figure


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
    longest = max(max(counts) for counts in lengths.values())
    edges = np.arange(0, longest + 51, longest // 50 + 1) - 0.5  # some 50 bins
    with _drawing(8, 4.5) as figure:
        axes = figure.add_subplot(title="How long sentences are")
        axes.set(xlabel=f"length ({unit})", ylabel="sentences (count)")
        for name, counts in lengths.items():
            half, most = np.percentile(counts, (50, 95), method="higher")
            label = f"{name}: half up to {half:,}, 95% up to {most:,} {unit}"
            axes.hist(counts, edges, alpha=0.5, label=label)
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
        ValueError: when the records have no measurements.

    Example:
        >>> rows = [{"step": n, "split": "train", "loss": 9 / n} for n in (1, 2, 3)]
        >>> [axes.get_ylabel() for axes in draw_curves({"tiny": rows}).axes]
        ['training loss (nats a token)']
    """
    panels = {}
    for split, name, label in CURVES:
        curves = {}  # of each run, the values by step
        for run, rows in runs.items():
            rows = [row for row in rows if row.get("split") == split and name in row]
            curves[run] = {row["step"]: row[name] for row in rows}
        if any(curves.values()):
            panels[label] = curves
    if not panels:
        raise ValueError("the runs have no measurements to draw")
    columns = min(len(panels), 2)
    rows = math.ceil(len(panels) / columns)
    with _drawing(4.8 * columns, 3 * rows + 0.5) as figure:
        for place, (label, curves) in enumerate(panels.items(), 1):
            axes = figure.add_subplot(rows, columns, place, xlabel=STEP, ylabel=label)
            for number, (run, curve) in enumerate(curves.items()):
                every = (number * 0.03, 0.15) if len(curve) > 10 else None
                axes.plot(curve.keys(), curve.values(), label=run, markevery=every)
            axes.grid(True)
        lines = axes.get_legend_handles_labels()
        figure.legend(*lines, loc="outside upper left", ncols=min(len(runs), 3))
    return figure


def png(figure, form="png"):
    """A Matplotlib figure as the bytes of a PNG file, or one of another form."""
    file = io.BytesIO()
    figure.savefig(file, format=form, dpi=figure.dpi)
    return file.getvalue()


def save(figure, path):
    """Writes a figure to a file.

    Args:
        figure: a Matplotlib figure.
        path: where to; it ends in ``.png``, ``.svg`` or what else Matplotlib writes.

    Returns:
        The path.

    Raises:
        UserError: when the file cannot be written.
    """
    return write_file(path, png(figure, Path(path).suffix[1:].lower()))


@contextlib.contextmanager
def _drawing(width, height):
    """A new figure, in inches, in our style over the user's: it needs no screen."""
    from matplotlib import font_manager, rcParams, style
    from matplotlib.figure import Figure

    with style.context("tfxformer.plots.pictures"):  # pictures.mplstyle
        installed = {*font_manager.get_font_names()}
        rcParams["font.family"] = [x for x in rcParams["font.family"] if x in installed]
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        figure.draw_without_rendering()  # makes the ticks while the style holds
    figure._repr_png_ = lambda: png(figure)  # for notebooks
