"""The pictures and sentences of `positions.ipynb` and `transformer.ipynb`.

Two functions do more: `without_mask` changes a model, and `best_head` picks a head.
"""

import re
from collections import Counter
from contextlib import contextmanager
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from IPython.display import display

from tfxformer import GlobalSelfAttention, plots
from tfxformer.notebooks.comparison import draw, say
from tfxformer.tokenizer import END_ID, START_ID


def draw_two_orders(panels, rows, title=None, below=None):
    """Draws matrices ``{title: (rows, columns)}`` side by side, with one scale."""
    most = max(abs(np.array(matrix)).max() for matrix in panels.values())
    most = np.ceil(10 * most) / 10
    height = 2.3 + 0.35 * bool(title) + 0.25 * bool(below)
    layout = {"figsize": (9, height), "layout": "constrained", "sharey": True}
    figure, axes = plt.subplots(1, len(panels), **layout)
    figure.suptitle(title or "")
    figure.supxlabel(below or "", size=11)
    for panel, (name, matrix) in zip(axes, panels.items(), strict=True):
        image = panel.pcolormesh(
            np.array(matrix), cmap="RdBu_r", vmin=-most, vmax=most, edgecolors="w"
        )
        panel.set_title(name, size=12)
        panel.set(xticks=[], yticks=np.arange(len(rows)) + 0.5, yticklabels=rows)
        panel.tick_params(length=0, labelsize=11)
        panel.spines[:].set_visible(False)
    axes[0].invert_yaxis()
    bar = {"ticks": [-most, 0, most], "pad": 0.01, "label": "value (no unit)"}
    figure.colorbar(image, ax=axes, **bar)
    plt.show()


def draw_heat_map(encoding):
    """Draws a positional encoding, its sines on the left."""
    figure = plots.draw_positions(encoding)
    figure.suptitle("Columns further right change more slowly")
    for axes, name in zip(figure.axes, ("sines", "cosines"), strict=False):
        axes.set_title(name, size=11)
    display(figure)


def draw_waves(encoding, columns, marked=()):
    """Draws columns of a positional encoding, perhaps with two marked positions."""
    figure = plots.draw_positions(encoding, "curves", columns)
    figure.axes[0].set_title("Columns further right have longer waves")
    for axes, column in zip(figure.axes, columns, strict=True):
        axes.set_ylim(-1.1, 1.1)
        turn = 2 * np.pi * 10000 ** (column // 2 * 2 / encoding.shape[1])
        if not marked:
            where = {"transform": axes.transAxes, "va": "center", "size": 11}
            axes.text(1.01, 0.5, f"a full turn:\n{turn:.1f} tokens", **where)
        else:
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
    figure.suptitle("Each pair turns by its own fixed angle")
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
        panel.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal")
        panel.set(xlabel="cosine", ylabel="sine", xticks=(-1, 0, 1), yticks=(-1, 0, 1))
        panel.axhline(0, color="0.85", lw=1, zorder=0)
        panel.axvline(0, color="0.85", lw=1, zorder=0)
        panel.spines[:].set_visible(False)
    plt.show()


def draw_vector_lengths(lengths, tokens, content):
    """Draws the lengths of vectors; ``content`` has the places of nouns and verbs."""
    count = len(tokens)
    lengths = lengths[: count + 4]  # some that training has not used
    colours = ["C0" if n in content else "0.7" for n in range(len(lengths))]
    _, axes = plt.subplots(figsize=(8, 3.3), layout="constrained")
    axes.bar(range(len(lengths)), lengths, color=colours)
    ticks = [f"{n}\n{token}" for n, token in enumerate(tokens)]
    ticks += [*range(count, len(lengths))]
    axes.set_xticks(range(len(lengths)), ticks, size=11)
    first = content[: len(content) // 2]  # noun, verb, noun
    for x, name in zip(first, ("noun", "verb", "noun"), strict=True):
        axes.text(x, lengths[x], name, color="C0", size=12, ha="center", va="bottom")
    where = {"textcoords": "offset points", "color": "0.4", "size": 12}
    axes.annotate("untrained", (count - 0.4, lengths[count]), (0, 5), **where)
    axes.set(ylim=(0, 1.1 * lengths.max()), ylabel="length of the vector")
    axes.set(xlabel="position, with the tokens of an example")
    axes.set_title("The longest vectors are at the places of nouns and verbs")
    axes.spines[["top", "right"]].set_visible(False)
    plt.show()


def words_right(answers, pairs):
    """The share of words that are correct and in their place."""
    hits = []
    for answer, (_, target) in zip(answers, pairs, strict=True):
        target = target.split()
        found = answer.split() + [""] * len(target)
        hits += [a == t for a, t in zip(found, target, strict=False)]
    return np.mean(hits)


def draw_shares(shares, longest, best):
    """Draws shares ``{name: [of one clause, of two, ...]}`` as bars.

    A dashed line marks the ``best`` of an answer that stops at the ``longest``.
    """
    _, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
    width = 0.8 / len(shares)
    for number, (name, values) in enumerate(shares.items()):
        side = (number - (len(shares) - 1) / 2) * width
        at = np.arange(1, len(values) + 1) + side
        bars = axes.bar(at, values, 0.9 * width, color=f"C{number}")
        inside = {"label_type": "center", "color": "white", "size": 12}
        axes.bar_label(bars, fmt="{:.0%}", **inside)
        where = {"ha": "center", "color": f"C{number}", "size": 11}
        axes.text(at[0], 1.05, name, **where)
    for clauses, share in enumerate(best, 1):
        if clauses > longest:
            axes.plot(clauses + np.array([-0.4, 0.4]), [share] * 2, "k--", lw=1.5)
            words = f"two clauses: {share:.0%}"
            axes.text(clauses, share + 0.03, words, ha="center", size=11)
    axes.axvline(longest + 0.5, color="0.4", ls=":")
    axes.text(longest + 0.55, 1.05, "longer than any training sentence", color="0.4")
    axes.set(xlabel="clauses of a sentence", ylabel="correct words in their place")
    axes.set(ylim=(0, 1.2), xticks=range(1, len(values) + 1))
    axes.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"])
    axes.set_title("Longer sentences: the models stop after two clauses")
    axes.spines[["top", "right"]].set_visible(False)
    plt.show()


def draw_work(lengths, counts):
    """Draws counts ``{name: [of each length]}``; marks where the first passes."""
    scores, rest = counts.values()
    gap = np.log2(np.divide(scores, rest))
    equal = 2 ** np.interp(0, gap, np.log2(lengths))
    height = np.exp(np.interp(np.log(equal), np.log(lengths), np.log(scores)))
    title = f"Beyond {equal:.0f} tokens, scores and sums are most of the work"
    lines = {name: [*zip(lengths, y, strict=True)] for name, y in counts.items()}
    axes = draw(title, lines, xscale="log", yscale="log")
    axes.plot(equal, height, "ko", ms=8, zorder=4)
    where = {"textcoords": "offset points", "ha": "right", "size": 11}
    axes.annotate(f"equal at {equal:.0f}", (equal, height), (-8, 6), **where)
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axes.set(xlabel="length (tokens)", ylabel="million multiplications")
    axes.yaxis.set_major_formatter("{x:,g}")
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


def numbered(tokens):
    """Tokens with a number where they occur more than once, such as "▁cat 2"."""
    return [
        f"{token} {tokens[: place + 1].count(token)}"
        if tokens.count(token) > 1
        else token
        for place, token in enumerate(tokens)
    ]


def draw_heads(tokens, weights, query):
    """Draws what each head reads when one token asks."""
    weights = weights[:, tokens.index(query)]  # (heads, key)
    tokens, rows = numbered(tokens), [f"head {n}" for n in range(1, len(weights) + 1)]
    most = {}  # the heads that read each token most
    for head, place in enumerate(weights.argmax(axis=-1), 1):
        most.setdefault(tokens[place], []).append(str(head))
    parts = [
        (f"heads {' and '.join(heads)}" if heads[1:] else f"head {heads[0]}", token)
        for token, heads in most.items()
    ]
    (name, token), *others = parts
    reads = "read" if name.startswith("heads") else "reads"
    title = f"{name.capitalize()} {reads} “{token}” most"
    title += "".join(f", {name} “{token}”" for name, token in others)
    names = {"rows": f"“{query}” in each head (query)", "columns": "source token (key)"}
    draw_reads(rows, tokens, weights, title, **names)


def draw_split(token, queries, results, output):
    """Draws how heads split a query, and how their results become one output.

    The ``queries`` and ``results`` are (heads, key_dim), the output is (1, d_model).
    """
    heads, size = len(results), np.size(output)
    _, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    middle = {"ha": "center", "va": "center", "color": "white", "weight": "bold"}
    arrow = {"arrowstyle": "-|>", "color": "0.3", "lw": 1.5}
    rows = {
        f"query of “{token}”: {np.size(queries)}": f"{np.shape(queries)[1]}",
        "each attends": "head {}",
        f"results, side by side: {np.size(results)}": f"{np.shape(results)[1]}",
        "mixes all heads": "$W^O$",
        f"output: {size}": f"{size}",
    }
    for row, (name, words) in enumerate(rows.items()):
        axes.text(-0.1, row, name, ha="right", va="center", size=12)
        gap = 0.1 if row == 1 else 0.01
        wide = heads if row > 2 else 1  # the last two rows have one box
        for left in range(0, heads, wide):
            corner = left + gap, row - 0.28
            colour = "0.45" if row > 2 else f"C{left}"
            axes.add_patch(plt.Rectangle(corner, wide - 2 * gap, 0.56, fc=colour))
            text = words.format(left + 1) if row == 1 else words
            axes.text(left + wide / 2, row, text, size=12, **middle)
        starts = [heads / 2] if row == 4 else np.arange(heads) + 0.5
        for x in starts if row else ():
            axes.annotate("", (x, row - 0.3), (x, row - 0.7), arrowprops=arrow)
    axes.set(xlim=(-1.9, heads), ylim=(4.4, -0.4))
    axes.set_title(f"{heads} heads attend by themselves, and $W^O$ mixes their results")
    axes.axis("off")
    plt.show()


def draw_parts(parts):
    """Draws the spread of a layer's input, of what is added to it, and of the sum."""
    sizes = {name: float(np.std(np.array(x)[0])) for name, x in parts.items()}
    names = [*sizes]
    most = max(names[1:-1], key=sizes.get)
    _, axes = plt.subplots(figsize=(7, 2.3), layout="constrained")
    colours = ["C1" if name == most else "C0" for name in names[:-1]] + ["0.5"]
    axes.bar_label(axes.barh(names, [*sizes.values()], color=colours), fmt=" %.1f")
    axes.margins(x=0.1)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set(xlabel="standard deviation", title=f"In layer 1, {most[2:]} adds most")
    plt.show()


def draw_pair(tensors, places):
    """Draws the first numbers of two vectors of each tensor, and their difference."""
    panels = {}
    for name, tensor in tensors.items():
        first, second = np.array(tensor)[0, places, :16]
        same = np.abs(first - second).max() < 1e-5
        title = f"{name}:\n{'equal' if same else 'different'}"
        panels[title] = first, second, first - second
    rows = f"at position {places[0]}", f"at position {places[1]}", "difference"
    title = "One token at two places: the positions make the sums differ"
    draw_two_orders(panels, rows, title, "the first 16 numbers of each vector")


def draw_numbers(axes, matrix):
    """Draws a matrix from blue (below 0) to red, with its numbers in the cells."""
    most = np.abs(matrix).max()
    axes.imshow(matrix, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
    for (row, column), number in np.ndenumerate(matrix):
        colour = "white" if abs(number) > 0.6 * most else "black"
        words = f"{number:.2f}" if number else "0"
        axes.text(column, row, words, ha="center", va="center", color=colour)
    axes.set(xticks=[], yticks=[])


def draw_feed_forward(tokens, x, hidden, output, count=4):
    """Draws the first numbers of each token's vectors, on their way through the net."""
    stages = [np.array(stage) for stage in (x, hidden, output)]
    zeros, size = np.mean(stages[1] == 0), stages[1].shape[-1]
    names = "normed", f"hidden: ReLU sets\n{zeros:.0%} of {size:,} to 0", "output"
    layout = {"figsize": (9, 0.55 * len(tokens) + 1.3), "layout": "constrained"}
    figure, panels = plt.subplots(1, 3, **layout, gridspec_kw={"wspace": 0.3})
    figure.suptitle("The same network transforms each position by itself")
    for panel, name, numbers in zip(panels, names, stages, strict=True):
        draw_numbers(panel, numbers[:, :count])
        panel.set_title(name, size=12)
        panel.spines[:].set_visible(False)
    for panel, words in zip(panels[1:], ("W₁, ReLU", "W₂"), strict=True):
        for row in range(len(tokens)):
            arrow = {"arrowstyle": "-|>", "color": "0.3", "lw": 1.5}
            ends = {"xy": (-0.6, row), "xytext": (-1.9, row), "annotation_clip": False}
            panel.annotate("", arrowprops=arrow, **ends)
            panel.text(-1.25, row - 0.15, words, ha="center", color="0.3", size=10)
    panels[0].set_yticks(range(len(tokens)), tokens, size=12)
    panels[0].tick_params(length=0)
    figure.supxlabel(f"the first {count} numbers of each vector", size=11)
    plt.show()


def draw_gradients(depths, gradients):
    """Draws gradients ``{name: [at each depth]}`` on a logarithmic scale."""
    _, axes = plt.subplots(figsize=(7.5, 3), layout="constrained")
    for number, (name, values) in enumerate(gradients.items()):
        axes.plot(depths, values, "o-", color=f"C{number}", linewidth=2)
        last = f"{values[-1]:.2g}" if values[-1] > 0.01 else f"{values[-1]:.0e}"
        words = f"  {last.replace('e-0', 'e-')}\n  {name}"
        place = {"color": f"C{number}", "va": "center", "size": 11}
        axes.text(depths[-1], values[-1], words, **place)
    axes.set(yscale="log", xticks=depths, xlim=(0, 1.35 * depths[-1]))
    axes.set_ylim(values[-1] / 10, 50)
    axes.set(xlabel="number of networks", ylabel="size of the gradient")
    title = "the gradient survives only with residual connections"
    axes.set_title(f"Through {depths[-1]} networks, {title}")
    axes.spines[["top", "right"]].set_visible(False)
    plt.show()


def draw_normalized(before, after):
    """Draws the spread of a vector where each layer begins, and after normalization."""
    _, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
    names = "x", "normalize(x)"
    for number, (name, vectors) in enumerate(zip(names, (before, after), strict=True)):
        spread, place = np.std(vectors, axis=-1), {"color": f"C{number}", "size": 12}
        layers = np.arange(1, len(spread) + 1)
        axes.plot(layers, spread, "o-", lw=2.2, color=f"C{number}")
        axes.text(layers[-1] + 0.15, spread[-1], name, va="center", **place)
        for end in (0, -1) if number == 0 else (-1,):
            height = spread[end] + 0.07 * np.max(np.std(before, axis=-1))
            aside = "center" if end else "right"
            axes.text(layers[end], height, f"{spread[end]:.1f}", ha=aside, **place)
    axes.set(xticks=layers, xlim=(0.7, len(layers) + 1.3))
    axes.set_ylim(0, 1.2 * np.max(np.std(before, axis=-1)))
    axes.set(xlabel="at the start of layer", ylabel="standard deviation")
    axes.set_title("x grows from layer to layer; normalized, it keeps its size")
    axes.spines[["top", "right"]].set_visible(False)
    plt.show()


def draw_mask(queries, keys, mask, title):
    """Draws a mask, with True where a row's token may read a column's."""
    mask = np.array(mask)
    size = 1.2 + 0.67 * len(keys), 1.2 + 0.47 * len(queries)
    _, axes = plt.subplots(figsize=size, layout="constrained")
    axes.pcolormesh(mask, cmap="Blues", vmin=-0.15, vmax=1.25, edgecolors="w", lw=2)
    for (row, column), true in np.ndenumerate(mask):
        place = {"ha": "center", "va": "center", "size": 11}
        colour = "white" if true else "0.6"
        axes.text(column + 0.5, row + 0.5, str(bool(true)), color=colour, **place)
    axes.set_xticks(np.arange(len(keys)) + 0.5, keys, size=11)
    axes.set_yticks(np.arange(len(queries)) + 0.5, queries, size=11)
    axes.set(xlabel="token that is read (key)", ylabel="token that reads (query)")
    axes.set_title(title)
    axes.invert_yaxis()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    plt.show()


LEAST = 0.05  # smaller weights have no number
FAINT = f"without a number: less than {LEAST:.0%}"


def name_shares(axes, weights):
    """Writes all but the smallest weights into their cells, as percentages."""
    for text in [*axes.texts]:
        text.remove()
    weights = np.array(weights)
    for row, column in np.argwhere(weights >= LEAST):
        share = weights[row, column]
        style = {"ha": "center", "va": "center", "size": 11}
        colour = "black" if share > 0.25 else "white"
        axes.text(column, row, f"{share:.0%}", color=colour, **style)


def draw_reads(written, read, weights, title, hidden=None, **names):
    """Draws attention without small numbers.

    With ``hidden``, cells where it is True are grey.
    """
    weights = np.array(weights)
    names["columns"] += f"\n({FAINT})"
    figure = plots.draw_attention(written, numbered(read), weights, title, **names)
    axes, colours = figure.axes
    colours.remove()  # the cells have their numbers
    if hidden is not None:
        grey = plt.matplotlib.colors.ListedColormap(["0.88"])
        ones = np.ma.masked_array(np.ones_like(weights), ~hidden)
        axes.imshow(ones, cmap=grey, aspect="auto")
    name_shares(axes, weights)
    display(figure)


def most_read(written, read, weights):
    """The token that each written token reads most."""
    read, places = numbered(read), np.argmax(weights, axis=-1)
    return {token: read[at] for token, at in zip(written, places, strict=True)}


def name_most(most, tokens):
    """A title that says what some tokens read most."""
    parts = [f"“{token}” reads “{most[token]}”" for token in tokens if token in most]
    return " most, ".join(parts[:2]) + " most" * (len(parts) == 1)


def name_copies(head, written, read, weights):
    """A title that says how many pieces of a word read their copy most."""
    same = np.sum(np.array(read)[weights.argmax(axis=-1)] == written)
    count = "all pieces" if same == len(written) else f"{same} of {len(written)} pieces"
    return f"In {head}, {count} read their copy in the source most"


def draw_correct(steps, correct, target=0.9):
    """Draws the probability of the correct next token at each step."""
    _, axes = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    axes.barh(range(len(steps)), correct)
    low = correct.argmin()
    place = {"ha": "right", "va": "center", "color": "white", "size": 11}
    axes.text(correct[low] - 0.01, low, f"{correct[low]:.2f}", **place)
    axes.axvline(target, color="C1", linestyle="--")
    words = f"{target}, the target\nin training"
    axes.text(target + 0.02, 0, words, color="C1", va="center")
    axes.set_yticks(range(len(steps)), steps)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    near = f"{np.median(correct):.1f}"
    axes.set_title(f"Each correct token gets a probability near {near}")
    axes.set(xlabel="probability of the correct next token", xlim=(0, 1.15))
    axes.set_ylabel("last token read → next token")
    plt.show()


def draw_warm_ups(schedules, trained):
    """Draws two schedules ``{warm-up: schedule}``, and grey over the trained steps."""
    steps = np.arange(6000)
    _, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
    axes.axvspan(0, trained, color="0.92")
    places = (1500, 0.0025), (2900, 0.0006)
    lines = zip(schedules.items(), places, ("-", "--"), strict=True)
    for number, ((warm_up, schedule), place, style) in enumerate(lines):
        axes.plot(steps, schedule(steps), style, color=f"C{number}", linewidth=2)
        axes.text(*place, f"warm-up of {warm_up:,} steps", color=f"C{number}")
    axes.text(trained + 60, 0.0049, "← your training", color="0.3")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set(xlabel="training step", ylabel="learning rate", xlim=(0, 6000))
    axes.set_title("A short warm-up reaches a higher peak")
    plt.show()


def draw_history(history, steps, final):
    """Draws the accuracies that `fit` measured every some steps.

    A star marks the ``final`` accuracy: that of the averaged weights.
    """
    ends = steps * np.arange(1, len(history["loss"]) + 1)
    _, axes = plt.subplots(figsize=(7.5, 3.4), layout="constrained")
    lines = {"training": ("", ends - steps / 2), "validation": ("val_", ends)}
    for number, (name, (prefix, at)) in enumerate(lines.items()):
        values = history[prefix + "accuracy"]
        axes.plot(at, values, "o-", color=f"C{number}", lw=2)
        words = f"{name}, at the end: {values[-1]:.1%}"
        place = 0.4 * ends[-1], 0.25 + 0.17 * number
        axes.text(*place, words, color=f"C{number}", size=12)
    axes.plot(ends[-1], final, "*", color="C2", ms=14, zorder=4, clip_on=False)
    words = f"validation, averaged weights: {final:.1%}"
    axes.text(0.4 * ends[-1], 0.59, words, color="C2", size=12)
    axes.set(xlim=(0, 1.05 * ends[-1]), xticks=ends[1::2], ylim=(0, 1.05))
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.set(xlabel="training step", ylabel="accuracy")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"{final:.1%} of the next tokens of unseen sentences are right")
    plt.show()


def draw_decoding(model, tokenizer, text, steps=4):
    """Draws the first steps of greedy decoding, with the three likeliest tokens.

    Names the step whose likeliest token is the least probable.
    """
    source = np.array([[*tokenizer.encode([text])[0], END_ID]])
    written, sentences = [START_ID], {}
    figure, axes = plt.subplots(figsize=(9, 1.05 * steps + 1.7), layout="constrained")
    for step in range(steps):
        logits = model((source, np.array([written])))[0, -1]
        shares = np.array(tf.nn.softmax(logits))
        best = shares.argsort()[:-4:-1]
        for place, token in enumerate(tokenizer.tokens(written)):
            new = step and place == step
            style = {"fc": "#d7e8f7", "ec": "C3" if new else "0.6"}
            style |= {"boxstyle": "round", "lw": 2 if new else 1}
            axes.text(1.15 * place, step, token, ha="center", va="center", bbox=style)
        left = 1.15 * steps + 1.6
        for rank, token in enumerate(best):
            y, colour = step + 0.27 * (rank - 1), "0.6" if rank else "C3"
            axes.barh(y, 2 * shares[token], 0.22, left, color=colour)
            [name] = tokenizer.tokens([int(token)])
            axes.text(left - 0.08, y, name, ha="right", va="center", color=colour)
            words = f" {shares[token]:.2f}" if shares[token] >= 0.005 else " < 0.01"
            axes.text(left + 2 * shares[token], y, words, va="center", color=colour)
        if step < steps - 1:  # the likeliest token becomes part of the next input
            arrow = {"arrowstyle": "-|>", "color": "C3", "lw": 1.5}
            arrow |= {"connectionstyle": "angle,angleA=180,angleB=90,rad=6"}
            start, end = (left - 1.1, step - 0.27), (1.15 * (step + 1), step + 0.8)
            axes.annotate("", end, start, arrowprops=arrow)
        written.append(int(best[0]))
        both = zip(tokenizer.tokens([*map(int, best[:2])]), shares[best], strict=False)
        words = " and ".join(f"“{token}” has {share:.2f}" for token, share in both)
        sentences[shares[best[0]]] = f"It hesitates most at step {step + 1}: {words}."
    axes.set(xlim=(-0.6, left + 2.5), ylim=(steps - 0.45, -1.85))
    style = {"boxstyle": "round", "fc": "#fde5cd", "ec": "0.6"}
    words = f"the encoder's {source.shape[1]} vectors of “{text}”"
    axes.text(-0.4, -1.2, words, va="center", bbox=style)
    heads = {(-0.5, -1.6): "at each step, the decoder reads"}
    heads |= {(-0.5, -0.7): "and these tokens"}
    heads |= {(left, -0.7): "probability of the next token"}
    for place, words in heads.items():
        axes.text(*place, words, color="0.3", size=11)
    axes.axis("off")
    figure.suptitle("The likeliest token (red) becomes part of the next input")
    plt.show()
    say(sentences[min(sentences)])


def say_correct(probabilities, correct, steps, tokenizer):
    """Says how probable correct tokens are, and what else is likely at the lowest."""
    right, low = np.sum(probabilities.max(axis=-1) == correct), correct.argmin()
    first, second = map(int, probabilities[low].argsort()[:-3:-1])
    other = second if probabilities[low, first] == correct[low] else first
    where = f"{right} of {len(steps)} positions"
    say(
        f"The correct token is the likeliest at "
        f"{'each position' if right == len(steps) else where}, "
        f"and the loss is {-np.log(correct).mean():.2f} nats. $p$ is lowest at "
        f"“{steps[low]}”, where “{tokenizer.tokens([other])[0]}” has "
        f"{probabilities[low, other]:.2f}."
    )


def rare_shares(pairs, validation, least=10):
    """The shares of the pairs and of others that have a word rare in the pairs."""
    bags = [re.findall(r"\w+", " ".join(both)) for both in [*pairs, *validation]]
    counts = Counter(word for bag in bags[: len(pairs)] for word in bag)
    rare = [min(counts[word] for word in bag) < least for bag in bags]
    return np.mean(rare[: len(pairs)]), np.mean(rare[len(pairs) :])


def say_losses(training, validation, pairs, validation_pairs):
    """Says what two losses with the same weights show, and how rare the words are."""
    text = f"With the averaged weights, the loss is {validation:.3f} nats on "
    text += f"validation sentences and {training:.3f} on training sentences. "
    ours, theirs = rare_shares(pairs, validation_pairs)
    if validation < 0.8 * training:
        text += "The validation sentences are easier"
        if theirs < 0.6 * ours:
            text += ", probably because rare words are less frequent in them: "
            text += f"{theirs:.0%} of the validation pairs and {ours:.0%} of the "
            text += "training pairs have a word that occurs fewer than 10 times in "
            text += "training"
        text += "."
    else:
        text += "A training point of the picture has earlier weights: it is the mean "
        text += "over some steps."
    say(text)


def relatives(texts, pairs):
    """For each text, the words it lacks in the source most like it, and that source."""
    bags = [(source, {*source.split()}) for source, _ in pairs]
    for words in ({*text.split()} for text in texts):
        lacks = ((len(words - bag), len(bag - words), source) for source, bag in bags)
        count, _, nearest = min(lacks)
        yield count, nearest


def show_relatives(rows, pairs):
    """Shows translations, each with the training sentence that is most like its source.

    The ``rows`` begin with source and translation.
    """
    near = relatives([row[0] for row in rows], pairs)
    for (source, written, *_), (_, nearest) in zip(rows, near, strict=True):
        print(f"{source}  →  {written}\n    in training: {nearest}")


def say_differences(rows, pairs):
    """Says how many translations equal their reference, and shows some others.

    The ``rows`` are source, translation and reference. Gives the rows that differ,
    and the sources that occur in the training ``pairs``.
    """
    wrong = [row for row in rows if row[1] != row[2]]
    seen = {source for source, _ in pairs} & {row[0] for row in rows}
    lacks = [count for count, _ in relatives([row[0] for row in rows], pairs)]
    near = sum(count <= 1 for count in lacks)
    text = f"{len(seen) or 'None'} of the {len(rows)} occur in training, but for "
    text += f"{near} of them, some training sentence has all of their words, or all "
    text += "but one. "
    equal = len(rows) - len(wrong) if wrong else "All"
    text += f"**{equal}** translations equal their reference."
    text += " These differ:\n\n" * bool(wrong)
    for source, written, reference in wrong[:3]:
        text += f"* {source} → {written} (reference: {reference})\n"
    say(text)
    return wrong, seen


def show_scores(texts, meanings, needed, results):
    """Shows translations with scores, and names the best score of a wrong one.

    A translation is wrong without the pattern that its meaning needs.
    """
    wrong = []
    rows = zip(texts, meanings, needed, *results, strict=True)
    for text, means, needs, english, score in rows:
        right = re.search(needs, english)
        mark = f"score {score:.2f}, {'right' if right else 'wrong'}"
        print(f"{text}\n    →  {english}\n    means: {means}\n    {mark}")
        wrong += [] if right else [(score, english)]
    for score, english in sorted(wrong)[-1:]:
        say(f"The best score of a wrong translation is {score:.2f}: “{english}”")


def say_most(head, most, meanings):
    """Says which token a head reads most for each token that has a meaning."""
    text = f"In {head}, the most attention goes from\n\n"
    for token, meaning in meanings.items():
        if token in most:
            text += f"* “{token}” to “{most[token]}”"
            text += f", not to “{meaning}”\n" if most[token] != meaning else "\n"
    say(text)


def best_head(model, tokenizer, text, written):
    """Picks the head of cross-attention that gives the end of a text the least.

    Gives the tokens that it reads, its weights (target, source) and its name.
    """
    source = [*tokenizer.encode([text])[0], END_ID]
    target_in = [START_ID, *tokenizer.processor.piece_to_id(written[:-1])]
    model((np.array([source]), np.array([target_in])))
    weights = np.stack(
        [layer.cross_attention.weights_seen[0] for layer in model.decoder.stack]
    )  # (layers, heads, target, source)
    at_the_end = weights[..., -2:].mean(axis=(-1, -2))  # (layers, heads)
    layer, head = np.unravel_index(at_the_end.argmin(), at_the_end.shape)
    name = f"head {head + 1} of layer {layer + 1}"
    return tokenizer.tokens(source), weights[layer, head], name
