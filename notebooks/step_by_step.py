"""What `attention_step_by_step.ipynb` trains on, prints and draws.

All of attention is in the notebook. Here are the parts that teach less: English
sentences with Spanish translations, training, tables, comparisons and pictures.
"""

import keras
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import PowerNorm

from tfxformer import masked_loss, plots
from tfxformer.decoding import decode
from tfxformer.layers import scaled_dot_product_attention
from tfxformer.notebooks.patterns import entries
from tfxformer.notebooks.pictures import FAINT, draw_numbers, name_shares

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


PATTERNS = sentence_patterns()
PAIRS = [pair for of_pattern in PATTERNS.values() for pair in of_pattern]
ORDER = np.random.default_rng(0).permutation(len(PAIRS))
HELD_OUT, TRAINING = ([PAIRS[i] for i in x] for x in np.split(ORDER, [40]))

# The package's ids: 0 is padding, 1 unknown, 2 start, 3 end. Here a token is a word.
WORDS = ["<pad>", "<unk>", "<start>", "<end>"]
WORDS += sorted({word for pair in PAIRS for text in pair for word in text.split()})
ID_OF = {word: i for i, word in enumerate(WORDS)}


def ids(texts):
    """Texts to padded ids, int32 (texts, longest)."""
    rows = [[ID_OF[word] for word in text.split()] for text in texts]
    longest = max(map(len, rows))
    return np.array([row + [0] * (longest - len(row)) for row in rows], "int32")


def batch(pairs):
    """Pairs to ``(source, target_in), target_out``, the arrays for training.

    The decoder's input is the target after ``<start>``; the labels end with ``<end>``.
    """
    source, target = zip(*pairs, strict=True)
    before = ids([f"<start> {text}" for text in target])
    return (ids(source), before), ids([f"{text} <end>" for text in target])


def untrained_copy(model):
    """A model of the same sizes, with random weights."""
    copy = model.from_config(model.get_config())
    copy.build()
    return copy


def train(model):
    """Trains a model, and prints how many other sentences it translates right."""
    optimizer = keras.optimizers.Adam(3e-3, beta_2=0.98)
    model.compile(optimizer=optimizer, loss=masked_loss)
    inputs, labels = batch(TRAINING)
    model.fit(inputs, labels, batch_size=32, epochs=30, verbose=0)
    print(f"trained on {len(TRAINING)} pairs of sentences")
    right = count_right(model, HELD_OUT)
    print(
        f"{right} of {len(HELD_OUT)} other sentences are translated without a mistake"
    )


def translate(model, texts):
    """Greedy translations."""
    found = decode(model, ids(texts)).ids.numpy()[:, 0]
    return [" ".join(WORDS[i] for i in row if i > 3) for row in found]


def count_right(model, pairs):
    """How many pairs the model translates without a mistake."""
    sources, targets = zip(*pairs, strict=True)
    return np.sum(np.array(translate(model, sources)) == np.array(targets))


def of_layer(mha, x, head):
    """Queries, keys and values that the layer itself computes for one head."""
    found = mha.split(mha.query_dense(x[None]), len(x)), *mha.project(x[None])
    return [np.array(each)[0, head] for each in found]


def of_package(queries, keys, values):
    """The package's attention of one head: its output and its weights."""
    found = scaled_dot_product_attention(
        *(np.float32(matrix)[None, None] for matrix in (queries, keys, values))
    )
    return [np.array(each)[0, 0] for each in found]


def seen_by_cross(model, source, target):
    """What goes into the cross-attention when the model reads a pair, and comes out.

    Without the batch: "decoder" and "encoder" go in, "output" and "weights" come out.
    """
    attention = model.decoder.dec_layers[0].cross_attention
    seen, call = {}, attention.mha.call

    def record(query, value, *args, **kwargs):
        result = call(query, value, *args, **kwargs)
        output = result[0] if isinstance(result, tuple) else result
        seen.update(decoder=query, encoder=value, output=output)
        return result

    attention.mha.call = record
    model((ids([source]), ids([f"<start> {target}"])))
    attention.mha.call = call
    seen["weights"] = attention.last_attn_scores
    return {name: np.array(found)[0] for name, found in seen.items()}


def on_objects(model, pairs):
    """The mean weight of each head on the object, where the decoder writes the verb."""
    inputs, _ = batch(pairs)
    model(inputs)
    attention = model.decoder.dec_layers[0].cross_attention
    found = []
    of_pairs = np.array(attention.last_attn_scores)  # (pairs, heads, queries, keys)
    for weights, (english, spanish) in zip(of_pairs, pairs, strict=True):
        row = spanish.split().index("está") + 1  # the row reads "está", writes the verb
        line = english.split()
        found.append(weights[:, row, line.index("making") + 1 : len(line)].sum(axis=1))
    return np.mean(found, axis=0)


def neighbours(vocabulary):
    """How close two words of a sentence are, and in how many sentences they are."""
    near = np.zeros((len(vocabulary),) * 2, "float32")
    counts = np.zeros_like(near)
    for sentence, _ in PAIRS:
        line = [word for word in sentence.split() if word != "the"]
        if len(line) == 4 and set(line) <= set(vocabulary):
            at = [vocabulary.index(word) for word in line]
            for i in range(4):
                for j in range(4):
                    if i != j:
                        near[at[i], at[j]] = {1: 1, 2: 0.5, 3: 0}[abs(i - j)]
                        counts[at[i], at[j]] += 1
    return near, counts


def face():
    """A drawn face of 60 by 60 pixels, and which of them are hair."""
    y, x = np.mgrid[:60, :60]
    head = ((x - 30) / 20) ** 2 + ((y - 30) / 25) ** 2 < 1
    hair = (y < 18) & head
    portrait = np.full((60, 60), 0.5)  # a background
    portrait[head] = 0.8  # a face
    portrait[hair] = 0.1
    for left in (18, 36):  # eyes: an iris in the white
        portrait[24:30, left : left + 6] = 1.0
        portrait[25:29, left + 2 : left + 4] = 0.0
    portrait[42:44, 24:36] = 0.35  # a mouth
    portrait[30:37, 29:31] = 0.65  # a nose
    return portrait, hair


def cut(picture, size=6):
    """The square patches of a picture, one to a row."""
    count = len(picture) // size
    patches = picture.reshape(count, size, count, size).swapaxes(1, 2)
    return patches.reshape(count * count, size * size)


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
    axes.text(reader, -0.06, f"“{word}”", ha="center", va="top", size=14)
    first, second = np.argsort(shares)[::-1][:2]
    title = f"“{word}” reads mostly “{tokens[first]}” and “{tokens[second]}”"
    axes.set_title(title, size=14, pad=44)
    axes.axis("off")
    plt.show()


def draw_projections(tokens, X, products):
    """Draws three products: each to the right of X and below its matrix.

    What makes the last token's first numbers is dark.
    """
    (rows, inner), columns = X.shape, products[0].shape[1]
    _, axes = plt.subplots(figsize=(8, 5.2), layout="constrained")
    middle = {"ha": "center", "size": 13}

    def draw_block(matrix, left, top, *, shape, tall, color, dark):
        shades = np.full(shape, 0.2)
        shades[dark] = 1
        for (row, column), shade in np.ndenumerate(shades):
            corner = left + column, top + tall * row
            cell = plt.Rectangle(corner, 1, tall, fc=(color, shade), ec="w")
            axes.add_patch(cell)
        y, side = (top - 0.5, "bottom") if top < 0 else (tall * rows + 0.5, "top")
        words = "{}\n({} × {})".format(matrix, *shape)
        axes.text(left + shape[1] / 2, y, words, va=side, **middle)

    below = {"tall": 2, "top": 0}
    you, first = (rows - 1, slice(None)), (slice(None), 0)
    draw_block("X", 0, shape=X.shape, color="0.3", dark=you, **below)
    axes.set(xlim=(-5, inner + 3 * columns + 9), ylim=(2 * rows + 6, -inner - 7))
    for row, token in enumerate(tokens):
        where = -0.6, 2 * row + 1
        axes.text(*where, token, ha="right", va="center", size=12)
    words = "a dark row times a dark column,\nplus a bias, gives a dark number"
    axes.text(inner / 2, -18, f"{words}\n\nfor “{tokens[-1]}”:", **middle)
    for place, (role, product) in enumerate(zip("QKV", products, strict=True)):
        left, color = inner + 2 + place * (columns + 3), f"C{place}"
        above = {"shape": (inner, columns), "tall": 1, "top": -inner - 1.5}
        draw_block(f"W_{role}", left, color=color, dark=first, **above)
        both = {"shape": product.shape, "color": color, "dark": (rows - 1, 0)}
        draw_block(role, left, **both, **below)
        words = f"{product[-1, 0]:.2f} in the {('query', 'key', 'value')[place]}"
        axes.text(inner / 2, 3 * place - 14, words, color=color, **middle)
    axes.set_title("Three matrices turn X into queries, keys and values", size=14)
    axes.axis("off")
    plt.show()


def draw_weighted_sum(tokens, weights, values, word):
    """Draws the values, each times its weight, and their sum below."""
    rows = weights[:, None] * values
    rows = np.vstack([rows, rows.sum(axis=0)])
    names = [f"{w:.2f} · V({x})" for w, x in zip(weights, tokens, strict=True)]
    first, second = np.argsort(weights)[::-1][:2]
    title = f"“{word}” is mostly a mean of “{tokens[first]}” and “{tokens[second]}”"
    _, panel = plt.subplots(figsize=(7.5, 3.2), layout="constrained")
    draw_numbers(panel, rows)
    panel.set_yticks(range(len(rows)), [*names, f"sum = Z({word})"], size=12)
    panel.set_title(title, size=12)
    panel.axhline(len(tokens) - 0.5, color="black", lw=2)
    plt.show()


def draw_scaling(sizes, raw, divided):
    """Draws what `measure` found for each d_k, raw and divided."""
    _, panels = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    panels[0].set(title="Not scaled: one key gets more and more")
    panels[0].set(ylabel="largest weight of a row (mean)")
    panels[1].set(title="Not scaled: more gradients vanish")
    panels[1].set(ylabel="queries with a gradient below 0.01")
    panels[1].yaxis.set_major_formatter("{x:.0%}")
    places = [[(30, 0.6), (30, 0.29)], [(14, 0.3), (30, 0.04)]]
    for column, panel in enumerate(panels):
        for found, label, style, place in (
            (raw, "not scaled", "C1o--", places[column][0]),
            (divided, "scaled", "C0s-", places[column][1]),
        ):
            panel.plot(sizes, [row[column + 1] for row in found], style)
            panel.text(*place, label, color=style[:2], size=13)
        panel.set(xscale="log", xlabel="d_k, numbers in a key")
        panel.set_xticks(sizes, sizes)
        panel.minorticks_off()
        panel.set_ylim(-0.02, 1.1 * panel.get_ylim()[1])
        panel.grid(alpha=0.3)
    plt.show()


def frame_largest(panel, weights, rows=None):
    """Frames the largest weight of each row, or of some rows.

    Weights that have the same percentage get a frame each.
    """
    shown = np.round(100 * np.array(weights))
    for row, column in np.argwhere(shown == shown.max(axis=1, keepdims=True)):
        if rows is None or row in rows:
            corner = column - 0.46, row - 0.46
            frame = plt.Rectangle(corner, 0.92, 0.92, fill=False, ec="C1", lw=3)
            panel.add_patch(frame)


def draw_weights(queries, keys, weights, title, *, rows, columns):
    """Draws weights as percentages; a frame marks the largest of each row."""
    columns += f"\n({FAINT})"
    names = {"rows": rows, "columns": columns}
    figure = plots.draw_attention(queries, keys, weights, title, **names)
    *panels, bar = figure.axes
    bar.remove()  # the cells have their numbers
    for panel, head in zip(panels, np.array(weights, ndmin=3), strict=True):
        name_shares(panel, head)
        frame_largest(panel, head)
    return figure


def draw_three_kinds(english, spanish, kinds):
    """Draws the mean of the heads; frames show what the last word reads."""
    source, target = english.split(), spanish.split()
    read, written = ["<start>", *target], [f"→ {x}" for x in (*target, "<end>")]
    parts = (
        (source, source, "encoder self-attention:\nsource reads source"),
        (written, read, "decoder self-attention:\ntarget reads its past"),
        (written, source, "cross-attention:\ntarget reads source"),
    )
    means = [kind.mean(axis=0) for kind in kinds]
    sizes = {"width_ratios": [len(columns) for _, columns, _ in parts]}
    figure, panels = plt.subplots(
        1, 3, figsize=(10.5, 4.1), layout="constrained", gridspec_kw=sizes
    )
    colours = plt.get_cmap("viridis").with_extremes(bad="0.88")
    last = len(written) - 2
    for panel, weights, part in zip(panels, means, parts, strict=True):
        rows, columns, title = part
        hidden = np.triu(np.full(weights.shape, columns is read), 1)
        shown = np.ma.masked_array(weights, hidden)
        panel.imshow(shown, cmap=colours, norm=PowerNorm(0.5, 0, 1), aspect="equal")
        name_shares(panel, weights)
        if rows is written:
            frame_largest(panel, weights, [last])
        panel.set_xticks(range(len(columns)), columns, rotation=90, size=12)
        panel.set_yticks(range(len(rows)), rows, size=12)
        panel.set_title(title, size=13)
        panel.set_anchor("N")
    panels[1].text(3.1, 0.4, "False", size=13, color="0.35", ha="center")
    figure.supxlabel(FAINT, size=11)
    words = read[means[1][last].argmax()], source[means[2][last].argmax()]
    title = (
        f"To write “{target[-1]}”, the decoder reads mostly “{words[0]}” in its past"
    )
    title += f" and “{words[1]}” in the source"
    figure.suptitle(title, size=14)
    plt.show()


def draw_heads(tokens, weights):
    """Draws all heads. The title names the heads where all rows read one word most."""
    best = weights.argmax(axis=-1)
    found = [
        f"“{tokens[row[0]]}” in head {number}"
        for number, row in enumerate(best, 1)
        if (row == row[0]).all()
    ]
    title = f"Every word reads {', '.join(found)}".replace("” in", "” most in", 1)
    varying = [f"head {n}" for n, row in enumerate(best, 1) if (row != row[0]).any()]
    if varying:
        title += f"; {' and '.join(varying)} var{'y' if len(varying) > 1 else 'ies'}"
    names = {"rows": "word that reads (query)", "columns": "word that is read (key)"}
    return draw_weights(tokens, tokens, weights, title, **names)


def draw_cross(source, target, weights, title):
    """Draws cross-attention: a row for each word that the decoder writes."""
    names = {"rows": "target token to write (query)", "columns": "source token (key)"}
    written = [f"→ {word}" for word in (*target.split(), "<end>")]
    return draw_weights(written, source.split(), weights, title, **names)


def draw_turned(names, before, after):
    """Draws the words of the toy, before and after training, at one scale."""
    _, panels = plt.subplots(1, 2, figsize=(8, 3.9), layout="constrained")
    offsets = [
        [(-22, 2), (22, 0), (0, -10), (24, 2)],
        [(-8, 10), (4, 10), (12, 10), (8, -14)],
    ]
    titles = (
        "before training: “milk” and “black” lie together",
        "after: “milk” is nearer to “drank”",
    )
    most = np.abs(after).max()
    for panel, found, places, title in zip(
        panels, (before, after), offsets, titles, strict=True
    ):
        draw_arrows(panel, names, found, places)
        panel.set(xlim=(-most, most), ylim=(-most / 2, 1.2 * most))
        panel.set_title(title, size=11)
        panel.axhline(0, color="0.85", zorder=0)
        panel.axvline(0, color="0.85", zorder=0)
    plt.show()


def draw_verbs(labels, on_making, on_object):
    """Draws what the decoder reads where it writes the verb: "making", the object."""
    _, axes = plt.subplots(figsize=(7.5, 4), layout="constrained")
    axes.hlines(labels, on_making, on_object, color="0.8", lw=3, zorder=0)
    parts = ("on “making”", "C1", on_making), ("on the object", "C0", on_object)
    for name, color, found in parts:
        axes.scatter(found, labels, s=70, color=color)
        axes.text(found[-1], 6.4, name, color=color, ha="center", size=12)
    wins = np.sum(np.array(on_object) > on_making)
    title = f"{wins} of {len(labels)} objects get more attention than “making”"
    axes.set(xlim=(0, 0.85), ylim=(-0.5, 7))
    axes.set(xlabel="attention where the verb is written, mean of the heads")
    axes.set_title(title, loc="right")
    axes.xaxis.set_major_formatter("{x:.0%}")
    plt.show()


def draw_looks(portrait, looks, patch=6):
    """Draws where each query, a patch of the picture, gives its attention."""
    _, panels = plt.subplots(2, 2, figsize=(6.4, 6.8), layout="constrained")
    for line, (name, (number, weights)) in zip(panels, looks.items(), strict=True):
        weights = weights.reshape(len(portrait) // patch, -1)
        row, column = divmod(number, weights.shape[1])
        for panel, alpha in zip(line, (1, 0.25), strict=True):
            panel.imshow(portrait, cmap="gray", vmin=0, vmax=1, alpha=alpha)
            panel.set(xticks=[], yticks=[])
        corner = column * patch - 0.5, row * patch - 0.5
        frame = plt.Rectangle(corner, patch, patch, fill=False, ec="C1", lw=3)
        line[0].add_patch(frame)
        line[0].set_title(f"the query: {name}")
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
    panels[0, 0].figure.suptitle("An eye finds both eyes, and hair finds hair")
    plt.show()
