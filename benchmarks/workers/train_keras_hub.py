"""Trains KerasHub's layers, arranged as in its own translation example, with `fit`.

Its embedding learns positions and does not scale. Embeddings are tied, like ours. There
are no metrics, and no label smoothing, which Keras lacks for sparse labels. XLA is
off, as in the tutorial's way.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import keras
import keras_fit
import keras_hub
import worker

folder, batches, *flags = sys.argv[1:]
sizes = SimpleNamespace(**json.loads(Path(folder, "sizes.json").read_text()))
if "--bfloat16" in flags:
    keras.config.set_dtype_policy("mixed_bfloat16")


def build():
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    embedding = keras_hub.layers.TokenAndPositionEmbedding(
        vocabulary_size=sizes.vocab_size,
        sequence_length=sizes.max_length,
        embedding_dim=sizes.d_model,
        mask_zero=True,
    )
    layer = {
        "intermediate_dim": sizes.dff,
        "num_heads": sizes.num_heads,
        "dropout": sizes.dropout_rate,
    }
    context = embedding(source)
    for _ in range(sizes.num_layers):
        context = keras_hub.layers.TransformerEncoder(**layer)(context)
    x = embedding(target)
    for _ in range(sizes.num_layers):
        x = keras_hub.layers.TransformerDecoder(**layer)(x, context)
    logits = embedding.token_embedding(x, reverse=True)
    return keras.Model((source, target), logits)


keras.utils.set_random_seed(0)
model = build()
model.compile(
    loss=keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, ignore_class=worker.PAD_ID
    ),
    optimizer=keras.optimizers.Adam(1e-4, beta_1=0.9, beta_2=0.98, epsilon=1e-9),
    jit_compile=False,
)
keras_fit.serve(model, worker.read_batches(folder, batches), "keras-hub")
