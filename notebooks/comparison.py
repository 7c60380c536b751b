"""How `why_attention.ipynb` measures, judges and draws.

The notebook has the attention of the recurrent translators and a step of their decoder.
Here are the parts that teach less: short sentences joined to long ones, the rest of
these translators, the loops of training, timing and decoding, gradients by distance,
verdicts, and pictures.
"""

import math
import random
import re
import time
from collections import Counter
from itertools import combinations

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
    "attention blocked": 7,
    "without residuals": 5,
    "without normalization": 6,
}
CLAIMS = {
    1: "A step of the Transformer takes less time than one of the GRU with attention",
    2: "After the same steps, the Transformer has a lower loss than the GRU with "
    "attention",
    3: "The Transformer reaches the same loss in less time than the GRU with attention",
    4: "At every length, a step of the Transformer takes less time than one of the "
    "plain GRU",
    5: "With twice the steps, the Transformer translates more long sentences exactly "
    "than the GRU with attention",
    6: "On sentences longer than in training, the Transformer keeps more of its BLEU "
    "than the GRU with attention",
    7: "With attention, larger gradients reach distant words than in the plain GRU",
    8: "Training makes the heads of every layer differ more",
}
SURE = {  # what a verdict rests on
    1: "over 200 steps each, one machine",
    2: "one training each",
    3: "one training each, one machine",
    4: "6 steps for each length, one machine",
    5: "one training each, 50 sentences",
    6: "one training each, 50 sentences of each length",
    7: "one training each, 16 sentences",
    8: "one training, 50 sentences",
}
FACTOR = 1.25
LEVEL = 0.05  # of the sign test
WORDS = {True: "holds", False: "does not hold", None: "undecided"}
FOUND = {}  # by claim: its verdict, and two columns of the table at the end


def say(text):
    """Shows text with numbers from this run."""
    display(Markdown(text))


def verdict(ratio):
    """Whether a ratio is clearly above 1 (True), clearly below (False), or neither."""
    return True if ratio >= FACTOR else False if ratio <= 1 / FACTOR else None


def sign_test(first, second):
    """The chance p that this many tosses of a coin are at least as uneven."""
    count = first + second
    tail = sum(math.comb(count, k) for k in range(max(first, second), count + 1))
    return min(1.0, 2 * tail / 2**count)


def judge(number, measured, *pairs, p=None):
    """Shows a claim's verdict, and keeps it for the table at the end.

    By the claim, the first number of each pair is larger than the second. The pair
    with the smallest ratio decides, or ``p`` of a sign test.
    """
    ratio = min((first or 1e-30) / (second or 1e-30) for first, second in pairs)
    holds = verdict(ratio)
    factor = f"{ratio:.2f}" if ratio < 1000 else "above 1,000"
    reason = f"{'smallest ' if len(pairs) > 1 else ''}factor {factor}"
    if p is not None:
        holds = ratio > 1 if p < LEVEL else None
        factor = reason = f"p = {p:.2g}"
    FOUND[number] = holds, factor, measured
    claim = f"Claim {number}, “{CLAIMS[number]}”"
    say(f"{claim}: **{WORDS[holds]}**. Measured: {measured} ({reason}).")


def conclude():
    """Shows all verdicts in a table, and what they say about the Transformer."""
    limit = f"factor (holds from {FACTOR} on) or p"
    table(
        ["claim", "here", limit, "measured", "how sure"],
        [
            (CLAIMS[number], f"**{WORDS[holds]}**", factor, measured, SURE[number])
            for number, (holds, factor, measured) in FOUND.items()
        ],
    )
    holds = {number: row[0] for number, row in FOUND.items()}
    areas = {
        1: "the time of a step",
        3: "the time to the same loss",
        2: "what it learns in these 240 steps",
        5: "long sentences, after twice the steps",
        6: "sentences longer than in training",
    }
    lines = [
        "**Is a Transformer really better, and at what?** Here, after one training "
        "each, against the GRU with attention:",
        "",
    ]
    for value, name in {True: "Better", False: "Worse", None: "Undecided"}.items():
        found = [area for number, area in areas.items() if holds[number] is value]
        if found:
            lines.append(f"* **{name}**: {'; '.join(found)}.")
    worse = holds[2] is False
    told = {
        "Attention connects distant words, with recurrence or without.": holds[7],
        "Here, a step of the Transformer takes less time than one of the GRU with "
        "attention.": holds[1],
        "On short sentences, a step of the plain GRU takes about as long.": holds[4]
        is None,
        "In these 240 steps, the Transformer learns less than the GRU with "
        "attention.": worse,
        "Even so, it reaches the same loss first.": worse and holds[3],
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
    """All of a GRU translator but a step of its decoder, the method `step`.

    ``attention`` is a class such as the notebook's `BahdanauAttention`, or None.
    """

    def __init__(self, vocab_size, units, attention=None, **kwargs):
        super().__init__(**kwargs)
        small = keras.initializers.RandomNormal(stddev=D_MODEL**-0.5)
        self.embedding = keras.layers.Embedding(vocab_size, D_MODEL, small)
        gru = keras.layers.GRU(units, return_sequences=True, return_state=True)
        self.attention = attention(units) if attention else None
        self.encoder = keras.layers.Bidirectional(gru) if attention else gru
        self.bridge = keras.layers.Dense(units, activation="tanh")
        self.decoder = keras.layers.GRUCell(units)
        self.readout = keras.layers.Dense(D_MODEL, activation="tanh")

    def embed(self, ids):
        return self.embedding(ids) * D_MODEL**0.5

    def read(self, x, mask):
        """Source vectors to the decoder's first state and context, and its memory."""
        values, *last = self.encoder(x, mask=mask)
        state = self.bridge(ops.concatenate(last, axis=-1))
        if self.attention is None:
            return (state, state[:, :0]), None  # no context, no memory
        memory = self.attention.key(values), values, mask
        return (state, ops.zeros_like(values[:, 0])), memory

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


def time_lengths(steps, lengths, vocab_size, tokens, rounds=6):
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


def reading(model, tokenizer, text):
    """A translation, and how much of each source word each of its words reads.

    Returns the source's words and "end", the translation's words, and the weights of
    Bahdanau's attention ``(word written, word read)``.
    """

    def places(ids):
        """The number of the word of each token."""
        texts = tokenizer.decode([ids[: n + 1] for n in range(len(ids))])
        return np.array([len(text.split()) - 1 for text in texts])

    source = tokenizer.encode([text])[0]
    ids = tf.constant([[*source, END_ID]])
    (state, context), memory = model.read(model.embed(ids), padding_mask(ids))
    written, rows = [START_ID], []
    while written[-1] != END_ID and len(rows) < 2 * len(source) + 10:
        _, weights = model.attention(state, *memory)
        token = model.embed(tf.constant(written[-1:]))
        state, context = model.step(token, state, context, memory)
        written.append(int(ops.argmax(model.project(state, context), axis=-1)[0]))
        rows.append(weights[0].numpy())
    written, rows = written[1:-1], np.reshape(rows[:-1], (-1, len(source) + 1))
    words = text.split(), tokenizer.decode([written])[0].split()
    read = np.append(places(source), len(words[0]))
    read = np.array([rows[:, read == n].sum(axis=1) for n in range(len(words[0]) + 1)])
    from_words = places(written)
    weights = [read[:, from_words == n].mean(axis=1) for n in range(len(words[1]))]
    return [*words[0], "end"], words[1], np.reshape(weights, (-1, len(read)))


def all_heads(transformer, sources, targets_in):
    """The weights ``(batch, heads, query, key)``, by kind of attention and layer."""
    transformer((sources, targets_in))
    encoder, decoder = transformer.encoder.enc_layers, transformer.decoder.dec_layers
    kinds = {
        "encoder self-attention": [layer.self_attention for layer in encoder],
        "decoder self-attention": [layer.causal_self_attention for layer in decoder],
        "cross-attention": [layer.cross_attention for layer in decoder],
    }
    return {
        kind: [attention.last_attn_scores.numpy() for attention in layers]
        for kind, layers in kinds.items()
    }


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
        axes.annotate(f"×{other / y:.2f}", place, (0, -7), color="0.35", **where)


def draw_training(curves, panels, same, meet):
    """Draws losses in two panels ``{title: {name: x}}``: by steps and by seconds.

    ``meet`` are the two times when a loss of ``same`` is reached.
    """
    panels = {
        title: {name: [*zip(x[name], curves[name], strict=True)] for name in curves}
        for title, x in panels.items()
    }
    ylabel = "training loss (nats per token)"
    left, right = draw(panels, width=10, leaders=True, ylabel=ylabel, yscale="log")
    log_ticks(left, np.concatenate([*curves.values()]))
    right.plot(meet, [same, same], "ko-")
    where = {"textcoords": "offset points", "ha": "right", "va": "top", "size": 11}
    for x in meet:
        right.annotate(f"{x:.1f} s", (x, same), (-3, -5), **where)
    left.set_xlabel("steps")
    right.set_xlabel("seconds (steps times the median of a step)")
    plt.show()


def draw_reading(model, tokenizer, text):
    """Draws what a decoder with Bahdanau's attention reads for each word it writes."""
    read, written, weights = reading(model, tokenizer, text)
    if not written:  # after a few steps of training
        return say("The translation is empty.")
    most = weights.argmax(axis=1)
    names = [[word.strip(".,?!") for word in words] for words in (written, read)]
    pairs = [f"“{names[0][n]}” reads “{names[1][k]}”" for n, k in enumerate(most)]
    title = pairs[weights.max(axis=1).argmax()] + " most"
    if len(most) > 1 and np.diff(most).min() < 0:
        back = np.diff(most).argmin()  # the largest step back in the source
        title = f"The order turns: {pairs[back]}, then {pairs[back + 1]}"
    size = {"figsize": (8, 1.2 + 0.5 * len(written)), "layout": "constrained"}
    _, axes = plt.subplots(**size)
    axes.pcolormesh(weights, cmap="Blues", vmin=0, vmax=1, edgecolors="0.93")
    for n, row in enumerate(weights):
        for k in np.flatnonzero(row >= 0.15):  # smaller shares are pale
            where = {"ha": "center", "va": "center", "size": 12}
            colour = "w" if row[k] > 0.5 else "k"
            axes.text(k + 0.5, n + 0.5, f"{row[k]:.0%}", color=colour, **where)
    axes.set_title(title)
    axes.set_xticks(np.arange(len(read)) + 0.5, read, size=12)
    axes.set_yticks(np.arange(len(written)) + 0.5, written, size=12)
    axes.set(xlabel="share of its attention that a written word gives to a source word")
    axes.tick_params(length=0)
    axes.invert_yaxis()
    plt.show()


def draw_lengths(lines, lower, upper):
    """Draws times by length, with the ratios of two lines."""
    title = "Longer sentences slow the Transformer least"
    [axes] = draw({title: lines}, ylabel="milliseconds per step (median)", xscale="log")
    log_ticks(axes, [y for points in lines.values() for _, y in points], room=0.8)
    mark_ratios(axes, lines[lower], lines[upper])
    axes.set_xlabel("tokens of each sentence (1,024 in a batch)")
    lengths = [x for x, _ in lines[lower]]
    axes.set_xticks(lengths, lengths)
    plt.show()


def draw_quality(lines, ranges):
    """Draws BLEU by length; the last length is longer than any in training."""
    title = "BLEU falls further beyond the lengths of training"
    [axes] = draw({title: lines}, ylabel="BLEU (0 to 100)", ylim=(0, 100))
    last = len(ranges) - 1
    axes.set_xticks(range(len(ranges)), ranges)
    axes.set_xlabel("tokens of the source")
    axes.axvspan(last - 0.5, last, color="0.92", zorder=0)
    axes.text(last - 0.03, 97, "longer than\nin training", ha="right", va="top")
    plt.show()


def draw_gradients(lines, same):
    """Draws gradients by distance; words at the same place are ``same`` steps apart."""
    [axes] = draw(
        {"Attention carries the gradient to distant words": lines},
        ylabel="norm of the gradient",
        yscale="log",
    )
    axes.set_xlabel("steps between the words in the plain GRU")
    low, high = axes.get_ylim()
    axes.set_ylim(low, 30 * high)
    axes.axvline(same, color="0.5", ls=":", lw=1.5, zorder=0)
    where = {"ha": "center", "va": "top", "color": "0.35", "backgroundcolor": "w"}
    axes.text(same, 20 * high, "words at the same place", **where)
    plt.show()


def draw_change(rows, xlabel, title):
    """Draws how numbers change in training, ``{name: (before, after)}``."""
    size = {"figsize": (8, 1.1 + 0.4 * len(rows)), "layout": "constrained"}
    _, axes = plt.subplots(**size)
    axes.set_title(title)
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
    """Draws how the first source word reaches the last target word, in three models."""
    source = ["Ontem", "vi", "o", "teu", "cão"]
    target = ["I", "saw", "your", "dog", "yesterday"]
    count, last = len(source), len(source) + len(target) - 1
    at = [n + 0.6 * (n >= count) for n in range(last + 1)]
    _, axes = plt.subplots(figsize=(9, 4.1), layout="constrained")
    axes.set_title("Attention makes the path one step long")

    def arrow(start, end, y, bend=0.0, red=False, style="->", pale=False):
        colour = "C3" if red else "0.85" if pale else "0.72"
        arrow = {"arrowstyle": style, "color": colour}
        arrow |= {"lw": 2.2 if red else 1.3, "shrinkA": 8, "shrinkB": 8}
        arrow |= {"connectionstyle": f"arc3,rad={bend}", "zorder": 3 if red else 1}
        axes.annotate("", (at[end], y), (at[start], y), arrowprops=arrow)

    for name, y in {"plain GRU": 4, "GRU with attention": 2, "Transformer": 0}.items():
        chain, plain = name != "Transformer", name == "plain GRU"
        for n in range(last) if chain else ():
            style = "->" if plain or n >= count - 1 else "<->"
            arrow(n, n + 1, y, red=plain, style=style)
        if not chain:
            for side in (range(count), range(count, last + 1)):
                for n, k in combinations(side, 2):
                    arrow(n, k, y, -0.4, style="-", pale=True)
        if not plain:
            arrow(0, last, y, -0.15, red=True)
            arrow(4, last - 1, y, 0.3)
            arrow(1, count + 1, y, 0.3)
        axes.scatter(at, [y] * len(at), 90, "white", edgecolors="0.3", zorder=4)
        axes.text(-0.6, y, name, ha="right", va="center", size=12)
        steps = f"{last} steps" if plain else "1 step"
        axes.text(at[-1] + 0.4, y, steps, color="C3", va="center", size=12)
    for n, (x, word) in enumerate(zip(at, [*source, *target], strict=True)):
        axes.text(
            x, -1.5, word, ha="center", size=11, color="C3" if n in (0, last) else "k"
        )
    for first, end, text in (
        (0, count - 1, "the encoder reads"),
        (count, last, "the decoder writes"),
    ):
        axes.text((at[first] + at[end]) / 2, -2.05, text, ha="center", color="0.4")
    axes.set(xlim=(-2.6, at[-1] + 1.5), ylim=(-2.2, 4.5))
    axes.axis("off")
    plt.show()


def about(number):
    """A number with two digits that are not 0, such as 450,000."""
    return f"{float(f'{number:.2g}'):,.0f}"


def table(names, rows):
    """Shows rows of text and numbers as a table."""
    lines = [names, ["---"] * len(names), *rows]
    say("\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines))
