"""Pictures of training: its schedule, its data, its course and what came of it."""

import math

import numpy as np

from tfxformer.plots_canvas import drawing, line, spell

# What is measured in a run: of which split, its name, how an axis calls it.
CURVES = (
    ("train", "loss", "training loss (nats a token)"),
    ("validation", "loss", "validation loss (nats a token)"),
    ("validation", "masked_accuracy", "validation accuracy (share)"),
    ("validation", "bleu", "validation BLEU (0 to 100)"),
    ("train", "learning_rate", "learning rate (no unit)"),
    ("train", "target_tokens_per_second", "speed (target tokens a second)"),
)


def draw_schedules(schedules, steps, dark=False):
    """Draws learning rates over training steps (section 5.3).

    Args:
        schedules: a dict of names and callables, each from a step, from 0, to a rate.
        steps: how many steps.
        dark: light letters on dark paper.

    Returns:
        A Matplotlib figure; a notebook shows it, `save` makes a file of it.

    Raises:
        ModuleNotFoundError: when Matplotlib is not installed.

    Example:
        >>> figure = draw_schedules({"constant": lambda step: 1e-3}, 1000)
        >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
        ('training step', 'learning rate (no unit)')
    """
    if not schedules or steps < 1:
        raise ValueError(f"{len(schedules)} schedules of {steps} steps")
    # Close together first: warm-up may be short.
    at = np.concatenate(
        [np.geomspace(1, steps, 100) - 1, np.linspace(0, steps - 1, 200)]
    )
    at = np.unique(at.astype(int))
    with drawing(dark, (8, 4.5), "constrained") as (figure, theme):
        axes = figure.add_subplot()
        for number, (name, schedule) in enumerate(schedules.items()):
            rates = [float(schedule(int(step))) for step in at]
            style = line(theme, number)
            axes.plot(at, rates, label=name, markevery=(number * 0.03, 0.12), **style)
        axes.set(
            title="Learning-rate schedule",
            xlabel="training step",
            ylabel="learning rate (no unit)",
        )
        _from_zero(axes)
        _count_steps(axes)
        axes.grid(True)
        _name_lines(axes, inside=True)
    return figure


def draw_lengths(lengths, unit="tokens", dark=False):
    """Draws how long sentences are, a histogram for each side.

    Args:
        lengths: a dict of names and integers, the sentences' lengths.
        unit: what they count.
        dark: light letters on dark paper.

    Returns:
        A Matplotlib figure; a notebook shows it, `save` makes a file of it.

    Raises:
        ValueError: when there is no sentence.
        ModuleNotFoundError: when Matplotlib is not installed.

    Example:
        >>> figure = draw_lengths({"source": [3, 4, 4, 9]})
        >>> figure.axes[0].get_legend().get_texts()[0].get_text()
        'source: half up to 4, 95% up to 9 tokens'
    """
    if not lengths or not all(len(counts) for counts in lengths.values()):
        raise ValueError("there are no sentences to draw the lengths of")
    longest = max(max(counts) for counts in lengths.values())
    width = max(math.ceil((longest + 1) / 50), 1)
    edges = np.arange(0, longest + 1 + width, width)
    with drawing(dark, (8, 4.5), "constrained") as (figure, theme):
        axes = figure.add_subplot()
        for number, (name, counts) in enumerate(lengths.items()):
            half, most = np.percentile(counts, (50, 95), method="higher")
            label = f"{name}: half up to {half:,}, 95% up to {most:,} {unit}"
            found, _ = np.histogram(counts, edges)
            style = line(theme, number) | {"drawstyle": "steps-mid", "markersize": 4}
            axes.plot(edges[:-1] + (width - 1) / 2, found, label=label, **style)
            axes.fill_between(
                edges[:-1] + (width - 1) / 2,
                found,
                step="mid",
                alpha=0.2,
                color=style["color"],
                linewidth=0,
            )
        each = f", {width} a step" if width > 1 else ""
        axes.set(
            title="How long sentences are",
            xlabel=f"length ({unit}{each})",
            ylabel="sentences (count)",
        )
        axes.yaxis.set_major_formatter("{x:,.0f}")
        _from_zero(axes)
        axes.set_xlim(left=0)
        axes.grid(True)
        _name_lines(axes, inside=True)
    return figure


def draw_curves(runs, dark=False):
    """Draws the training curves of runs: a panel for each thing that was measured.

    Args:
        runs: a dict of names and lists of records, as a run folder's
            ``metrics.jsonl`` has them: dicts with ``step``, ``split`` ("train" or
            "validation") and values, such as ``loss``.
        dark: light letters on dark paper.

    Returns:
        A Matplotlib figure; a notebook shows it, `save` makes a file of it.

    Raises:
        ValueError: when nothing of the kind was measured.
        ModuleNotFoundError: when Matplotlib is not installed.

    Example:
        >>> rows = [{"step": n, "split": "train", "loss": 9 / n} for n in (1, 2, 3)]
        >>> figure = draw_curves({"tiny": rows})
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['training loss (nats a token)']
    """
    panels = []
    for split, name, label in CURVES:
        curves = {run: _curve(rows, split, name) for run, rows in runs.items()}
        if any(curves.values()):
            panels.append((label, curves))
    if not panels:
        raise ValueError("the runs have no measurements to draw")
    columns = min(len(panels), 2)
    rows = math.ceil(len(panels) / columns)
    with drawing(dark, (4.8 * columns, 3 * rows + 0.5), "constrained") as (
        figure,
        theme,
    ):
        for place, (label, curves) in enumerate(panels, 1):
            axes = figure.add_subplot(rows, columns, place)
            for number, (run, curve) in enumerate(curves.items()):
                style = line(theme, number) | {"markersize": 4}
                every = (number * 0.03, 0.15) if len(curve) > 10 else None
                steps, values = zip(*curve, strict=True) if curve else ((), ())
                axes.plot(steps, values, label=run, markevery=every, **style)
            axes.set(xlabel="training step", ylabel=label)
            _count_steps(axes)
            axes.margins(x=0.02)
            axes.grid(True)
        _name_lines(figure.axes[0], figure)
    return figure


def _curve(rows, split, name):
    """Pairs of a step and a value, of those rows that have a number there."""
    return [
        (row["step"], row[name])
        for row in rows
        if row.get("split") == split
        and isinstance(row.get(name), (int, float))
        and math.isfinite(row[name])
    ]


def draw_bleu_by_length(scores, unit="words", dark=False):
    r"""Draws how good translations are, by how long their sources are.

    Args:
        scores: a dict of systems' names and lists of ``(longest_length, bleu,
            sentences)``, a bucket each, the shortest first.
        unit: what lengths count.
        dark: light letters on dark paper.

    Returns:
        A Matplotlib figure; a notebook shows it, `save` makes a file of it.

    Raises:
        ValueError: when there is no bucket.
        ModuleNotFoundError: when Matplotlib is not installed.

    Example:
        >>> figure = draw_bleu_by_length({"GRU": [(10, 31.2, 80), (20, 22.5, 40)]})
        >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
        ['1–10\n(80)', '11–20\n(40)']
    """
    counts = {}
    for buckets in scores.values():
        for longest, _, sentences in buckets:
            counts[longest] = max(counts.get(longest, 0), sentences)
    if not counts:
        raise ValueError("there are no scores to draw")
    places = {longest: place for place, longest in enumerate(sorted(counts))}
    first, labels = 1, []
    for longest in places:
        span = f"{first}–{longest}" if longest > first else f"{longest}"
        span = f"{first} or more" if longest == math.inf else span
        labels.append(f"{span}\n({counts[longest]:,})")
        first = longest + 1
    with drawing(dark, (8, 4.5), "constrained") as (figure, theme):
        axes = figure.add_subplot()
        for number, (name, buckets) in enumerate(scores.items()):
            axes.plot(
                [places[longest] for longest, _, _ in buckets],
                [bleu for _, bleu, _ in buckets],
                label=name,
                **line(theme, number),
            )
        axes.set_xticks(range(len(labels)), labels)
        axes.set(
            title="BLEU by sentence length",
            xlabel=f"source length ({unit}), and how many sentences",
            ylabel="BLEU (0 to 100)",
        )
        _from_zero(axes)
        axes.margins(x=0.05)
        axes.grid(True)
        _name_lines(axes)
    return figure


def _from_zero(axes):
    """Heights can be compared only from 0 on."""
    axes.set_ylim(0, 1.05 * axes.dataLim.y1 or 1)


def _count_steps(axes):
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,g}")


def _name_lines(axes, figure=None, inside=False):
    """A legend in any script: beside the panel, in it, or above all panels."""
    lines, names = axes.get_legend_handles_labels()
    labels, families = spell(names, longest=60)
    options = {"handlelength": 4, "prop": {"family": families, "size": 9}}
    if figure:
        place = {"loc": "outside upper left", "ncols": min(len(names), 3)}
        legend = figure.legend(lines, labels, **place, **options)
    elif inside:
        legend = axes.legend(lines, labels, loc="upper right", **options)
    else:
        place = {"loc": "upper left", "bbox_to_anchor": (1, 1)}
        legend = axes.legend(lines, labels, **place, **options)
    for text in legend.get_texts():
        text.set_parse_math(False)
