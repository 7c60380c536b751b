"""Pictures of what a model is made of: its positions, and its tokens' neighbours."""

import math

import numpy as np

from tfxformer.plots.style import COLOURS, drawing

POSITION = "position (tokens from the start)"


def draw_positions(encoding):
    """Draws positional encodings as a heat map: a row for each position (section 3.5).

    Args:
        encoding: an array ``(positions, depth)``.

    Returns:
        A Matplotlib figure.

    Example:
        >>> from tfxformer import positional_encoding
        >>> figure = draw_positions(positional_encoding(50, 128))
        >>> figure.axes[0].images[0].get_array().shape
        (50, 128)
    """
    with drawing(8, 4.5) as figure:
        axes = figure.add_subplot(title="Positional encoding", ylabel=POSITION)
        axes.set_xlabel("depth (component of the vector, from 0)")
        image = axes.imshow(_matrix(encoding))
        axes.locator_params(integer=True)
        figure.colorbar(image, label="value (no unit)")
    return figure


def draw_position_curves(encoding, depths=(1, 5, 15, 20)):
    """Draws single components of positional encodings over position (section 3.5).

    Args:
        encoding: an array ``(positions, depth)``.
        depths: which components, from 0.

    Returns:
        A Matplotlib figure.

    Example:
        >>> from tfxformer import positional_encoding
        >>> figure = draw_position_curves(positional_encoding(100, 512))
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['depth 1', 'depth 5', 'depth 15', 'depth 20']
    """
    encoding = _matrix(encoding)
    with drawing(8, 1.2 * len(depths) + 0.9) as figure:
        panels = figure.subplots(len(depths), sharex=True, squeeze=False)[:, 0]
        for axes, depth in zip(panels, depths, strict=True):
            axes.plot(encoding[:, depth])
            axes.set_ylabel(f"depth {depth}")
            axes.grid(True)
        panels[0].set_title("Positional encoding over position: values (no unit)")
        panels[-1].set_xlabel(POSITION)
        panels[-1].locator_params(axis="x", integer=True)
    return figure


def draw_position_similarity(encoding):
    """Draws how alike the encodings of positions are: the cosines of their angles.

    Args:
        encoding: an array ``(positions, depth)``.

    Returns:
        A Matplotlib figure.

    Example:
        >>> from tfxformer import positional_encoding
        >>> figure = draw_position_similarity(positional_encoding(50, 128))
        >>> float(figure.axes[0].images[0].get_array()[7, 7].round(3))
        1.0
    """
    unit = _unit(encoding)
    with drawing(6, 5) as figure:
        axes = figure.add_subplot(title="Similarity between positions")
        axes.set(xlabel=POSITION, ylabel=POSITION)
        image = axes.imshow(unit @ unit.T, vmax=1, aspect="equal")
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

    Returns:
        A Matplotlib figure.

    Raises:
        ValueError: when a chosen token is not among the tokens.

    Example:
        >>> vectors = np.array([[1, 0.1], [1, 0], [0, 1], [-1, 0]])
        >>> tokens = ["▁cat", "▁dog", "▁the", "▁not"]
        >>> figure = draw_neighbours(vectors, tokens, ["▁cat"], neighbours=2)
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['▁dog', '▁the']
    """
    unit, tokens = _unit(embeddings), list(tokens)
    columns = min(len(chosen), 3)
    rows = math.ceil(len(chosen) / columns)
    with drawing(3.2 * columns + 0.5, rows * (0.25 * neighbours + 0.7) + 1) as figure:
        for number, token in enumerate(chosen):
            own = tokens.index(token)
            cosines = unit @ unit[own]
            cosines[own] = -np.inf
            near = np.argsort(-cosines, kind="stable")[: min(neighbours, len(unit) - 1)]
            axes = figure.add_subplot(rows, columns, number + 1, title=token)
            axes.barh(range(len(near)), cosines[near], color=COLOURS[number % 6])
            axes.set_yticks(range(len(near)), [tokens[place] for place in near])
            axes.set_xlim(min(0, cosines[near].min(initial=0)), 1)
            axes.invert_yaxis()
        figure.suptitle("Nearest embeddings")
        figure.supxlabel("cosine similarity (no unit)", fontsize=10)
    return figure


def _matrix(array):
    array = np.asarray(array, "float64")
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{array.shape=}: it must have rows and columns")
    return array


def _unit(array):
    vectors = _matrix(array)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
