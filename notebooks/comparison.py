"""How `why_attention.ipynb` measures, judges and draws.

The recurrent translators are in the notebook. Here are the parts that teach less: short
sentences joined to long ones, the loops of training, timing and decoding, gradients by
distance, verdicts, and pictures of lines.
"""

import random
import re
import time
from collections import Counter

import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from IPython.display import Markdown, display
from keras import ops

from tfxformer import masked_loss
from tfxformer.layers import padding_mask
from tfxformer.tokenizer import END_ID, START_ID
from tfxformer.training.loss import token_loss

D_MODEL = 64
WARM_UP = 5  # steps that are not timed: the first ones compile
# A line has the colour of its place, but these would have another model's.
COLOURS = {
    "GRU": 2,
    "GRU, attention cut": 7,
    "without residuals": 5,
    "without normalization": 6,
}
CLAIMS = {
    1: "A training step of the Transformer takes less time than one of the GRU with "
    "attention",
    2: "After the same steps, the Transformer has a lower loss than the GRU with "
    "attention",
    3: "The Transformer reaches the same loss in less time than the GRU with attention",
    4: "At every length, a step of the Transformer takes less time than one of the "
    "plain GRU",
    5: "After twice the steps, the Transformer translates more long sentences exactly "
    "than the GRU with attention",
    6: "On sentences longer than in training, the Transformer keeps more of its BLEU "
    "than the GRU with attention",
    7: "With attention, larger gradients reach distant words than in the plain GRU",
    8: "Training makes the heads of every layer differ more",
}
FACTOR = 1.25
WORDS = {True: "holds", False: "does not hold", None: "undecided"}
FOUND = {}  # by claim: its verdict, and two columns of the table at the end


def say(text):
    """Shows text with numbers from this run."""
    display(Markdown(text))


def verdict(ratio):
    """Whether a ratio is clearly above 1 (True), clearly below (False), or neither."""
    return True if ratio >= FACTOR else False if ratio <= 1 / FACTOR else None


def judge(number, measured, *pairs):
    """Shows a claim's verdict, and keeps it for the table at the end.

    By the claim, the first number of each pair is larger than the second. The pair
    with the smallest ratio decides.
    """
    ratio = min((first or 1e-30) / (second or 1e-30) for first, second in pairs)
    factor = f"{ratio:.2f}" if ratio < 1000 else "above 1,000"
    FOUND[number] = verdict(ratio), factor, measured
    smallest = "smallest " if len(pairs) > 1 else ""
    say(
        f"**Claim {number}: {WORDS[verdict(ratio)]}.** {CLAIMS[number]}: {measured} "
        f"({smallest}factor {factor})."
    )


def conclude():
    """Shows all verdicts in a table, and what they say about the Transformer."""
    table(
        ["claim", "here", f"factor (holds from {FACTOR} on)", "measured"],
        [
            (CLAIMS[number], f"**{WORDS[holds]}**", factor, measured)
            for number, (holds, factor, measured) in FOUND.items()
        ],
    )
    holds = {number: row[0] for number, row in FOUND.items()}
    areas = {
        1: "the time of a step",
        3: "the time to the same loss",
        2: "what it learns from each step",
        5: "long sentences, after twice the steps",
        6: "sentences longer than in training",
    }
    lines = [
        "**Is a Transformer really better, and at what?** Here, against the GRU with "
        "attention:",
        "",
    ]
    for value, name in {True: "Better", False: "Worse", None: "Undecided"}.items():
        found = [area for number, area in areas.items() if holds[number] is value]
        if found:
            lines.append(f"* **{name}**: {'; '.join(found)}.")
    told = {
        "Attention connects distant words, with recurrence or without.": holds[7],
        "Without recurrence, a step takes less time.": holds[1],
        "So the Transformer reaches the same loss first.": holds[1] and holds[3],
        "But it learns less from each step, so it needs more of them.": holds[2]
        is False,
    }
    told = " ".join(sentence for sentence, true in told.items() if true)
    lines += ["", f"**To remember:** {told}"]
    say("\n".join(lines))


def simple(parts, count):
    """Pairs whose words are all among the most frequent ones of their language.

    ``parts`` is ``{split: pairs}``; the first split is the one to count in.
    """

    def words(text):
        return re.findall(r"\w+|[^\w\s]", text.lower())

    known = []
    for side in (0, 1):
        found = [words(pair[side]) for pair in next(iter(parts.values()))]
        counts = Counter(word for row in found for word in row)
        known.append({word for word, _ in counts.most_common(count)})
    return {
        split: [p for p in pairs if all({*words(p[i])} <= known[i] for i in (0, 1))]
        for split, pairs in parts.items()
    }


def joined(pairs, most, count, seed):
    """Pairs of one to ``most`` sentences; each number is equally frequent."""
    rng = random.Random(seed)
    drawn = (rng.sample(pairs, rng.randint(1, most)) for _ in range(count))
    texts = (tuple(map(" ".join, zip(*pairs, strict=True))) for pairs in drawn)
    return list(dict.fromkeys(texts))


class Recurrent(keras.Model):
    """What the notebook's `GRUTranslator` does besides reading and one step of writing.

    A subclass has `readout`, a layer; `read`, the encoder; and `step`, one step of the
    decoder.
    """

    def __init__(self, vocab_size, **kwargs):
        super().__init__(**kwargs)
        small = keras.initializers.RandomNormal(stddev=D_MODEL**-0.5)
        self.embedding = keras.layers.Embedding(vocab_size, D_MODEL, small)

    def embed(self, ids):
        return self.embedding(ids) * D_MODEL**0.5

    def project(self, state, context):
        """Logits: products with the embedding of each token, as in the Transformer."""
        x = self.readout(ops.concatenate([state, context], axis=-1))
        return ops.matmul(x, ops.transpose(self.embedding.embeddings))

    def write(self, x, start, memory):
        """The target's vectors ``(batch, target, d_model)`` to logits."""
        x = ops.transpose(x, (1, 0, 2))
        # This loop cannot run in parallel: each step needs the state before it.
        states, contexts = tf.scan(
            lambda carried, token: self.step(token, *carried, memory), x, start
        )
        states, contexts = (ops.transpose(y, (1, 0, 2)) for y in (states, contexts))
        return self.project(states, contexts)

    def call(self, inputs):
        source, target_in = inputs
        start, memory = self.read(self.embed(source), padding_mask(source))
        return self.write(self.embed(target_in), start, memory)


def make_step(model, rate, steps):
    """A training step: takes a batch, returns its loss and its milliseconds.

    The rate rises over the first tenth of the steps and falls to 0 like a cosine.
    """
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0,
        decay_steps=steps - steps // 10,
        warmup_target=rate,
        warmup_steps=steps // 10,
    )
    optimizer = keras.optimizers.Adam(schedule, beta_2=0.98, global_clipnorm=1.0)
    optimizer.build(model.trainable_variables)
    ids = tf.TensorSpec([None, None], tf.int32)  # one graph for all lengths

    @tf.function(input_signature=(ids, ids, ids), autograph=False)
    def step(source, target_in, target_out):
        with tf.GradientTape() as tape:
            loss = masked_loss(target_out, model((source, target_in)))
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    def timed(batch):
        (source, target_in), target_out = batch
        ids = [tf.constant(x, tf.int32) for x in (source, target_in, target_out)]
        started = time.perf_counter()
        loss = float(step(*ids))
        return loss, 1000 * (time.perf_counter() - started)

    return timed


def train(steps, batches):
    """Runs each batch through each step in turn, so all share the machine's minutes.

    Returns the losses and the milliseconds of each name, as arrays ``(batches,)``.
    """
    rows = {name: [] for name in steps}
    for batch in batches:
        for name, step in steps.items():
            rows[name].append(step(batch))
    losses = {name: np.array(row)[:, 0] for name, row in rows.items()}
    times = {name: np.array(row)[WARM_UP:, 1] for name, row in rows.items()}
    return losses, times


def time_lengths(steps, lengths, vocab_size, tokens, rounds=7):
    """Milliseconds of steps on batches of equal size, by name and length of sentence.

    The rounds go through all names and lengths in turn; the first is not counted.
    """
    rng, found = np.random.default_rng(0), {}
    for count in range(rounds + 1):
        for name, step in steps.items():
            for length in lengths[name]:
                shape = tokens // length, length
                ids = rng.integers(END_ID + 1, vocab_size, shape, "int32")
                _, spent = step(((ids, ids), ids))
                if count:
                    found.setdefault((name, length), []).append(spent)
    return {key: np.array(values) for key, values in found.items()}


def strip(model, part):
    """Takes the residual connections or the normalization of sublayers away."""
    names = "self_attention", "causal_self_attention", "cross_attention", "ffn"
    for layer in [*model.encoder.enc_layers, *model.decoder.dec_layers]:
        for name in names:
            sublayer = getattr(layer, name, None)
            if sublayer is None:
                continue
            wrapper = sublayer.add_and_norm
            if part == "residuals":
                wrapper.call = lambda x, y, mask=None: y
            else:
                wrapper.before = lambda x: x
                wrapper.layernorm.trainable = False


def make_reach(model, cut=False):
    """Norms ``(batch, source)`` of the gradient of the loss at one target position.

    With ``cut``, no gradient passes through Bahdanau's attention.
    """
    ids = tf.TensorSpec([None, None], tf.int32)
    recurrent = isinstance(model, Recurrent)

    @tf.function(
        input_signature=(ids, ids, ids, tf.TensorSpec([], tf.int32)), autograph=False
    )
    def reach(source, target_in, target_out, t):
        mask = padding_mask(source)
        x = model.embed(source) if recurrent else model.encoder.pos_embedding(source)
        with tf.GradientTape() as tape:
            tape.watch(x)
            if recurrent:
                start, memory = model.read(x, mask)
                if cut:
                    memory = [tf.stop_gradient(part) for part in memory]
                logits = model.write(model.embed(target_in), start, memory)
            else:
                y = x
                for layer in model.encoder.enc_layers:
                    y = layer(y, mask=mask)
                y = model.decoder(target_in, model.encoder.final_norm(y), mask)
                logits = model.project(y)
            # Sentences are independent, so the sum keeps each one's own gradient.
            loss = tf.reduce_sum(token_loss(target_out, logits)[:, t])
        return tf.norm(tape.gradient(loss, x), axis=-1)

    return reach


def by_distance(reach, pairs, cut, width=8):
    """Points of a curve: a distance, and the mean norm at about that distance.

    Between the states at source position s of S and at target position t, a recurrent
    network takes S - s + t steps; this is the distance for all models.
    """
    ids = [(s[:cut], [START_ID, *t[: cut - 1]], t[:cut]) for s, t in pairs]
    batch = [tf.constant(x, tf.int32) for x in np.array(ids).transpose(1, 0, 2)]
    found = {}
    for t in range(0, cut, 4):
        norms = np.log(reach(*batch, tf.constant(t)).numpy() + 1e-30)  # (batch, source)
        for s, norm in enumerate(norms.mean(axis=0)):
            found.setdefault((cut - s + t) // width, []).append(norm)
    return [
        ((n + 0.5) * width, float(np.exp(np.mean(norms))))
        for n, norms in sorted(found.items())
        if len(norms) >= 8  # fewer pairs of positions would be chance
    ]


def make_translate(model, tokenizer):
    """Greedy decoding for a `Recurrent`: texts to texts."""

    @tf.function(autograph=False, reduce_retracing=True)
    def begin(ids):
        return model.read(model.embed(ids), padding_mask(ids))

    @tf.function(autograph=False, reduce_retracing=True)
    def following(token, state, context, memory):
        state, context = model.step(model.embed(token), state, context, memory)
        return ops.argmax(model.project(state, context), axis=-1), state, context

    def translate(texts):
        rows = [[*ids, END_ID] for ids in tokenizer.encode(texts)]
        rows = tf.ragged.constant(rows, dtype=tf.int32)
        (state, context), memory = begin(rows.to_tensor())
        limits = 2 * rows.row_lengths().numpy() + 10
        token = np.full(len(texts), START_ID)
        going, written = np.full(len(texts), True), [[] for _ in texts]
        for place in range(limits.max()):
            token, state, context = following(
                tf.constant(token, tf.int32), state, context, memory
            )
            token = token.numpy()
            going &= (token != END_ID) & (place < limits)
            for i in np.flatnonzero(going):
                written[i].append(int(token[i]))
            if not going.any():
                break
        return tokenizer.decode(written)

    return translate


def all_heads(transformer, sources, targets_in):
    """The weights of encoder self-attention and of cross-attention, by layer."""
    mask = padding_mask(sources)
    x, encoder = transformer.encoder.pos_embedding(sources), []
    for encoder_layer in transformer.encoder.enc_layers:
        attention = encoder_layer.self_attention
        y = attention.add_and_norm.before(x)
        weights = attention.mha(y, y, value_mask=mask, return_attention_scores=True)[1]
        encoder.append(weights.numpy())
        x = encoder_layer(x, mask=mask)
    transformer((sources, targets_in))
    cross = [d.last_attn_scores.numpy() for d in transformer.decoder.dec_layers]
    return {"encoder self-attention": encoder, "cross-attention": cross}


def smooth(values, count):
    """A running mean."""
    return np.convolve(values, np.ones(count) / count, mode="valid")


def draw(panels, *, width=8.0, leaders=False, **settings):
    """Draws panels side by side, ``{title: {name: points (x, y)}}``; returns axes.

    Each line has its name at its end. With ``leaders`` a dot marks each end, the names
    are beside the last panel, and dots lead from its lines to their names.
    """
    layout = {"figsize": (width, 3.3), "layout": "constrained"}
    _, axes = plt.subplots(1, len(panels), squeeze=False, sharey=True, **layout)
    for panel, (title, lines) in zip(axes[0], panels.items(), strict=True):
        ends = []
        for number, (name, points) in enumerate(lines.items()):
            number = COLOURS.get(name, number)
            x, y = np.transpose(points)
            style = ("-", "--", "-.", ":")[number % 4]
            panel.plot(x, y, style, color=f"C{number}", marker="", lw=2.2)
            ends.append((x[-1], y[-1], name, f"C{number}"))
        panel.set(title=title, **settings)
        panel.minorticks_off()
        panel.label_outer()
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)  # names may cross them
        if leaders:
            right = panel.get_xlim()[1]
            panel.set_xlim(right=right)
            for x, y, _, colour in ends:
                panel.plot(x, y, "o", color=colour, ms=6)
        if panel is axes[0, -1] and leaders:
            for x, y, *_ in ends:
                panel.plot([x, right], [y, y], ":", color="0.6", lw=1, zorder=0)
            ends = [(right, *rest) for _, *rest in ends]
        if not leaders or panel is axes[0, -1]:
            name_ends(panel, ends)
    return axes[0]


def log_ticks(axes, values, room=1.0):
    """A logarithmic axis with ticks 1, 2, 5, 10 and so on around all values.

    The lowest tick is at most ``room`` times the lowest value.
    """
    ticks = [k * 10.0**n for n in range(-6, 7) for k in (1, 2, 5)]
    low = max(tick for tick in ticks if tick <= room * min(values))
    high = min(tick for tick in ticks if tick >= max(values))
    ticks = [tick for tick in ticks if low <= tick <= high]
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.set_yticks(ticks, [f"{tick:,.6g}" for tick in ticks])
    axes.minorticks_off()


def mark_ratios(axes, lower, upper):
    """Joins the points of two lines above each x, and writes their ratio below."""
    for (x, y), (_, other) in zip(lower, upper, strict=False):
        axes.plot([x, x], [y, other], color="0.6", lw=1, zorder=1)
        where = {"textcoords": "offset points", "ha": "center", "va": "top"}
        place = x, min(y, other)
        axes.annotate(f"×{other / y:.1f}", place, (0, -7), color="0.35", **where)


def draw_change(rows, xlabel):
    """Draws how numbers change in training, ``{name: (before, after)}``."""
    _, axes = plt.subplots(figsize=(8, 2.6), layout="constrained")
    for height, (before, after) in enumerate(rows.values()):
        axes.plot([before, after], [height, height], color="0.7", lw=2, zorder=1)
        for value, colour, other in ((before, "0.5", after), (after, "C0", before)):
            axes.plot(value, height, "o", color=colour, ms=9)
            left = value < other
            where = {"ha": "right" if left else "left", "va": "center", "size": 11}
            label = f"{value:.2f}"
            if not height:
                label = f"before: {label}" if colour == "0.5" else f"after: {label}"
            axes.annotate(
                label,
                (value, height),
                (-9 if left else 9, 0),
                textcoords="offset points",
                color=colour,
                **where,
            )
    axes.set_yticks(range(len(rows)), rows)
    axes.set(xlim=(0, 1), ylim=(len(rows) - 0.5, -0.5), xlabel=xlabel)
    axes.grid(alpha=0.3, axis="x")
    axes.spines[["top", "right"]].set_visible(False)
    plt.show()


def name_ends(panel, ends):
    """Writes names to the right of points ``(x, y, name, colour)``."""
    panel.figure.draw_without_rendering()  # so that heights are known
    places = panel.transData.transform([(x, y) for x, y, *_ in ends])
    lowest = {}  # no name covers another that ends above the same x
    for number in np.argsort(places[:, 1]):
        x, y, name, colour = ends[number]
        height = max(places[number, 1], lowest.get(x, -np.inf))
        lowest[x] = height + 0.17 * panel.figure.dpi
        up = (height - places[number, 1]) * 72 / panel.figure.dpi  # in points
        where = {"textcoords": "offset points", "va": "center", "size": 11}
        where["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
        panel.annotate(name, (x, y), (6, up), color=colour, **where)


def draw_paths():
    """Draws how word 1 of a source reaches the last target word, in three models."""
    source = ["O", "meu", "irmão", "mora", "aqui"]
    target = ["My", "brother", "lives", "here"]
    at = [*range(len(source)), *(n + len(source) + 0.5 for n in range(len(target)))]
    _, axes = plt.subplots(figsize=(8, 4.1), layout="constrained")
    grey, red, last = "0.72", "C3", len(at) - 1

    def arrow(start, end, y, colour, bend, both=False):
        axes.annotate(
            "",
            (at[end], y),
            (at[start], y),
            arrowprops={
                "arrowstyle": "<->" if both else "->",
                "color": colour,
                "lw": 2 if colour == red else 1,
                "shrinkA": 8,
                "shrinkB": 8,
                "connectionstyle": f"arc3,rad={bend}",
                "zorder": 3 if colour == red else 1,
            },
        )

    rows = {"plain GRU": 4, "GRU with attention": 2, "Transformer": 0}
    for name, y in rows.items():
        chain = name != "Transformer"
        for n in range(last) if chain else ():
            plain = name == "plain GRU"
            both = not plain and n < len(source) - 1
            arrow(n, n + 1, y, red if plain else grey, 0, both)
        if not chain:
            for n in range(len(source)):
                for m in range(n + 1, len(source)):
                    arrow(n, m, y, grey, 0.3, both=True)
        if name != "plain GRU":
            for n in range(len(source) if chain else last):
                arrow(n, last, y, grey if n else red, -0.17)
        axes.scatter(at, [y] * len(at), 90, "white", edgecolors="0.3", zorder=4)
        axes.text(-0.6, y, name, ha="right", va="center", size=12)
        steps = f"{last} steps" if name == "plain GRU" else "1 step"
        axes.text(at[-1] + 0.4, y, steps, color=red, va="center", size=12)
    for x, word in zip(at, [*source, *target], strict=True):
        axes.text(x, -1.3, word, ha="center", size=11)
    for words, begin in ((source, 0), (target, len(source))):
        middle = (at[begin] + at[begin + len(words) - 1]) / 2
        text = "the decoder writes" if begin else "the encoder reads"
        axes.text(middle, -1.85, text, ha="center", size=11, color="0.4")
    axes.set(xlim=(-2.6, at[-1] + 1.4), ylim=(-2.0, 4.6))
    axes.axis("off")
    plt.show()


def table(names, rows):
    """Shows rows of text and numbers as a table."""
    lines = [names, ["---"] * len(names), *rows]
    say("\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines))
