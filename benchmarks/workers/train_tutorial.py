"""Trains like the TensorFlow tutorial "Neural machine translation with a Transformer".

The model has Keras's stock layers. Everything is as in the tutorial: the loss and the
accuracy over all positions, masked afterwards; the optimizer, the learning rate and
`fit`; heads as wide as the model (``key_dim=d_model``); three embeddings that are not
tied; no label smoothing. XLA, which Keras 3 would turn on, is off, because it would
compile each batch shape.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import keras
import keras_fit
import numpy as np
import tensorflow as tf
import worker
from keras import layers

folder, batches = sys.argv[1:]
sizes = SimpleNamespace(**json.loads(Path(folder, "sizes.json").read_text()))
WARMUP_STEPS = 4000


def positional_encoding(length, depth):
    positions = np.arange(length)[:, np.newaxis]
    depths = np.arange(depth / 2)[np.newaxis, :] / (depth / 2)
    angles = positions / 10000**depths
    encoding = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
    return tf.cast(encoding, tf.float32)


class PositionalEmbedding(layers.Layer):
    def __init__(self):
        super().__init__()
        self.supports_masking = True
        self.embedding = layers.Embedding(
            sizes.vocab_size, sizes.d_model, mask_zero=True
        )
        self.encoding = positional_encoding(2048, sizes.d_model)

    def compute_mask(self, ids, mask=None):
        return self.embedding.compute_mask(ids)

    def call(self, ids):
        x = self.embedding(ids) * sizes.d_model**0.5
        return x + self.encoding[tf.newaxis, : tf.shape(ids)[1], :]


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        rise = step * WARMUP_STEPS**-1.5
        return sizes.d_model**-0.5 * tf.minimum(tf.math.rsqrt(step), rise)


def masked_loss(label, pred):
    each = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
    loss = each(label, pred)
    mask = tf.cast(label != 0, loss.dtype)
    return tf.reduce_sum(loss * mask) / tf.reduce_sum(mask)


def masked_accuracy(label, pred):
    best = tf.argmax(pred, axis=2)
    label = tf.cast(label, best.dtype)
    mask = label != 0
    match = tf.cast((label == best) & mask, tf.float32)
    return tf.reduce_sum(match) / tf.reduce_sum(tf.cast(mask, tf.float32))


def attend(x, context, causal=False):
    attention = layers.MultiHeadAttention(
        sizes.num_heads, key_dim=sizes.d_model, dropout=sizes.dropout_rate
    )
    y = attention(query=x, value=context, key=context, use_causal_mask=causal)
    return layers.LayerNormalization()(layers.Add()([x, y]))


def feed_forward(x):
    y = layers.Dense(sizes.dff, activation="relu")(x)
    y = layers.Dropout(sizes.dropout_rate)(layers.Dense(sizes.d_model)(y))
    return layers.LayerNormalization()(layers.Add()([x, y]))


def build():
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    context = layers.Dropout(sizes.dropout_rate)(PositionalEmbedding()(source))
    for _ in range(sizes.num_layers):
        context = feed_forward(attend(context, context))
    x = layers.Dropout(sizes.dropout_rate)(PositionalEmbedding()(target))
    for _ in range(sizes.num_layers):
        x = feed_forward(attend(attend(x, x, causal=True), context))
    return keras.Model((source, target), layers.Dense(sizes.vocab_size)(x))


keras.utils.set_random_seed(0)
model = build()
model.compile(
    loss=masked_loss,
    optimizer=keras.optimizers.Adam(Schedule(), beta_1=0.9, beta_2=0.98, epsilon=1e-9),
    metrics=[masked_accuracy],
    jit_compile=False,
)
keras_fit.serve(model, worker.read_batches(folder, batches))
