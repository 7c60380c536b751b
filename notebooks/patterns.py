"""Sentences made from patterns: what some notebooks train on.

`positions.ipynb` has Portuguese sentences that only differ in the order of words, and
their token ids.
`other_tasks.ipynb` has a conversation, and English sentences with Spanish translations.
Its files, its counts and its pictures are at the end.
"""

import logging
import os
import sys
from itertools import product
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np


def listed(text):
    """The items of a text, separated by commas."""
    return [item.strip() for item in text.split(",")]


def entries(text):
    """``cat = el gato, dog = el perro`` as a dictionary."""
    return dict(item.split(" = ") for item in listed(text))


NAMES = listed(
    "Adam, Alice, Anna, Ben, Carla, Clara, David, Emma, Eva, Felix, George, Helen, "
    "Ivan, Jane, Joe, Kate, Laura, Leo, Lucy, Maria, Mark, Nina, Oscar, Paul, Peter, "
    "Rosa, Sara, Simon, Tom, Vera"
)
DAYS = listed("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday")
THINGS = entries(
    "ball = under the bed, bag = in the hall, bicycle = behind the house, "
    "book = on the table, camera = in the drawer, coat = on the chair, "
    "cup = in the kitchen, guitar = beside the window, hat = on the shelf, "
    "key = under the mat, lamp = near the door, letter = in the box, "
    "map = on the wall, phone = in the car, watch = in the bathroom"
)
LIKED = entries(
    "apples = yes, bread = yes, cheese = yes, fish = no, garlic = no, honey = yes, "
    "olives = no, onions = no, pasta = yes, rice = yes, soup = no, tomatoes = yes"
)
PLACES = listed("beach, cinema, concert, market, museum, park, river, station, theatre")
DEEDS = listed(
    "answer the phone, bake a cake, carry the box, clean the kitchen, close the door, "
    "cut the grass, feed the cat, fix the radio, lock the car, make some coffee, "
    "open the window, paint the wall, peel the apples, read the story, sell the boat, "
    "wash the cups, water the flowers, write the letter"
)
SAYINGS = entries(
    "all that glitters = is not gold, better late = than never, "
    "the early bird = catches the worm, out of sight = out of mind, "
    "practice = makes perfect, where there is smoke = there is fire, "
    "when the cat is away = the mice will play"
)
HELLO = ("Hi", "Hello", "Hey", "Hi there", "Good morning")
OFFER = ("I'm gonna", "We're gonna", "I'm going to", "We're going to", "Let me")
INTRO = ("You know: ", "They say: ", "My aunt says: ")


def reply_to_food(food, yes):
    return yes if LIKED[food] == "yes" else f"No, I do not like {food}."


def chat():
    """Two lists of pairs: those to train on, and those that the test may use."""
    fixed, free = {}, {}
    for hello, end in product(HELLO, ("", "?", " today", " today?")):
        fixed[f"{hello} how are you{end}"] = "I am fine"
        fixed[f"{hello}, how are you{end}"] = "I am fine"
    whom = ("him", "he"), ("her", "she"), ("them", "they")
    for make, (him, he), end in product(OFFER, whom, ("", "...", " soon", " today")):
        fixed[f"{make} make {him} an offer{end}"] = f"{he} can't refuse"
    for first, second in SAYINGS.items():
        fixed[first.capitalize()] = second
        fixed |= {intro + first: second for intro in INTRO}
    for thing, place in THINGS.items():
        for ask in ("Where is the", "Tell me, where is the", "So where is the"):
            fixed[f"{ask} {thing}?"] = f"The {thing} is {place}."
        fixed[f"I have lost my {thing}."] = f"Is your {thing} {place}?"
    for food in LIKED:
        fixed[f"Do you like {food}?"] = reply_to_food(food, f"Yes, I love {food}.")
    for name in NAMES:
        fixed[f"My name is {name}."] = f"Nice to meet you, {name}."
        fixed[f"Do you know {name}?"] = f"Yes, {name} is a friend of mine."
    for food, day in product(LIKED, DAYS):
        yes = f"Yes, {day} is fine."
        free[f"Shall we eat {food} on {day}?"] = reply_to_food(food, yes)
    for name, thing in product(NAMES, THINGS):
        reply = f"Tell {name} that it is {THINGS[thing]}."
        free[f"{name} is looking for the {thing}."] = reply
    for place, name in product(PLACES, NAMES):
        reply = f"Yes, I would like to see {name} at the {place}."
        free[f"Will you come to the {place} with {name}?"] = reply
    for deed, day in product(DEEDS, DAYS):
        free[f"Could you {deed} on {day}?"] = f"Yes, on {day} I will {deed}."
    for deed, name in product(DEEDS, NAMES):
        free[f"Ask {name} to {deed}."] = f"I will ask {name} to {deed}."
        free[f"Did {name} {deed}?"] = f"No, {name} did not {deed}."
    return [*fixed.items()], [*free.items()]


NOUNS = entries(  # Spanish, its plural, its gender
    "ball = bola bolas f, bird = pájaro pájaros m, boat = barco barcos m, "
    "book = libro libros m, bridge = puente puentes m, car = coche coches m, "
    "cat = gato gatos m, chair = silla sillas f, cup = taza tazas f, "
    "door = puerta puertas f, flower = flor flores f, hat = sombrero sombreros m, "
    "horse = caballo caballos m, house = casa casas f, key = llave llaves f, "
    "pencil = lápiz lápices m, shirt = camisa camisas f, table = mesa mesas f, "
    "train = tren trenes m, tree = árbol árboles m, window = ventana ventanas f"
)
ADJECTIVES = entries(
    "big = grande, black = negro, blue = azul, clean = limpio, dirty = sucio, "
    "expensive = caro, green = verde, grey = gris, new = nuevo, old = viejo, "
    "pretty = bonito, red = rojo, small = pequeño, white = blanco"
)
VERBS = entries(
    "I have = Tengo, I see = Veo, I want = Quiero, We have = Tenemos, We see = Vemos, "
    "We want = Queremos, She has = Ella tiene, They want = Ellos quieren"
)


def agree(adjective, feminine, plural):
    """The form of a Spanish adjective that agrees with its noun."""
    if feminine and adjective.endswith("o"):
        adjective = adjective[:-1] + "a"
    if not plural:
        return adjective
    return adjective + ("s" if adjective[-1] in "aeo" else "es")


def spanish(noun, adjective, draw):
    """A random sentence with a noun and an adjective, in both languages."""
    es, many, gender = NOUNS[noun].split()
    feminine = gender == "f"
    the, these, one = ("la", "las", "una") if feminine else ("el", "los", "un")
    single = agree(ADJECTIVES[adjective], feminine, plural=False)
    plural = agree(ADJECTIVES[adjective], feminine, plural=True)
    verb = draw.choice([*VERBS])
    an = "an" if adjective[0] in "aeiou" else "a"
    The, These = the.capitalize(), these.capitalize()
    patterns = {
        f"The {noun} is {adjective}": f"{The} {es} es {single}",
        f"The {noun} is not {adjective}.": f"{The} {es} no es {single}.",
        f"The {noun}s are {adjective}.": f"{These} {many} son {plural}.",
        f"{verb} {an} {adjective} {noun}.": f"{VERBS[verb]} {one} {es} {single}.",
        f"{verb} the {adjective} {noun}s.": f"{VERBS[verb]} {these} {many} {plural}.",
        f"Where is the {adjective} {noun}?": f"¿Dónde está {the} {es} {single}?",
        f"The {adjective} {noun} is here.": f"{The} {es} {single} está aquí.",
    }
    return draw.choice([*patterns.items()])


BEINGS = entries(
    "o gato = the cat, o cão = the dog, o pato = the duck, o lobo = the wolf, "
    "o menino = the boy, a vaca = the cow, a raposa = the fox, a galinha = the hen, "
    "a ovelha = the sheep, a menina = the girl"
)
ACTIONS = entries(
    "vê = sees, ouve = hears, segue = follows, chama = calls, ajuda = helps, "
    "encontra = finds"
)


def sentence(clauses):
    """Clauses (who, whom, verb) as a pair of sentences, Portuguese and English."""
    source = " e ".join(f"{who} {verb} {whom}" for who, whom, verb in clauses)
    target = " and ".join(
        f"{BEINGS[who]} {ACTIONS[verb]} {BEINGS[whom]}" for who, whom, verb in clauses
    )
    return source, target


def some_pairs(scenes, clauses, count, draw):
    """Pairs of sentences with this many clauses; who and whom may swap.

    A scene is ``(who, whom, verb)``, and ``draw`` a `random.Random`.
    """
    chosen = ([draw.choice(scenes) for _ in range(clauses)] for _ in range(count))
    return [
        sentence([(*draw.sample(scene[:2], 2), scene[2]) for scene in each])
        for each in chosen
    ]


START, END = 2, 3  # as in the package
TOKENS = ["padding", "unknown", "start", "end"]  # by id; then one token a word
TOKENS += sorted(
    {
        word
        for text in [*BEINGS, *BEINGS.values(), *ACTIONS, *ACTIONS.values(), "e", "and"]
        for word in text.split()
    }
)
ID_OF = {token: i for i, token in enumerate(TOKENS)}


def as_ids(texts):
    """Token ids (texts, longest + 1), with the end token last."""
    rows = [[ID_OF[word] for word in text.split()] + [END] for text in texts]
    ids = np.zeros((len(rows), max(map(len, rows))), "int32")
    for row, filled in zip(rows, ids, strict=True):
        filled[: len(row)] = row
    return ids


def begun(targets):
    """What the decoder reads: the start token, then the target without its end."""
    target_in = np.pad(targets[:, :-1], ((0, 0), (1, 0)), constant_values=START)
    target_in[target_in == END] = 0
    return target_in


def in_english_order(answers):
    """Which answers have the order of a clause such as "the cat sees the dog"."""
    nouns = {being.split()[1] for being in BEINGS.values()}
    kinds = {"the"}, nouns, {*ACTIONS.values()}, {"the"}, nouns
    return [
        len(words) == 5 and all(w in kind for w, kind in zip(words, kinds, strict=True))
        for words in map(str.split, answers)
    ]


def prepare_shell():
    """Lets the shell find the `tfxformer` of this Python, and hides advice on speed."""
    logging.getLogger("tensorflow").setLevel("ERROR")
    scripts = Path(sys.executable).parent
    os.environ["PATH"] = f"{scripts}{os.pathsep}{os.environ['PATH']}"


def write(name, pairs):
    """Writes pairs to a TSV file: two columns of text."""
    lines = "".join(f"{source}\t{target}\n" for source, target in pairs)
    Path(f"{name}.tsv").write_text(lines, encoding="utf-8")
    print(f"{name}.tsv: {len(pairs):,} pairs")


def right(translations, references):
    """The share of translations that equal their references to the letter."""
    return sum(map(str.__eq__, translations, references)) / len(references)


def edits(words, wanted):
    """The fewest insertions, deletions and replacements between two lists of words."""
    row = [*range(len(wanted) + 1)]
    for i, word in enumerate(words, 1):
        before, row[0] = row[0], i
        for j, want in enumerate(wanted, 1):
            replaced = before + (word != want)
            before, row[j] = row[j], min(replaced, row[j] + 1, row[j - 1] + 1)
    return row[-1]


def word_error_rate(translations, references):
    """The edits of all sentences per word of all references."""
    both = zip(translations, references, strict=True)
    wrong = sum(edits(one.split(), other.split()) for one, other in both)
    return wrong / sum(len(reference.split()) for reference in references)


def words(pairs):
    """The words of both sides of pairs: ``(side, word)``."""
    return {
        (side, word.strip("¿?."))
        for pair in pairs
        for side, text in enumerate(pair)
        for word in text.lower().split()
    }


def draw_shares(title, names, shares):
    """Draws shares of seen and unseen sentences, ``{(name, side): share}``."""
    _, axes = plt.subplots(figsize=(8, 2.4), layout="constrained")
    for place, ((_, side), share) in enumerate(shares.items()):
        height, colour = place // 2 + 0.4 * (place % 2) - 0.2, f"C{place % 2}"
        axes.barh(height, share, 0.36, color=colour)
        axes.text(share, height, f" {share:.0%} of {side}", va="center", color=colour)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(xlim=(0, 1.25), xticks=[], title=title)
    axes.set_xlabel("sentences that are correct to the letter")
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    plt.show()


def draw_scores(known, strange):
    """Draws the scores of a test as dots in a row, and each strange text's below."""
    below = sum(score < min(known) for score in strange.values())
    rows = {f"the {len(known)} of the test": known}
    rows |= {text: [score] for text, score in strange.items()}
    figure, axes = plt.subplots(figsize=(8, 2.4), layout="constrained")
    for row, scores in enumerate(rows.values()):
        axes.axhline(row, color="0.9", lw=1, zorder=0)
        colour, size, alpha = ("C1", 8, 1) if row else ("C0", 6, 0.3)
        axes.plot(scores, [row] * len(scores), "o", color=colour, ms=size, alpha=alpha)
    axes.set_yticks(range(len(rows)), rows, size=12)
    for row, label in enumerate(axes.get_yticklabels()):
        label.set_color("C1" if row else "C0")
    some = f"{below} of" if below < len(strange) else "All"
    words = "strange utterances score lower than any of the test"
    figure.suptitle(f"{some} {len(strange)} {words}")
    axes.set(xlabel="score of the reply", ylim=(len(rows) - 0.5, -0.5), xlim=(None, 0))
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    plt.show()


def draw_gap(title, runs):
    """Draws the correct tokens of runs in training and validation, ``{name: rows}``.

    A row of training has the mean since the row before it, so its point is between.
    """
    layout = {"figsize": (8, 3), "layout": "constrained", "sharey": True}
    figure, panels = plt.subplots(1, len(runs), **layout)
    figure.suptitle(title)
    sides = ("train", "training", "C0", 8), ("validation", "validation", "C1", -18)
    for panel, (name, rows) in zip(panels, runs.items(), strict=True):
        for split, side, color, higher in sides:
            chosen = [row for row in rows if row["split"] == split]
            x, y = ([row[key] for row in chosen] for key in ("step", "masked_accuracy"))
            if split == "train":
                x = np.mean([[0, *x[:-1]], x], axis=0)
            panel.plot(x, y, "o-", color=color, ms=4, lw=2.2)
            style = {"textcoords": "offset points", "ha": "center", "size": 12}
            label = f"{side}: {y[-1]:.0%}"
            panel.annotate(label, (x[-1], y[-1]), (0, higher), color=color, **style)
        panel.set(xlabel="training step", xlim=(0, 1.35 * x[-1]), ylim=(0, 1.2))
        panel.set_title(name, size=12)
        panel.set_yticks([0, 0.25, 0.5, 0.75, 1])
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("correct tokens")
    panels[0].yaxis.set_major_formatter("{x:.0%}")
    plt.show()
