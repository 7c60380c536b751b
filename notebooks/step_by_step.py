"""What `attention_step_by_step.ipynb` trains on, prints and draws.

All of attention is in the notebook. Here are the parts that teach less: English
sentences with Spanish translations, tables, comparisons and pictures.
"""

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown, display

from tfxformer import plots
from tfxformer.notebooks.patterns import entries

COLOURS = entries(
    "blue = azul azul, red = rojo roja, black = negro negra, white = blanco blanca, "
    "green = verde verde, yellow = amarillo amarilla"
)
THINGS = entries(
    "ball = la bola, house = la casa, door = la puerta, table = la mesa, "
    "shirt = la camisa, book = el libro, car = el coche, hat = el sombrero, "
    "cat = el gato, dog = el perro, cow = la vaca, milk = la leche"
)
DRINKERS = entries(
    "cat = el gato, dog = el perro, cow = la vaca, horse = el caballo, "
    "man = el hombre, woman = la mujer"
)
DEEDS = entries("drank = bebió, saw = vio, wanted = quería, spilled = derramó")
DRINKS = entries(
    "milk = la leche, coffee = el café, tea = el té, wine = el vino, water = el agua"
)
GREETED = entries(
    "are you = estás, is he = está él, is she = está ella, are they = están ellos"
)
MAKERS = entries(
    "she = ella, he = él, my mother = mi madre, my father = mi padre, "
    "the man = el hombre, the woman = la mujer"
)
MADE = entries(
    "dinner = preparando la cena, coffee = preparando café, money = ganando dinero, "
    "the bed = haciendo la cama, noise = haciendo ruido, "
    "a decision = tomando una decisión, a film = rodando una película"
)


def agreeing(noun, colour):
    masculine, feminine = COLOURS[colour].split()
    return masculine if noun.startswith("el ") else feminine


def sentence_patterns():
    """Pairs of sentences, English and Spanish, by the pattern that they follow."""
    found = {}
    found["the ball is red"] = [
        (f"the {en} is {colour}", f"{es} es {agreeing(es, colour)}")
        for en, es in THINGS.items()
        for colour in COLOURS
    ]
    found["the black cat ..."] = [
        (
            f"the {colour} {en} {did} the {drink}",
            f"{es} {agreeing(es, colour)} {hizo} {x}",
        )
        for en, es in DRINKERS.items()
        for colour in ("black", "white")
        for did, hizo in DEEDS.items()
        for drink, x in DRINKS.items()
    ]
    found["hi how are you"] = [
        (f"{hi} how {en}", f"hola cómo {es}")
        for hi in ("hi", "hello")
        for en, es in GREETED.items()
    ]
    found["she is making ..."] = [
        (f"{en} is making {thing}", f"{es} está {x}")
        for en, es in MAKERS.items()
        for thing, x in MADE.items()
    ]
    return found


def say(text):
    """Shows text with numbers from this run."""
    display(Markdown(text))


def show(title, rows, columns, values, digits=2):
    """Prints a matrix with names on its rows and columns."""
    side = max(map(len, rows))
    width = max(7, *map(len, columns)) + 1
    print(title, " " * side + "".join(f"{name:>{width}}" for name in columns), sep="\n")
    for name, row in zip(rows, values, strict=True):
        print(f"{name:>{side}}" + "".join(f"{x:{width}.{digits}f}" for x in row))
    print()


def compare(name, ours, package):
    """Prints how far the notebook's numbers are from the package's."""
    apart = np.abs(np.asarray(ours) - np.asarray(package)).max()
    print(f"{name}: largest difference from the package's {apart:.0e}")


def draw_arrows(axes, names, vectors, offsets, alpha=1):
    """Draws vectors as arrows, with their names at offsets from the tips."""
    for number, (name, tip) in enumerate(zip(names, vectors, strict=True)):
        color = f"C{number}"
        arrow = {"arrowstyle": "-|>", "color": color, "lw": 2, "alpha": alpha}
        axes.annotate("", tip, (0, 0), arrowprops=arrow | {"shrinkA": 0, "shrinkB": 0})
        place = {"textcoords": "offset points", "ha": "center", "va": "center"}
        axes.annotate(name, tip, offsets[number], color=color, size=13, **place)
    axes.set(aspect="equal", xlabel="number 1", ylabel="number 2")
    axes.locator_params(nbins=5)


def draw_three(title, names, vectors, offsets, old=None):
    """Draws three arrows, over the pale arrows of old vectors."""
    _, axes = plt.subplots(figsize=(4.4, 3.3), layout="constrained")
    if old is not None:
        draw_arrows(axes, [""] * 3, old, [(0, 0)] * 3, alpha=0.25)
    draw_arrows(axes, names, vectors, offsets)
    axes.set(xlim=(0, 2.4), ylim=(0, 1.8), title=title)
    plt.show()


def draw_reading(tokens, shares, word):
    """Draws what one word reads: the wider the band, the larger the share."""
    _, axes = plt.subplots(figsize=(6, 3), layout="constrained")
    height = np.linspace(0, 1)  # from the reader up to the words that it reads
    bend = height**2 * (3 - 2 * height)
    reader = tokens.index(word)
    left = reader - 0.5  # the bands meet side by side at the reader
    for place, (token, share) in enumerate(zip(tokens, shares, strict=True)):
        middle = left + share / 2 + (place - left - share / 2) * bend
        sides = middle - share / 2, middle + share / 2
        axes.fill_betweenx(height, *sides, color="C0", alpha=0.3 + 0.7 * share, lw=0)
        axes.text(place, 1.06, f"{token}\n{share:.0%}", ha="center", size=14)
        left += share
    axes.text(reader, -0.06, f"“{word}” reads", ha="center", va="top", size=14)
    axes.axis("off")
    plt.show()


def without_bar(figure, size):
    """Takes the colour bar away, because the numbers in the cells say more."""
    *panels, bar = figure.axes
    bar.remove()
    for text in (text for panel in panels for text in panel.texts):
        text.set_size(size)
    return panels


def draw_mask(queries, keys, mask):
    """Draws a mask and what it adds to the scores."""
    figure = plots.draw_mask(queries, keys, mask, "What the mask adds to the scores")
    without_bar(figure, 12)
    return figure


def draw_weights(queries, keys, weights, **names):
    """Draws weights in percent; a frame marks the largest weight of each row."""
    figure = plots.draw_attention(queries, keys, weights, **names)
    heads = np.array(weights, ndmin=3)
    for panel, head in zip(without_bar(figure, 11), heads, strict=True):
        for row, best in enumerate(head.argmax(axis=1)):
            corner = best - 0.46, row - 0.46
            frame = plt.Rectangle(corner, 0.92, 0.92, fill=False, ec="C1", lw=3)
            panel.add_patch(frame)
    return figure


def draw_looks(portrait, patch, looks):
    """Draws where each query, a patch of the picture, gives its attention."""
    _, panels = plt.subplots(2, 2, figsize=(6.4, 6.6), layout="constrained")
    for line, (name, (row, column, weights)) in zip(panels, looks.items(), strict=True):
        for panel, alpha in zip(line, (1, 0.25), strict=True):
            panel.imshow(portrait, cmap="gray", vmin=0, vmax=1, alpha=alpha)
            panel.set(xticks=[], yticks=[])
        corner = column * patch - 0.5, row * patch - 0.5
        frame = plt.Rectangle(corner, patch, patch, fill=False, ec="C1", lw=3)
        line[0].add_patch(frame)
        line[0].set_title(f"query: {name}")
        line[1].set_title("weights in percent")
        shade = np.kron(weights / weights.max(), np.ones((patch, patch)))
        blue = np.ones_like(shade)
        line[1].imshow(blue, cmap="Blues", vmin=0, vmax=1.4, alpha=shade)
        for (y, x), share in np.ndenumerate(weights):
            if share >= 0.005:
                place = (x + 0.5) * patch - 0.5, (y + 0.5) * patch - 0.5
                color = "white" if share > 0.6 * weights.max() else "black"
                text = f"{100 * share:.0f}"
                line[1].text(*place, text, color=color, ha="center", va="center")
    plt.show()
