"""What `why_attention.ipynb` compares a Transformer with, and how it measures.

Two recurrent translators, training steps that are timed, gradients by distance, and
pictures of lines.
"""

import time

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


class BahdanauAttention(keras.layers.Layer):
    """Additive attention (Bahdanau et al. 2015, section 3.1 and appendix A.1.2)."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.query = keras.layers.Dense(units, use_bias=False)
        self.key = keras.layers.Dense(units)
        self.energy = keras.layers.Dense(1, use_bias=False)

    def call(self, state, keys, values, mask):
        """One query a sentence: the context ``(batch, depth)`` and the weights.

        ``keys`` are ``self.key(values)``, made once for all queries.
        """
        hidden = ops.tanh(self.query(state)[:, None] + keys)  # (batch, source, units)
        scores = self.energy(hidden)[..., 0]  # (batch, source)
        # The mask is added before the softmax, so the other weights sum to 1.
        weights = ops.softmax(scores + ops.where(mask, 0.0, -1e9))
        return ops.matmul(weights[:, None], values)[:, 0], weights


class GRUTranslator(keras.Model):
    """A GRU encoder-decoder, with Bahdanau's attention or without."""

    def __init__(self, vocab_size, units, attention, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        small = keras.initializers.RandomNormal(stddev=D_MODEL**-0.5)
        self.embedding = keras.layers.Embedding(vocab_size, D_MODEL, small)
        reader = keras.layers.GRU(units, return_sequences=True, return_state=True)
        self.attention = BahdanauAttention(units) if attention else None
        self.reader = keras.layers.Bidirectional(reader) if attention else reader
        self.bridge = keras.layers.Dense(units, activation="tanh")
        self.writer = keras.layers.GRUCell(units)
        self.readout = keras.layers.Dense(D_MODEL, activation="tanh")

    def embed(self, ids):
        return self.embedding(ids) * D_MODEL**0.5

    def read(self, x, mask):
        """Source vectors to the decoder's first state and context, and its memory."""
        values, *last = self.reader(x, mask=mask)
        state = self.bridge(ops.concatenate(last, axis=-1))
        if self.attention is None:
            return (state, state[:, :0]), None
        memory = self.attention.key(values), values, mask
        return (state, ops.zeros_like(values[:, 0])), memory

    def step(self, x, state, context, memory):
        """One step of the decoder: a token's vector to the next state and context."""
        if memory is not None:
            context, _ = self.attention(state, *memory)
            x = ops.concatenate([x, context], axis=-1)
        state, _ = self.writer(x, [state])
        return state, context

    def project(self, state, context):
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


def make_reach(model):
    """Norms ``(batch, source)`` of the gradient of the loss at one target position."""
    ids = tf.TensorSpec([None, None], tf.int32)
    recurrent = isinstance(model, GRUTranslator)

    @tf.function(
        input_signature=(ids, ids, ids, tf.TensorSpec([], tf.int32)), autograph=False
    )
    def reach(source, target_in, target_out, t):
        mask = padding_mask(source)
        x = model.embed(source) if recurrent else model.encoder.pos_embedding(source)
        with tf.GradientTape() as tape:
            tape.watch(x)
            if recurrent:
                logits = model.write(model.embed(target_in), *model.read(x, mask))
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

    From target position t to source position s of S, a recurrent network takes
    S - s + t + 1 steps; this is the distance for all models.
    """
    ids = [(s[:cut], [START_ID, *t[: cut - 1]], t[:cut]) for s, t in pairs]
    batch = [tf.constant(x, tf.int32) for x in np.array(ids).transpose(1, 0, 2)]
    found = {}
    for t in range(0, cut, 4):
        norms = np.log(reach(*batch, tf.constant(t)).numpy() + 1e-30)  # (batch, source)
        for s, norm in enumerate(norms.mean(axis=0)):
            found.setdefault((cut - s + t + 1) // width, []).append(norm)
    return [
        ((n + 0.5) * width, float(np.exp(np.mean(norms))))
        for n, norms in sorted(found.items())
        if len(norms) >= 8  # fewer pairs of positions would be chance
    ]


def make_translate(model, tokenizer):
    """Greedy decoding for a `GRUTranslator`: texts to texts."""

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


def draw(panels, **settings):
    """Draws panels side by side, ``{title: {name: points (x, y)}}``; returns axes.

    Lines that end together have their names at their ends; others have a legend.
    """
    layout = {"figsize": (5.6 * len(panels), 3.4), "squeeze": False}
    _, axes = plt.subplots(1, len(panels), layout="constrained", **layout)
    for panel, (title, lines) in zip(axes[0], panels.items(), strict=True):
        ends = []
        for number, (name, points) in enumerate(lines.items()):
            x, y = np.transpose(points)
            style = ("-", "--", "-.", ":")[number % 4]
            panel.plot(x, y, style, color=f"C{number}", marker="", lw=2, label=name)
            ends.append((x[-1], y[-1], name, f"C{number}"))
        panel.set(title=title, **settings)
        panel.grid(alpha=0.3)
        if len({x for x, _, _, _ in ends}) == 1:
            name_ends(panel, ends)
        else:
            panel.legend(fontsize=11)
    return axes[0]


def name_ends(panel, ends):
    """Writes names beside the panel, at the heights at which their lines end."""
    panel.figure.draw_without_rendering()  # so that heights are known
    heights = panel.transData.transform([(x, y) for x, y, _, _ in ends])[:, 1]
    lowest = -np.inf  # no name covers another
    for place in np.argsort(heights):
        _, y, name, colour = ends[place]
        height = max(heights[place], lowest)
        lowest = height + 0.17 * panel.figure.dpi
        up = (height - heights[place]) * 72 / panel.figure.dpi  # in points
        where = {"xycoords": panel.get_yaxis_transform(), "va": "center", "size": 11}
        where["textcoords"] = "offset points"
        panel.annotate(name, (1, y), (5, up), color=colour, **where)


def table(names, rows):
    """Shows rows of text and numbers as a table."""
    lines = [names, ["---"] * len(names), *rows]
    text = "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
    display(Markdown(text))


def quartiles(values):
    """A lower quartile, a median and an upper quartile."""
    return np.percentile(values, [25, 50, 75])
