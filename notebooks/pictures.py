"""The pictures of `positions.ipynb` and `transformer.ipynb`.

Two functions change what the notebooks use: `without_mask` changes a model, and
`without_tuning` a data set.
"""

from contextlib import contextmanager
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from IPython.display import display

from tfxformer import GlobalSelfAttention, plots
from tfxformer.notebooks.comparison import say


def draw_two_orders(panels, rows):
    """Draws matrices ``{title: (rows, columns)}`` side by side, with one scale."""
    most = max(abs(np.array(matrix)).max() for matrix in panels.values())
    most = np.ceil(10 * most) / 10
    layout = {"figsize": (9, 2.3), "layout": "constrained", "sharey": True}
    figure, axes = plt.subplots(1, len(panels), **layout)
    for panel, (title, matrix) in zip(axes, panels.items(), strict=True):
        image = panel.pcolormesh(
            np.array(matrix), cmap="RdBu_r", vmin=-most, vmax=most, edgecolors="w"
        )
        panel.set_title(title, size=12)
        panel.set(xticks=[], yticks=np.arange(len(rows)) + 0.5, yticklabels=rows)
        panel.tick_params(length=0, labelsize=11)
        panel.spines[:].set_visible(False)
    axes[0].invert_yaxis()
    figure.colorbar(image, ax=axes, ticks=[-most, 0, most], pad=0.01)
    plt.show()


def draw_heat_map(encoding):
    """Draws a positional encoding, its sines on the left."""
    figure = plots.draw_positions(encoding)
    for axes, name in zip(figure.axes, ("Sines", "Cosines"), strict=False):
        axes.set_title(f"{name}: wider stripes on the right")
    display(figure)


def draw_waves(encoding, columns, marked=()):
    """Draws columns of a positional encoding, perhaps with two marked positions."""
    figure = plots.draw_positions(encoding, "curves", columns)
    figure.axes[0].set_title("Columns further right have longer waves")
    for axes, column in zip(figure.axes, columns, strict=True):
        axes.set_ylim(-1.1, 1.1)
        if marked:
            heights = encoding[list(marked), column]
            axes.plot(marked, heights, "o", color="C3", markersize=9)
            one, other = (
                f"{height:+.2f} at {position}"
                for height, position in zip(heights, marked, strict=True)
            )
            near = abs(heights[1] - heights[0]) < 0.1
            apart = "nearly equal" if near else "far apart"
            axes.set_title(f"Column {column}: {one} and {other}, {apart}")
    display(figure)


def draw_clocks(encoding, columns):
    """Draws pairs of columns as points on circles, the last step in red."""
    layout = {"figsize": (8, 4.1), "layout": "constrained"}
    figure, axes = plt.subplots(1, len(columns), **layout)
    figure.suptitle("Each token turns a pair by the same angle")
    for panel, column in zip(axes, columns, strict=True):
        points = encoding[:, [column + 1, column]]  # a cosine is a width
        panel.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.8"))
        for position, point in enumerate(points):
            here = "C3" if position >= len(points) - 2 else "0.5"
            panel.plot(*zip((0, 0), point, strict=True), color=here, lw=1, alpha=0.5)
            panel.plot(*point, "o", color=here, ms=7)
            where = {"ha": "center", "va": "center", "color": here}
            panel.text(*(1.18 * point), str(position), size=12, **where)
        first, last = (np.arctan2(*point[::-1]) for point in points[-2:])
        step = (last - first) % (2 * np.pi)
        ends = [0.62 * np.array([np.cos(a), np.sin(a)]) for a in (first, last)]
        arrow = {"arrowstyle": "-|>", "color": "C3", "lw": 2, "shrinkA": 0}
        arrow |= {"shrinkB": 0, "connectionstyle": f"arc3,rad={np.tan(step / 4):.3f}"}
        panel.annotate("", ends[1], ends[0], arrowprops=arrow)
        angle = f"{np.degrees(step):.0f}° a token"
        panel.set_title(f"columns {column} and {column + 1}: {angle}", size=11)
        panel.set(xlim=(-1.35, 1.35), ylim=(-1.35, 1.35), aspect="equal")
        panel.axis("off")
    plt.show()


def draw_vector_lengths(lengths, tokens, content):
    """Draws the lengths of vectors; ``content`` has the places of nouns and verbs."""
    count = len(tokens)
    colours = ["C0" if n in content else "C1" for n in range(count)]
    colours += ["0.6"] * (len(lengths) - count)
    _, axes = plt.subplots(figsize=(8, 3.3), layout="constrained")
    axes.bar(range(len(lengths)), lengths, color=colours)
    ticks = [f"{n}\n{token}" for n, token in enumerate(tokens)]
    ticks += [*range(count, len(lengths))]
    axes.set_xticks(range(len(lengths)), ticks, size=8)
    names = {1: "nouns and verbs", 6: "other tokens", count: "untrained"}
    for x, name in names.items():
        axes.text(x - 0.4, 1.08 * lengths.max(), name, color=colours[x], size=11)
    axes.set(ylim=(0, 1.25 * lengths.max()), ylabel="length of the vector")
    axes.set(xlabel="position, and a token that may be there")
    axes.set_title("The learned vectors grow where training uses them")
    axes.spines[["top", "right"]].set_visible(False)
    plt.show()


def draw_shares(shares, longest):
    """Draws shares ``{name: [of one clause, of two, ...]}`` as bars."""
    _, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
    width = 0.8 / len(shares)
    for number, (name, values) in enumerate(shares.items()):
        side = (number - (len(shares) - 1) / 2) * width
        at = np.arange(1, len(values) + 1) + side
        bars = axes.bar(at, values, 0.9 * width, color=f"C{number}")
        axes.bar_label(bars, fmt="{:.0%}", color=f"C{number}", size=11)
        where = {"ha": "center", "color": f"C{number}", "size": 11}
        axes.text(at[0], 1.15, name, **where)
    axes.axvline(longest + 0.5, color="0.4", ls=":")
    axes.text(longest + 0.55, 1.15, "longer than any training sentence", color="0.4")
    axes.set(xlabel="clauses of a sentence", ylabel="words in their place")
    axes.set(ylim=(0, 1.3), xticks=range(1, len(values) + 1))
    axes.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"])
    axes.set_title("Beyond the trained length, fewer words are right")
    axes.spines[["top", "right"]].set_visible(False)
    plt.show()


@contextmanager
def without_mask(model):
    """Lets the decoder of a model see later tokens, within a ``with`` block."""
    decoder = [layer.causal_self_attention for layer in model.decoder.dec_layers]
    for attention in decoder:  # attends as in the encoder
        attention.call = partial(GlobalSelfAttention.call, attention)
    try:
        yield
    finally:
        for attention in decoder:
            del attention.call


def without_tuning(data):
    """Turns the tuning of `tf.data` off, which can hold up the end of an epoch."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return data.with_options(options)


def draw_large_mask(tokens, mask, title):
    """Draws a mask with large signs in its cells."""
    figure = plots.draw_mask(tokens, tokens, mask, title)
    for axes in figure.axes:
        for text in axes.texts:
            text.set_size(14)
    display(figure)


def draw_pair(tensors, places):
    """Draws the first numbers of two vectors of each tensor, and their difference."""
    panels = {}
    for name, tensor in tensors.items():
        first, second = np.array(tensor)[0, places, :16]
        same = np.abs(first - second).max() < 1e-5
        title = f"{name}:\n{'equal' if same else 'different'}"
        panels[title] = first, second, first - second
    rows = f"at position {places[0]}", f"at position {places[1]}", "difference"
    draw_two_orders(panels, rows)


def draw_reads(written, read, weights, title, least=0.05, crop=True, **names):
    """Draws attention without small numbers, and perhaps without their columns."""
    weights = np.array(weights)
    if crop:
        large = np.flatnonzero(weights.max(axis=0) >= least)
        weights, read = weights[:, large], [read[place] for place in large]
    figure = plots.draw_attention(written, read, weights, title, **names)
    for axes in figure.axes:
        for text in [*axes.texts]:
            column, row = (round(place) for place in text.get_position())
            if weights[row, column] < least:
                text.remove()
            else:
                text.set_size(12)
    display(figure)


def draw_by_head(shares, equal):
    """Draws the shares ``{kind: of each head}`` beside an equal share of each kind."""
    layout = {"figsize": (8, 2.6), "sharey": True, "layout": "constrained"}
    figure, panels = plt.subplots(1, len(shares), **layout)
    most = max(np.max([*shares.values()]), *equal.values())
    for axes, (kind, share) in zip(panels, shares.items(), strict=True):
        heads = [f"head {head}" for head in range(1, len(share) + 1)]
        bars = axes.barh(heads, share)
        back = {"fc": "white", "ec": "none", "pad": 1}  # hides the line
        axes.bar_label(bars, [f"{x:.0%}" for x in share], padding=4, bbox=back)
        axes.axvline(equal[kind], color="C1", linestyle="--")
        words = f" equal share: {equal[kind]:.0%}"
        axes.text(equal[kind], -0.75, words, color="C1", va="center", size=10)
        axes.set(title=f"to {kind}", xlim=(0, 1.25 * most), xticks=[])
        axes.set_ylim(len(share) - 0.5, -1.1)
        axes.spines[["top", "right", "bottom"]].set_visible(False)
    nouns = next(iter(shares.values()))
    title = f"Head {nouns.argmax() + 1} reads the nouns most, "
    figure.suptitle(title + f"head {nouns.argmin() + 1} least")
    plt.show()


def draw_parts(parts):
    """Draws the standard deviations of a layer's input, of its parts and its output."""
    sizes = {name: float(np.std(np.array(x)[0])) for name, x in parts.items()}
    names = [*sizes]
    most = max(names[1:-1], key=sizes.get)
    _, axes = plt.subplots(figsize=(7, 2.4), layout="constrained")
    colours = ["C1" if name == most else "C0" for name in names]
    axes.bar_label(axes.barh(names, [*sizes.values()], color=colours), fmt=" %.1f")
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set(xlabel="standard deviation", title=f"In layer 1, {most[2:]} adds most")
    plt.show()


def draw_cats(alike):
    """Draws how alike two vectors stay, and says what that shows.

    ``alike`` is ``{name: {step: cosine}}``; the second line is the yardstick.
    """
    _, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
    for number, (name, cosines) in enumerate(alike.items()):
        values = [*cosines.values()]
        axes.plot([*cosines], values, "o-", color=f"C{number}", linewidth=2)
        words = f"  {values[-1]:.2f}: {name}"
        axes.text(len(values) - 1, values[-1], words, color=f"C{number}", va="center")
    (_, first), (_, same) = alike.items()
    ends = [[*cosines.values()][-1] for cosines in (first, same)]
    apart = ends[0] < ends[1] - 0.02
    title = "The cats in two roles end " + ("further apart" if apart else "as near")
    axes.set(ylabel="cosine of the angle", xlim=(-0.3, len(first) + 1.4), title=title)
    axes.spines[["top", "right"]].set_visible(False)
    plt.show()
    answer = (
        "Yes: the encoder moves them apart, and not by position alone."
        if apart
        else "Not more than two cats in one role: position alone may do this."
    )
    say(f"""
{answer} Both lines begin at the same positions. They end at {ends[0]:.2f} and
{ends[1]:.2f}. This does not show that the encoder knows who sees.
""")
