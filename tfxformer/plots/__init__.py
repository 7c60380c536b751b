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

LABEL, NUMBER = 0.13, 0.3  # inches that a cell needs for a label or a number
WIDE, HIGH = 8, 150  # inches of a picture's panels: a page shows 10 inches readably
POSITION = "position (tokens from the start)"
# What a run measures: the split, the name, the label of the axis.
CURVES = (
    ("train", "loss", "training loss (nats a token)"),
    ("validation", "loss", "validation loss (nats a token)"),
    ("validation", "masked_accuracy", "validation accuracy (share)"),
    ("validation", "bleu", "validation BLEU (0 to 100)"),
    ("train", "learning_rate", "learning rate (no unit)"),
    ("train", "target_tokens_per_second", "speed (target tokens a second)"),
)


def draw_attention(queries, keys, weights, title=""):
    """Draws attention: a row for each token that reads, a column for each it reads.

    Each head has a panel (section 3.2.2). Where there is room, the cells have their
    shares in percent.

    Args:
        queries: the tokens that read, Q strings.
        keys: the tokens that are read, K strings.
        weights: an array ``(Q, K)``, ``(heads, Q, K)`` or ``(layers, heads, Q, K)``;
            each row sums to 1.
        title: text above the picture.

    Raises:
        ValueError: when the numbers of tokens and weights differ.

    Example:
        >>> figure = draw_attention(["▁cat"], ["▁o", "▁gato"], [[0.1, 0.9]])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['10', '90']
    """
    name = {3: "head {1}", 4: "layer {0}, head {1}"}.get(np.ndim(weights), "")
    weights = by_layers(queries, keys, weights)
    percents = np.round(100 * weights).astype(int)
    colours = {share: f"{share:.0%}" for share in (0, 0.02, 0.1, 0.25, 0.5, 1)}
    label = "share of attention"
    return _draw_panels(queries, keys, weights, percents, title, colours, label, name)


def draw_mask(queries, keys, mask, title=""):
    """Draws a mask: which token may read which, and what is added to the scores.

    The mask adds nothing or minus infinity, and softmax makes a share of exactly 0 of
    minus infinity (section 3.2.3). Short sentences have the number in each cell.

    Args:
        queries: the tokens that read, Q strings.
        keys: the tokens that are read, K strings.
        mask: a boolean array ``(Q, K)``, True where a token may be read.
        title: text above the picture.

    Raises:
        ValueError: when the numbers of tokens and places in the mask differ.

    Example:
        >>> figure = draw_mask([*"ab"], [*"ab"], [[True, False], [True, True]])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['0', '−∞', '0', '0']
    """
    mask = by_layers(queries, keys, mask)
    colours = {0: "is hidden", 1: "may be read"}
    added = np.where(mask, "0", "−∞")
    return _draw_panels(queries, keys, mask, added, title, colours)


def by_layers(queries, keys, weights):
    """Weights of any of the shapes above as a float array ``(layers, heads, Q, K)``."""
    weights = np.array(weights, "float32", ndmin=4)
    shape = weights.shape
    if len(shape) > 4 or shape[2:] != (len(queries), len(keys)) or 0 in shape:
        raise ValueError(f"{len(queries)} x {len(keys)} tokens, weights.{shape=}")
    return weights


def _draw_panels(queries, keys, weights, texts, title, colours, label="", name=""):
    """Draws a panel for each head, with tokens and texts where there is room."""
    from matplotlib import colormaps
    from matplotlib.colors import PowerNorm

    # The root shows small shares, such as those of long sentences.
    scale = {"norm": PowerNorm(0.5, vmin=0, vmax=1)}
    scale["cmap"] = colormaps["viridis"].resampled(2 if len(colours) == 2 else 256)
    layers, heads, *shape = weights.shape
    most = max(shape)
    # As many panels in a row as leave room for labels.
    divisors = [n for n in range(1, heads + 1) if heads % n == 0]
    columns = max([1] + [n for n in divisors if n * most * LABEL <= WIDE])
    rows = layers * heads // columns
    cell = min(0.5, max(WIDE / columns / most, LABEL), HIGH / rows / most)
    width = max(columns * max(len(keys) * cell, 1.1), 2.5) + 1.4
    height = rows * (max(len(queries) * cell, 0.6) + 1.2) + 1.1
    with drawing(width, height) as figure:
        grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
        places = np.ndindex(layers, heads)
        for (layer, head), axes in zip(places, grid.flat, strict=True):
            axes.set_title(name.format(layer + 1, head + 1))
            shares = weights[layer, head]
            image = axes.imshow(shares, **scale)
            if cell >= LABEL:
                size = min(62 * cell, 10)
                axes.set_xticks(range(len(keys)), keys, rotation=90, fontsize=size)
                axes.set_yticks(range(len(queries)), queries, fontsize=size)
            else:
                axes.locator_params(integer=True)
            if cell >= NUMBER:
                for (row, column), text in np.ndenumerate(texts[layer, head]):
                    colour = "black" if shares[row, column] > 0.35 else "white"
                    style = {"color": colour, "ha": "center", "va": "center", "size": 8}
                    axes.text(column, row, text, **style)
        figure.suptitle(title)
        figure.supxlabel("token that is read (key)")
        figure.supylabel("token that reads (query)")
        place = {"location": "top", "aspect": 40, "pad": 0.3 / height}
        bar = figure.colorbar(image, ax=grid, label=label, **place)
        bar.set_ticks([*colours], labels=colours.values())
    return figure


def draw_positions(encoding, kind="heatmap", depths=(1, 5, 15, 20)):
    """Draws positional encodings (section 3.5).

    Args:
        encoding: an array ``(positions, depth)``.
        kind: "heatmap" of all values, "curves" of some depths over position, or
            "similarity": the cosine of each position's angle to each other one. The
            heat map shows all even depths first, the paper's sines, then all odd ones.
        depths: which depths curves show, from 0.

    Example:
        >>> from tfxformer import positional_encoding
        >>> figure = draw_positions(positional_encoding(50, 128), "curves", (1, 7))
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['depth 1', 'depth 7']
    """
    encoding = np.asarray(encoding, "float64")
    if kind == "curves":
        with drawing(8, 1.2 * len(depths) + 0.9) as figure:
            panels = figure.subplots(len(depths), sharex=True, squeeze=False)[:, 0]
            for axes, depth in zip(panels, depths, strict=True):
                axes.plot(encoding[:, depth])
                axes.set_ylabel(f"depth {depth}")
                axes.grid(True)
            panels[0].set_title("Positional encoding over position: values (no unit)")
            panels[-1].set_xlabel(POSITION)
            panels[-1].locator_params(axis="x", integer=True)
    elif kind == "heatmap":
        with drawing(8, min(1.8 + 0.2 * len(encoding), 4.5)) as figure:
            panels = figure.subplots(1, 2, sharey=True)
            for first, axes in enumerate(panels):
                values = encoding[:, first::2]
                last = first + 2 * values.shape[1]
                edges = first - 1, last - 1, len(values) - 0.5, -0.5
                image = axes.imshow(values, extent=edges, vmin=-1, vmax=1)
                axes.set_xlabel("depth (component, from 0)")
                axes.locator_params(integer=True)
            panels[0].set(title="even depths (sines in the paper)", ylabel=POSITION)
            panels[1].set_title("odd depths (cosines in the paper)")
            figure.colorbar(image, ax=panels, label="value (no unit)")
    else:
        with drawing(6, 5) as figure:
            axes = figure.add_subplot(title="Similarity between positions")
            axes.set(xlabel=POSITION, ylabel=POSITION)
            vectors = _unit(encoding)
            image = axes.imshow(vectors @ vectors.T, vmax=1, aspect="equal")
            axes.locator_params(integer=True)
            figure.colorbar(image, label="cosine similarity (no unit)")
    return figure


def draw_neighbours(embeddings, tokens, chosen, neighbours=6):
    """Draws which tokens' embeddings have the directions nearest to those of others.

    Args:
        embeddings: an array ``(tokens, depth)``.
        tokens: as many strings.
        chosen: some of the tokens, a panel each.
        neighbours: how many to show of each.

    Example:
        >>> vectors, tokens = [[1, 0.1], [1, 0], [0, 1]], ["▁cat", "▁dog", "▁the"]
        >>> figure = draw_neighbours(vectors, tokens, ["▁cat"])
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['▁dog', '▁the']
    """
    vectors, tokens = _unit(np.asarray(embeddings, "float64")), list(tokens)
    with drawing(3.2 * len(chosen) + 0.5, 0.25 * neighbours + 1.7) as figure:
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

    Example:
        >>> figure = draw_schedules({"constant": lambda step: 1e-3}, 1000)
        >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
        ('training step', 'learning rate (no unit)')
    """
    at = np.unique(np.linspace(0, steps - 1, 400).astype(int)).tolist()
    row = {"split": "train"}
    return draw_curves(
        {
            name: [row | {"step": n, "learning_rate": float(schedule(n))} for n in at]
            for name, schedule in schedules.items()
        }
    )


def draw_lengths(lengths, unit="tokens"):
    """Draws how long sentences are, a histogram for each side.

    Args:
        lengths: a dict of names and integers, the sentences' lengths.
        unit: what the lengths count.

    Example:
        >>> figure = draw_lengths({"source": [3, 4, 4, 9]})
        >>> figure.axes[0].get_legend().get_texts()[0].get_text()
        'source: half up to 4, 95% up to 9 tokens'
    """
    longest = max(map(max, lengths.values()))
    edges = np.arange(0, longest + 51, longest // 50 + 1) - 0.5  # some 50 bins
    with drawing(8, 4.5) as figure:
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

    Raises:
        UserError: when the records have no measurements.

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
        raise UserError("the runs have no measurements to draw")
    columns = min(len(panels), 2)
    rows = math.ceil(len(panels) / columns)
    with drawing(9, 3 * rows + 1.5) as figure:
        for place, (label, curves) in enumerate(panels.items(), 1):
            axes = figure.add_subplot(rows, columns, place, ylabel=label)
            for number, (run, curve) in enumerate(curves.items()):
                every = number * 0.03, 0.12
                axes.plot(curve.keys(), curve.values(), label=run, markevery=every)
            axes.set_xlabel("training step")
            axes.grid(True)
        lines = axes.get_legend_handles_labels()
        figure.legend(*lines, loc="outside upper left", ncols=min(len(runs), 3))
    return figure


def png(figure, form="png"):
    """A Matplotlib figure as the bytes of a file, PNG or another form."""
    file = io.BytesIO()
    figure.savefig(file, format=form, dpi=figure.dpi)
    return file.getvalue()


@contextlib.contextmanager
def drawing(width, height):
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
