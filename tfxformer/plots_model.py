"""Pictures of what a model is made of: its positions, and its pieces' neighbours."""

import numpy as np

from tfxformer.plots_canvas import drawing, line, spell, write_pieces

# Dark is low and light is high, for all eyes (Nuñez, Anderton and Renslow 2018).
VALUES = "cividis"
POSITION = "position (tokens from the start)"


def draw_positions(encoding, dark=False):
    """Draws positional encodings as a heat map: a row for each position (section 3.5).

    Args:
        encoding: an array ``(positions, depth)``.
        dark: light letters on dark paper.

    Returns:
        A Matplotlib figure; a notebook shows it, `save` makes a file of it.

    Raises:
        ModuleNotFoundError: when Matplotlib is not installed.

    Example:
        >>> from tfxformer import positional_encoding
        >>> figure = draw_positions(positional_encoding(50, 128))
        >>> figure.axes[0].images[0].get_array().shape
        (50, 128)
    """
    encoding = _matrix(encoding, "encoding")
    with drawing(dark, (8, 4.5), "constrained") as (figure, _):
        axes = figure.add_subplot()
        image = axes.imshow(
            encoding, cmap=VALUES, aspect="auto", interpolation="nearest"
        )
        axes.set(
            title="Positional encoding",
            xlabel="depth (component of the vector, from 0)",
            ylabel=POSITION,
        )
        _whole(axes.xaxis, axes.yaxis)
        _scale(figure, image, axes, "value (no unit)")
    return figure


def draw_position_curves(encoding, depths=(1, 5, 15, 20), dark=False):
    """Draws single components of positional encodings over position (section 3.5).

    Args:
        encoding: an array ``(positions, depth)``.
        depths: which components, from 0.
        dark: light letters on dark paper.

    Returns:
        A Matplotlib figure; a notebook shows it, `save` makes a file of it.

    Raises:
        ValueError: when a depth is not there, or none is asked for.
        ModuleNotFoundError: when Matplotlib is not installed.

    Example:
        >>> from tfxformer import positional_encoding
        >>> figure = draw_position_curves(positional_encoding(100, 512))
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['depth 1', 'depth 5', 'depth 15', 'depth 20']
    """
    encoding = _matrix(encoding, "encoding")
    wrong = [depth for depth in depths if not 0 <= depth < encoding.shape[1]]
    if wrong or not len(depths):
        raise ValueError(f"depths {wrong}: there are 0 to {encoding.shape[1] - 1}")
    with drawing(dark, (8, 1.2 * len(depths) + 0.9), "constrained") as (figure, theme):
        # One below another: what stands at one height here is told apart there.
        panels = figure.subplots(len(depths), sharex=True, squeeze=False)[:, 0]
        for number, (axes, depth) in enumerate(zip(panels, depths, strict=True)):
            style = line(theme, number) | {"markersize": 3}
            axes.plot(encoding[:, depth], label=f"depth {depth}", **style)
            axes.set_ylabel(f"depth {depth}")
            axes.grid(True)
        panels[0].set_title("Positional encoding over position: values (no unit)")
        panels[-1].set_xlabel(POSITION)
        _whole(panels[-1].xaxis)
    return figure


def draw_position_similarity(encoding, dark=False):
    """Draws how alike the encodings of positions are: the cosines of their angles.

    Args:
        encoding: an array ``(positions, depth)``.
        dark: light letters on dark paper.

    Returns:
        A Matplotlib figure; a notebook shows it, `save` makes a file of it.

    Raises:
        ModuleNotFoundError: when Matplotlib is not installed.

    Example:
        >>> from tfxformer import positional_encoding
        >>> figure = draw_position_similarity(positional_encoding(50, 128))
        >>> float(figure.axes[0].images[0].get_array()[7, 7].round(3))
        1.0
    """
    unit = _unit(_matrix(encoding, "encoding"))
    with drawing(dark, (6, 5), "constrained") as (figure, _):
        axes = figure.add_subplot()
        cosines = unit @ unit.T
        image = axes.imshow(cosines, cmap=VALUES, interpolation="nearest", vmax=1)
        axes.set(title="Similarity between positions", xlabel=POSITION, ylabel=POSITION)
        _whole(axes.xaxis, axes.yaxis)
        _scale(figure, image, axes, "cosine similarity (no unit)")
    return figure


def draw_neighbours(embeddings, pieces, chosen, neighbours=6, dark=False):
    """Draws chosen pieces among those whose embeddings have the nearest directions.

    On the left the plane that tells most of them apart (principal components), on the
    right how near they are.

    Args:
        embeddings: an array ``(pieces, depth)``.
        pieces: as many strings.
        chosen: some of them.
        neighbours: how many to show of each.
        dark: light letters on dark paper.

    Returns:
        A Matplotlib figure; a notebook shows it, `save` makes a file of it.

    Raises:
        ValueError: when a chosen piece is not there, or none is chosen.
        ModuleNotFoundError: when Matplotlib is not installed.

    Example:
        >>> import numpy as np
        >>> vectors = np.array([[1, 0.1], [1, 0], [0, 1], [-1, 0]])
        >>> pieces = ["▁cat", "▁dog", "▁the", "▁not"]
        >>> figure = draw_neighbours(vectors, pieces, ["▁cat"], neighbours=2)
        >>> [label.get_text() for label in figure.axes[1].get_yticklabels()]
        ['▁dog', '▁the']
    """
    unit, pieces = _unit(_matrix(embeddings, "embeddings")), list(pieces)
    if len(unit) != len(pieces):
        raise ValueError(f"{len(unit)} embeddings of {len(pieces)} pieces")
    if not chosen:
        raise ValueError("no piece is chosen")
    near = {piece: _nearest(unit, pieces, piece, neighbours) for piece in chosen}
    # Who is a neighbour of two stands once, with the first.
    group = {pieces.index(piece): number for number, piece in enumerate(chosen)}
    for number, (places, _) in enumerate(near.values()):
        for place in places:
            group.setdefault(int(place), number)
    height = max(5.0, 0.2 * sum(len(places) + 3 for places, _ in near.values()))
    with drawing(dark, (10, height), "constrained") as (figure, theme):
        plane, *bars = (
            figure.add_subplot(place) for place in _beside(figure, len(near))
        )
        points, shares = _plane(unit[[*group]])
        for number in range(len(near)):
            rows = [row for row, place in enumerate(group) if group[place] == number]
            style = line(theme, number) | {"linestyle": "", "markersize": 6}
            plane.plot(*points[rows].T, **style)
        names = dict(zip("xy", ("first", "second"), strict=True))
        plane.set(
            title="The plane that tells most of them apart",
            **{
                f"{axis}label": f"{name} principal component ({share:.0%} of variance)"
                for (axis, name), share in zip(names.items(), shares, strict=True)
            },
        )
        plane.margins(0.15)
        plane.grid(True)
        for number, (axes, piece) in enumerate(zip(bars, near, strict=True)):
            places, cosines = near[piece]
            axes.barh(range(len(places)), cosines, color=theme.lines[number % 6])
            axes.plot(cosines, range(len(places)), **style_of_ends(theme, number))
            write_pieces(axes.yaxis, [pieces[place] for place in places], 9)
            axes.set_xlim(min(0, *cosines), 1)
            axes.invert_yaxis()
            (title,), families = spell([piece])
            axes.set_title(title, fontsize=10, fontfamily=families, parse_math=False)
        axes.set_xlabel("cosine similarity (no unit)")
        figure.draw_without_rendering()  # now places are known
        _write_beside(plane, points, [pieces[place] for place in group], theme, chosen)
    return figure


def style_of_ends(theme, number):
    """The marker of a chosen piece's group, at the ends of its bars."""
    return line(theme, number) | {"linestyle": "", "color": theme.ink}


def _nearest(unit, pieces, piece, count):
    """The places of a piece's neighbours and their cosines, the nearest first."""
    if piece not in pieces:
        raise ValueError(f"{piece!r}: there is no such piece")
    own = pieces.index(piece)
    cosines = unit @ unit[own]
    order = [place for place in np.argsort(-cosines, kind="stable") if place != own]
    return order[:count], cosines[order[:count]]


def _beside(figure, count):
    """A grid with one large place, and a column of small ones at its right."""
    grid = figure.add_gridspec(count, 2, width_ratios=(2.2, 1))
    return [grid[:, 0], *(grid[row, 1] for row in range(count))]


def _plane(vectors):
    """Principal components: places ``(count, 2)``, and both axes' share of variance."""
    centred = vectors - vectors.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    points, shares = np.zeros((len(vectors), 2)), np.zeros(2)
    two = min(len(sizes), 2)
    points[:, :two] = (left * sizes)[:, :two]
    if (sizes**2).sum() > 0:
        shares[:two] = (sizes**2 / (sizes**2).sum())[:two]
    return points, shares


def _write_beside(axes, points, pieces, theme, chosen):
    """Writes each point's piece where it hides neither a point nor another piece."""
    labels, families = spell(pieces)
    places = axes.transData.transform(points)
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in places]
    for point, place, label, piece in zip(points, places, labels, pieces, strict=True):
        text = axes.annotate(
            label,
            point,
            xytext=(0, 0),
            textcoords="offset pixels",
            fontsize=10 if piece in chosen else 8,
            fontweight="bold" if piece in chosen else "normal",
            fontfamily=families,
            color=theme.ink,
            ha="center",
            va="center",
            parse_math=False,
            arrowprops={"arrowstyle": "-", "color": theme.faint, "shrinkA": 0},
        )
        box = text.get_window_extent()
        half = box.width / 2 + 1, box.height / 2 + 1
        best = min(
            _around(half),
            key=lambda way: (
                sum(_overlap(_box(place, way, half), other) for other in taken),
                abs(way[0]) + 2 * abs(way[1]),
            ),
        )
        text.xyann = best
        taken.append(_box(place, best, half))


def _around(half):
    """Where a label may stand: at the sides of its point, and farther and farther."""
    wide, high = half
    for far in (5, 14, 26, 40, 58, 80):
        for angle in np.linspace(0, 2 * np.pi, 16, endpoint=False):
            x, y = np.cos(angle), np.sin(angle)
            yield x * (wide + far), y * (high + far)


def _box(place, way, half):
    x, y = place[0] + way[0], place[1] + way[1]
    return x - half[0], y - half[1], x + half[0], y + half[1]


def _overlap(one, other):
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    return max(wide, 0) * max(high, 0)


def _matrix(array, name):
    array = np.asarray(array, "float64")
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{name}.shape={array.shape}: it must have rows and columns")
    return array


def _unit(vectors):
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _whole(*axes):
    """Places have whole numbers."""
    from matplotlib.ticker import MaxNLocator

    for axis in axes:
        axis.set_major_locator(MaxNLocator(integer=True))


def _scale(figure, image, axes, label):
    bar = figure.colorbar(image, ax=axes, label=label)
    bar.outline.set_visible(False)
