"""Pictures of training: its schedule, its data and its course."""

import math

import numpy as np

from tfxformer.plots.style import drawing

# What a run measures: the split, the name, the label of the axis.
CURVES = (
    ("train", "loss", "training loss (nats a token)"),
    ("validation", "loss", "validation loss (nats a token)"),
    ("validation", "masked_accuracy", "validation accuracy (share)"),
    ("validation", "bleu", "validation BLEU (0 to 100)"),
    ("train", "learning_rate", "learning rate (no unit)"),
    ("train", "target_tokens_per_second", "speed (target tokens a second)"),
)


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
    with drawing(8, 4.5) as figure:
        axes = figure.add_subplot(title="Learning-rate schedule")
        axes.set(xlabel="training step", ylabel="learning rate (no unit)")
        for number, (name, schedule) in enumerate(schedules.items()):
            rates = [float(schedule(int(step))) for step in at]
            axes.plot(at, rates, label=name, markevery=(number * 0.03, 0.12))
        _finish(axes)
        axes.set_ylim(bottom=0)
        axes.legend()
    return figure


def draw_lengths(lengths, unit="tokens"):
    """Draws how long sentences are, a histogram for each side.

    Args:
        lengths: a dict of names and integers, the sentences' lengths.
        unit: what the lengths count.

    Returns:
        A Matplotlib figure.

    Raises:
        ValueError: when there are no sentences.

    Example:
        >>> figure = draw_lengths({"source": [3, 4, 4, 9]})
        >>> figure.axes[0].get_legend().get_texts()[0].get_text()
        'source: half up to 4, 95% up to 9 tokens'
    """
    if not lengths or not all(len(counts) for counts in lengths.values()):
        raise ValueError("there are no sentences to draw the lengths of")
    longest = max(max(counts) for counts in lengths.values())
    width = math.ceil((longest + 1) / 50)  # of a bin, so that there are 50 at most
    edges = np.arange(0, longest + 1 + width, width)
    with drawing(8, 4.5) as figure:
        axes = figure.add_subplot(title="How long sentences are")
        axes.set(xlabel=f"length ({unit})", ylabel="sentences (count)")
        for name, counts in lengths.items():
            half, most = np.percentile(counts, (50, 95), method="higher")
            label = f"{name}: half up to {half:,}, 95% up to {most:,} {unit}"
            found, _ = np.histogram(counts, edges)
            axes.stairs(found, edges - 0.5, fill=True, alpha=0.5, label=label)
        _finish(axes)
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
        >>> figure = draw_curves({"tiny": rows})
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['training loss (nats a token)']
    """
    panels = []
    for split, name, label in CURVES:
        curves = {run: _curve(rows, split, name) for run, rows in runs.items()}
        if any(steps for steps, _ in curves.values()):
            panels.append((label, curves))
    if not panels:
        raise ValueError("the runs have no measurements to draw")
    columns = min(len(panels), 2)
    rows = math.ceil(len(panels) / columns)
    with drawing(4.8 * columns, 3 * rows + 0.5) as figure:
        for place, (label, curves) in enumerate(panels, 1):
            axes = figure.add_subplot(rows, columns, place)
            axes.set(xlabel="training step", ylabel=label)
            for number, (run, (steps, values)) in enumerate(curves.items()):
                every = (number * 0.03, 0.15) if len(steps) > 10 else None
                axes.plot(steps, values, label=run, markevery=every)
            _finish(axes)
        lines = axes.get_legend_handles_labels()
        figure.legend(*lines, loc="outside upper left", ncols=min(len(runs), 3))
    return figure


def _curve(rows, split, name):
    """The steps and the values of those records that have the number."""
    mine = [row for row in rows if row.get("split") == split]
    mine = [row for row in mine if isinstance(row.get(name), (int, float))]
    mine = [row for row in mine if math.isfinite(row[name])]
    return [row["step"] for row in mine], [row[name] for row in mine]


def _finish(axes):
    axes.locator_params(axis="x", nbins=6, integer=True)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.grid(True)
