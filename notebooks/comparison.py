"""How `why_attention.ipynb` measures, judges and draws.

The notebook has the attention of the recurrent translators, their encoder, a step of
their decoder and a training step. Here are the parts that teach less: short sentences
joined to long ones, the rest of these translators, the loops of training, timing and
decoding, gradients by distance, verdicts, and pictures.
"""

import random
import re
import time
from collections import Counter
from dataclasses import dataclass
from itertools import combinations

import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from IPython.display import Markdown, display
from keras import ops

from tfxformer import Translator
from tfxformer.layers import padding_mask
from tfxformer.tokenizer import END_ID, PAD_ID, START_ID
from tfxformer.training.loss import token_loss

D_MODEL = 64
WARM_UP = 5  # steps that are not timed: the first ones compile
# A line has the colour of its place, but these would have another model's.
COLOURS = {
    "GRU": 2,
    "GRU with attention": 1,
    "Transformer, more steps": 3,
    "attention blocked": 7,
    "without residuals": 5,
    "without normalization": 6,
}
CLAIMS = {  # as in the notebook's text
    1: "A training step of the Transformer takes less time than one of the GRU with "
    "attention",
    2: "In about the same time, the Transformer reaches a lower loss than the GRU with "
    "attention",
    3: "At each of four lengths, 8 to 256 tokens, a training step of the Transformer "
    "takes less time than one of the plain GRU",
    4: "In about the same time, the Transformer reaches a higher BLEU on sentences of "
    "31 to 40 tokens than the GRU with attention",
    5: "With attention, distant words get larger gradients than in the plain GRU",
    6: "Training makes the heads differ more in every attention layer of the "
    "Transformer",
}
LIMITS = {  # what a verdict rests on, besides three trainings
    1: "one machine",
    2: "the last 15 batches, on one machine",
    3: "three steps at each length, on one machine",
    4: "50 held-out sentences",
    5: "16 held-out sentences",
    6: "50 held-out sentences",
}
WORDS = {True: "holds", False: "does not hold", None: "is undecided"}
FOUND = {}  # by claim: its verdict, and how often it was true


def say(text):
    """Shows text with numbers from this run."""
    display(Markdown(text))


def verdict(true):
    """What three answers say: True where all are, False where none is, else None."""
    return True if all(true) else None if any(true) else False


def listed(values, form=".2f"):
    """Numbers as text, such as "0.81, 0.79 and 0.83"."""
    *first, last = (f"{value:{form}}" for value in values)
    return f"{', '.join(first)} and {last}"


def judge(number, true, times="trainings"):
    """Shows a claim's verdict, and keeps it for the table at the end.

    ``true`` says for each of three times, such as trainings, whether the claim is.
    """
    often = f"{sum(true)} of {len(true)} {times}"
    FOUND[number] = verdict(true), often
    found = f"**Claim {number} {WORDS[verdict(true)]}**, true in {often}"
    say(f"{found}. Measured on {LIMITS[number]}.")


def conclude(same_steps, longer):
    """Shows all verdicts in a table, and what they say about the Transformer.

    The arguments say for each training whether the Transformer is better in what no
    claim is about: its loss after the same number of steps, and the share of its BLEU
    that is left on sentences longer than in training.
    """
    table(
        ["claim", "here", "true in", "measured on"],
        [
            (CLAIMS[number], f"**{WORDS[holds]}**", often, LIMITS[number])
            for number, (holds, often) in FOUND.items()
        ],
    )
    areas = {
        "the time of a training step": FOUND[1][0],
        "the loss after about the same time": FOUND[2][0],
        "the loss after the same number of steps": verdict(same_steps),
        "BLEU on sentences of 31 to 40 tokens, after about the same time": FOUND[4][0],
        "the share of BLEU left on sentences longer than in training": verdict(longer),
    }
    lines = [
        "**Is a Transformer really better, and at what?** Here, against the GRU with "
        "attention:",
        "",
    ]
    for value, name in {True: "Better", False: "Worse", None: "Undecided"}.items():
        found = [area for area, holds in areas.items() if holds is value]
        if found:
            lines.append(f"* **{name}**: {'; '.join(found)}.")
    lines += ["", "These trainings are short; longer ones may change the order."]
    if FOUND[3][0] is False:
        lines[-1] += " On the shortest sentences, the plain GRU's steps are cheaper."
    if FOUND[5][0]:
        lines[-1] += " Attention lets gradients reach distant words, in the GRU, too."
    say("\n".join(lines))


def say_stripped(both, without, unnormed):
    """Says how trainings end with all parts, and without one; losses of each."""
    say(f"""
Each line is the mean of three trainings. Their final losses are {listed(both)} with
both, {listed(unnormed)} without normalization (higher in {sum(unnormed > both)} of
{len(both)} trainings), and {listed(without)} without residual connections. Other
settings may give other differences.
""")


def say_growth(grows, far):
    """Says how much longer a step takes with sentences of 256 tokens than of 8."""
    ours, attention, plain = grows.values()
    say(f"""
With sentences of 256 tokens instead of 8, a step takes {ours:.1f} times as long in the
Transformer, {attention:.1f} times in the GRU with attention and {plain:.1f} times in
the plain GRU. From 256 to 1,024 tokens, attention scores four times as many pairs of
tokens in a batch, and a step of the Transformer takes {far:.1f} times as long.
""")


def say_reach(distances, keeps, times):
    """Says how much of a gradient is left at the longer of two distances."""
    near, far = distances
    ours, attention, *_ = keeps.values()
    say(f"""
The norm at {far:.0f} steps is {ours:.2g} times the norm at {near:.0f} in the
Transformer, {attention:.2g} times in the GRU with attention, and less than a millionth
in the plain GRU. With its attention blocked, the gradient of the GRU with attention at
{far:.0f} steps is about {about(times)} times smaller.
""")


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
    """All of a GRU translator but its encoder, `read`, and a decoder's step, `step`.

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


class Trainer:
    """Trains a model on one batch after the other; the notebook has a step, `update`.

    The learning rate rises over the first tenth of the steps and falls to 0 like a
    cosine.
    """

    def __init__(self, model, rate, steps):
        self.model = model
        schedule = keras.optimizers.schedules.CosineDecay(
            0.0,
            decay_steps=steps - steps // 10,
            warmup_target=rate,
            warmup_steps=steps // 10,
        )
        optimizer = keras.optimizers.Adam(schedule, beta_2=0.98, global_clipnorm=1.0)
        optimizer.build(model.trainable_variables)
        self.optimizer = optimizer
        self.fresh = [value.numpy() for value in optimizer.variables]
        ids = tf.TensorSpec([None, None], tf.int32)  # one graph for all lengths

        @tf.function(input_signature=(ids, ids, ids), autograph=False)
        def step(source, target_in, target_out):
            return self.update(source, target_in, target_out)

        self._step = step

    def begin(self, weights):
        """Begins a training, from the model's first weights."""
        self.model.set_weights(weights)
        for variable, value in zip(self.optimizer.variables, self.fresh, strict=True):
            variable.assign(value)

    def step(self, batch):
        """Takes a batch; returns its loss and its milliseconds."""
        (source, target_in), target_out = batch
        ids = [tf.constant(x, tf.int32) for x in (source, target_in, target_out)]
        started = time.perf_counter()
        loss = float(self._step(*ids))
        return loss, 1000 * (time.perf_counter() - started)


@dataclass
class Training:
    """What one training of all models leaves, each by the model's name."""

    losses: dict  # arrays (steps,)
    times: dict  # milliseconds of the steps that all models take
    weights: dict  # after the last step


def train(trainers, weights, steps, batches):
    """Trains models from first weights; all are dictionaries, by the models' names.

    Each batch goes to all models in turn, so a slow minute of the machine slows all.
    The steps of one model alone are not timed.
    """
    for name, trainer in trainers.items():
        trainer.begin(weights[name])
    rows = {name: [] for name in trainers}
    for number in range(max(steps.values())):
        for name, trainer in trainers.items():
            if number < steps[name]:
                rows[name].append(trainer.step(batches[number % len(batches)]))
    timed = slice(WARM_UP, min(steps.values()))
    return Training(
        losses={name: np.array(row)[:, 0] for name, row in rows.items()},
        times={name: np.array(row)[timed, 1] for name, row in rows.items()},
        weights={name: each.model.get_weights() for name, each in trainers.items()},
    )


def time_lengths(trainers, lengths, vocab_size, tokens, rounds=3):
    """Milliseconds of steps on batches of equal size, by name and length of sentence.

    The rounds go through all names and lengths in turn; the first is not counted.
    """
    rng, found = np.random.default_rng(0), {}
    for turn in range(rounds + 1):
        for name, trainer in trainers.items():
            for length in lengths[name]:
                shape = tokens // length, length
                ids = rng.integers(END_ID + 1, vocab_size, shape, "int32")
                _, spent = trainer.step(((ids, ids), ids))
                if turn:
                    found.setdefault((name, length), []).append(spent)
    return {key: np.array(values) for key, values in found.items()}


def sublayers(model):
    """Yields the sublayers of a Transformer."""
    names = "self_attention", "causal_self_attention", "cross_attention", "ffn"
    for layer in [*model.encoder.enc_layers, *model.decoder.dec_layers]:
        yield from (getattr(layer, name) for name in names if hasattr(layer, name))


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
            found.setdefault(round((cut - s + t) / width), []).append(norm)
    return [
        (n * width, float(np.exp(np.mean(norms))))
        for n, norms in sorted(found.items())
        if len(norms) >= 8  # fewer pairs of positions would be chance
    ]


def make_translate(model, tokenizer):
    """Greedy decoding: a function from texts to texts."""
    if not isinstance(model, Recurrent):
        system = Translator(tokenizer, model)

        def translate_now(texts):
            system.fold_weights()  # training changes them
            return system(texts, split_sentences=False)

        return translate_now

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


def by_layer(model, weights, inputs, measure):
    """Measures the attention of each layer with the model's weights of each training.

    Args:
        model: a `Transformer`.
        weights: for each training, lists of weights, such as before and after.
        inputs: the ids of sources and of what the decoder reads.
        measure: a function of a layer's attention ``(batch, heads, query, key)`` and of
            the queries that are no padding ``(batch, query)``.

    Returns:
        An array ``(training, weights)`` for each layer, by its name.
    """
    sources, targets_in = map(tf.constant, inputs)
    encoder, decoder = model.encoder.enc_layers, model.decoder.dec_layers
    kinds = {
        "encoder self-attention": [layer.self_attention for layer in encoder],
        "decoder self-attention": [layer.causal_self_attention for layer in decoder],
        "cross-attention": [layer.cross_attention for layer in decoder],
    }
    found = {}
    for lists in weights:
        for each in lists:
            model.set_weights(each)
            model((sources, targets_in))
            for kind, attentions in kinds.items():
                queries = sources if kind.startswith("encoder") else targets_in
                for number, attention in enumerate(attentions, 1):
                    scores = attention.last_attn_scores.numpy()
                    value = measure(scores, queries.numpy() != PAD_ID)
                    found.setdefault(f"{kind}, layer {number}", []).append(value)
    return {name: np.reshape(row, (len(weights), -1)) for name, row in found.items()}


def difference(weights, real):
    """Mean over pairs of heads: 0 where they read the same tokens, 1 if never.

    ``weights`` are ``(batch, heads, query, key)``, and ``real`` ``(batch, query)`` is
    True for queries that are no padding.
    """
    halves = [
        np.abs(weights[:, a] - weights[:, b]).sum(axis=-1)[real] / 2
        for a, b in combinations(range(weights.shape[1]), 2)
    ]
    return np.mean(halves)


def tokens_read(weights, real):
    """Two to the power of the entropy in bits, as a mean over the heads."""
    entropy = -(weights * np.log2(np.maximum(weights, 1e-30))).sum(axis=-1)
    return np.mean([2 ** e[real].mean() for e in entropy.transpose(1, 0, 2)])


def smooth(rows, count):
    """A running mean along each row, as an array."""
    kernel = np.ones(count) / count
    return np.array([np.convolve(row, kernel, mode="valid") for row in rows])


def draw(title, lines, **settings):
    """Draws lines ``{name: points (x, y)}``, each with its name at its end.

    Returns the axes.
    """
    _, axes = plt.subplots(figsize=(8, 3.3), layout="constrained")
    ends = []
    for number, (name, points) in enumerate(lines.items()):
        number = COLOURS.get(name, number)
        x, y = np.transpose(points)
        style = ("-", "--", "-.", ":")[number % 4]
        axes.plot(x, y, style, color=f"C{number}", marker="", lw=2.2)
        ends.append((x[-1], y[-1], name, f"C{number}"))
    axes.set(title=title, **settings)
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)  # names may cross them
    name_ends(axes, ends)
    return axes


def log_axis(values, room=1.0):
    """A logarithmic axis with ticks 1, 2, 5, 10 and so on around all values.

    The lowest tick is at most ``room`` times the lowest value. Returns settings.
    """
    ticks = [k * 10.0**n for n in range(-6, 7) for k in (1, 2, 5)]
    low = max(tick for tick in ticks if tick <= room * min(values))
    high = min(tick for tick in ticks if tick >= max(values))
    ticks = [tick for tick in ticks if low <= tick <= high]
    labels = [f"{tick:,.6g}" for tick in ticks]
    shown = {"yscale": "log", "yticks": ticks, "yticklabels": labels}
    return shown | {"ylim": (low, high)}


def mark_ratios(axes, lower, upper, name):
    """Joins the points of two lines above each x, and writes their ratio below.

    The first ratio names the line that it is the ratio of.
    """
    for number, ((x, y), (_, other)) in enumerate(zip(lower, upper, strict=False)):
        axes.plot([x, x], [y, other], color="0.6", lw=1, zorder=1)
        side = "center" if number else "left"
        where = {"textcoords": "offset points", "ha": side, "va": "top"}
        place = x, min(y, other)
        text = f"×{other / y:.2f}"
        if not number:
            text = f"{name} {text}"
        axes.annotate(text, place, (0, -7), color="0.35", **where)


def draw_training(title, xlabel, curves, at):
    """Draws losses ``{name: (training, step)}`` at the places ``{name: (step,)}``.

    A line is the mean of the trainings, and its band goes from the lowest to the
    highest.
    """
    means = {name: rows.mean(axis=0) for name, rows in curves.items()}
    lines = {name: [*zip(at[name], mean, strict=True)] for name, mean in means.items()}
    axis = log_axis(np.concatenate([*means.values()]))
    ylabel = "training loss (nats per token)"
    axes = draw(title, lines, xlabel=xlabel, ylabel=ylabel, **axis)
    for number, (name, rows) in enumerate(curves.items()):
        colour = f"C{COLOURS.get(name, number)}"
        band = at[name], rows.min(axis=0), rows.max(axis=0)
        axes.fill_between(*band, color=colour, alpha=0.2, lw=0)
    plt.show()


def draw_reading(model, tokenizer, text):
    """Draws what a decoder with Bahdanau's attention reads for each word it writes."""
    read, written, weights = reading(model, tokenizer, text)
    if not written:  # after a few steps of training
        return say("The translation is empty.")
    order = weights.argsort(axis=1)[:, ::-1]
    row = np.sort(weights)[:, -2].argmax()  # the word that reads two most evenly
    words = [written[row], *(read[k] for k in order[row, :2])]
    title = "“{}” reads “{}” and “{}”".format(*(word.strip(".,?!") for word in words))
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
    axes.set_xlabel("source word, and its share (without a number: less than 15%)")
    axes.set_ylabel("word written")
    axes.tick_params(length=0)
    axes.invert_yaxis()
    plt.show()


def draw_lengths(lines, lower, upper):
    """Draws times by length, with the ratios of two lines."""
    title = "Longer sentences slow the Transformer least"
    axis = log_axis([y for points in lines.values() for _, y in points], room=0.8)
    ylabel = "milliseconds per step (median)"
    axes = draw(title, lines, ylabel=ylabel, xscale="log", **axis)
    mark_ratios(axes, lines[lower], lines[upper], upper)
    axes.set_xlabel("tokens of each sentence (1,024 in a batch)")
    lengths = [x for x, _ in lines[lower]]
    axes.set_xticks(lengths, lengths)
    plt.show()


def draw_quality(lines, ranges):
    """Draws BLEU by length; the last length is longer than any in training."""
    title = "Models with attention translate long sentences worse than short ones"
    axes = draw(title, lines, ylabel="BLEU (0 to 100)", ylim=(0, 100))
    last = len(ranges) - 1
    axes.set_xticks(range(len(ranges)), ranges)
    axes.set_xlabel("tokens of the source")
    axes.axvspan(last - 0.5, last, color="0.92", zorder=0)
    axes.text(last - 0.03, 97, "longer than\nin training", ha="right", va="top")
    plt.show()


def draw_gradients(lines, same):
    """Draws gradients by distance; words at the same place are ``same`` steps apart."""
    title = "Attention carries the gradient to distant words"
    axes = draw(title, lines, ylabel="norm of the gradient", yscale="log")
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
    axes.set_title("With attention, the path is one step long")

    def arrow(start, end, y, bend=0.0, red=False, style="->", pale=False):
        colour = "C3" if red else "0.72" if pale else "0.55"
        arrow = {"arrowstyle": style, "color": colour}
        arrow |= {"lw": 2.2 if red else 1.3, "shrinkA": 8, "shrinkB": 8}
        arrow |= {"connectionstyle": f"arc3,rad={bend}", "zorder": 3 if red else 1}
        axes.annotate("", (at[end], y), (at[start], y), arrowprops=arrow)

    for name, y in {"plain GRU": 4, "GRU with attention": 2, "Transformer": 0}.items():
        chain, plain = name != "Transformer", name == "plain GRU"
        for n in range(last) if chain else ():
            style = "->" if plain or n >= count - 1 else "<->"
            arrow(n, n + 1, y, red=plain, style=style)
            if plain:
                middle = (at[n] + at[n + 1]) / 2
                axes.text(middle, y + 0.18, n + 1, color="C3", ha="center", size=9)
        if not chain:
            for reader, read in ((2, (0, 1, 3, 4)), (last - 1, range(count, last - 1))):
                for n in read:  # the decoder reads no later words
                    bend = -0.32 if n < reader else 0.32
                    arrow(n, reader, y, bend, pale=True)
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
