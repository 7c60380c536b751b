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

    Raises:
        ValueError: when there are no sentences.

    Example:
        >>> figure = draw_lengths({"source": [3, 4, 4, 9]})
        >>> figure.axes[0].get_legend().get_texts()[0].get_text()
        'source: half up to 4, 95% up to 9 tokens'
    """
    if not any(len(counts) for counts in lengths.values()):
        raise ValueError("there are no sentences to draw the lengths of")
    longest = max(max(counts) for counts in lengths.values())
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

    Returns:
        A Matplotlib figure.

    Raises:
        ValueError: when the records have no measurements.

    Example:
        >>> rows = [{"step": n, "split": "train", "loss": 9 / n} for n in (1, 2, 3)]
        >>> [axes.get_ylabel() for axes in draw_curves({"tiny": rows}).axes]
        ['training loss (nats a token)']
    """
    measured = {
        label: {run: _curve(rows, split, name) for run, rows in runs.items()}
        for split, name, label in CURVES
    }
    panels = {
        label: curves for label, curves in measured.items() if any(curves.values())
    }
    if not panels:
        raise ValueError("the runs have no measurements to draw")
    columns = min(len(panels), 2)
    rows = math.ceil(len(panels) / columns)
    with drawing(4.8 * columns, 3 * rows + 0.5) as figure:
        for place, (label, curves) in enumerate(panels.items(), 1):
            axes = figure.add_subplot(rows, columns, place)
            axes.set(xlabel="training step", ylabel=label)
            for number, (run, curve) in enumerate(curves.items()):
                every = (number * 0.03, 0.15) if len(curve) > 10 else None
                axes.plot(curve.keys(), curve.values(), label=run, markevery=every)
            axes.grid(True)
        lines = axes.get_legend_handles_labels()
        figure.legend(*lines, loc="outside upper left", ncols=min(len(runs), 3))
    return figure


def _curve(rows, split, name):
    """Values by step, of those records that have the number."""
    rows = [row for row in rows if row.get("split") == split]
    rows = [row for row in rows if isinstance(row.get(name), (int, float))]
    return {row["step"]: row[name] for row in rows if math.isfinite(row[name])}
