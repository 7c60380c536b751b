"""Pictures of what a model is made of: its positions, and its tokens' neighbours."""

import numpy as np

from tfxformer.plots.style import COLOURS, drawing

POSITION = "position (tokens from the start)"


def draw_positions(encoding, kind="heatmap", depths=(1, 5, 15, 20)):
    """Draws positional encodings (section 3.5).

    Args:
        encoding: an array ``(positions, depth)``.
        kind: "heatmap" of all values, "curves" of some depths over position, or
            "similarity": the cosine of each position's angle to each other one.
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
        return _draw_curves(encoding, depths)
    with drawing(8, 4.5) if kind == "heatmap" else drawing(6, 5) as figure:
        axes = figure.add_subplot(ylabel=POSITION)
        if kind == "heatmap":
            image, unit = axes.imshow(encoding), "value (no unit)"
            axes.set(title="Positional encoding", xlabel="depth (component, from 0)")
        else:
            vectors, unit = _unit(encoding), "cosine similarity (no unit)"
            image = axes.imshow(vectors @ vectors.T, vmax=1, aspect="equal")
            axes.set(title="Similarity between positions", xlabel=POSITION)
        axes.locator_params(integer=True)
        figure.colorbar(image, label=unit)
    return figure


def _draw_curves(encoding, depths):
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
    vectors, tokens = _unit(np.asarray(embeddings, "float64")), list(tokens)
    with drawing(3.2 * len(chosen) + 0.5, 0.25 * neighbours + 1.7) as figure:
        for number, token in enumerate(chosen, 1):
            own = tokens.index(token)
            cosines = vectors @ vectors[own]
            near = [n for n in np.argsort(-cosines) if n != own][:neighbours]
            axes = figure.add_subplot(1, len(chosen), number, title=token)
            axes.barh(range(len(near)), cosines[near], color=COLOURS[number % 6])
            axes.set_yticks(range(len(near)), [tokens[place] for place in near])
            axes.set_xlim(min(0, cosines[near].min(initial=0)), 1)
            axes.invert_yaxis()
        figure.supxlabel("cosine similarity (no unit)", fontsize=10)
    return figure


def _unit(vectors):
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
