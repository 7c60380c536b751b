"""KerasHub's layers with their caches, and its samplers, on our weights."""

import worker

args = worker.arguments("--xla")

from tfxformer.quiet import start_tensorflow  # noqa: E402

start_tensorflow()

import keras_hub  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
import weights  # noqa: E402
from keras import ops  # noqa: E402

arrays, sizes = weights.read(args)
heads, head_size = sizes.num_heads, sizes.d_model // sizes.num_heads


def build(layer_class, name, *shapes):
    """One of KerasHub's layers, with the weights of ours of that name."""
    layer = layer_class(
        intermediate_dim=sizes.dff,
        num_heads=heads,
        activation="relu",
        layer_norm_epsilon=1e-6,
        normalize_first=False,
    )
    layer.build(*shapes)
    attentions = [("self_attention", "_self_attention_layer")]
    if "decoder" in name:
        attentions.append(("cross_attention", "_cross_attention_layer"))
    for ours, theirs in attentions:
        attention = getattr(layer, theirs)
        for part in ("query", "key", "value", "output"):
            dense = getattr(attention, f"_{part}_dense")
            for values in (dense.kernel, dense.bias):
                array = arrays[f"{name}/{ours}/mha/{part}/{values.name}"]
                values.assign(array.reshape(values.shape))
        copy_norm(getattr(layer, f"{theirs}_norm"), f"{name}/{ours}")
    for ours, theirs in (("hidden", "intermediate"), ("output", "output")):
        dense = getattr(layer, f"_feedforward_{theirs}_dense")
        dense.kernel.assign(arrays[f"{name}/ffn/{ours}/kernel"])
        dense.bias.assign(arrays[f"{name}/ffn/{ours}/bias"])
    copy_norm(layer._feedforward_layer_norm, f"{name}/ffn")
    return layer


def copy_norm(norm, name):
    norm.gamma.assign(arrays[f"{name}/add_norm/norm/gamma"])
    norm.beta.assign(arrays[f"{name}/add_norm/norm/beta"])


shape = (None, None, sizes.d_model)
encoder = [
    build(keras_hub.layers.TransformerEncoder, f"encoder/layer_{i}", shape)
    for i in range(sizes.num_layers)
]
decoder = [
    build(keras_hub.layers.TransformerDecoder, f"decoder/layer_{i}", shape, shape)
    for i in range(sizes.num_layers)
]
embedding = keras_hub.layers.ReversibleEmbedding(sizes.vocab_size, sizes.d_model)
embedding.build((None, None))
embedding.embeddings.assign(arrays["encoder/embedding/pieces/embeddings"])
positions = keras_hub.layers.SinePositionEncoding()
SAMPLERS = {
    1: keras_hub.samplers.GreedySampler(),
    4: keras_hub.samplers.BeamSampler(num_beams=4),
}


def embed(ids, start=0):
    x = embedding(ids) * sizes.d_model**0.5
    return x + positions(x, start_index=start)


def decoder_step(ids, start, cache, cross_start=None):
    """One position: ``(batch, 1)`` ids to logits ``(batch, vocab)``, and the cache."""
    own, cross, context, mask = cache
    x, own, cross = embed(ids, start), list(own), list(cross)
    for i, layer in enumerate(decoder):
        x, own[i], cross[i] = layer(
            x,
            context,
            encoder_padding_mask=mask,
            self_attention_cache=own[i],
            self_attention_cache_update_index=start,
            cross_attention_cache=cross[i],
            cross_attention_cache_update_index=cross_start,
        )
    return embedding(x[:, 0], reverse=True), (tuple(own), tuple(cross), context, mask)


def search(source, room, beam, forced):
    batch, length = ops.shape(source)
    context, mask = embed(source), ops.not_equal(source, worker.PAD_ID)
    for layer in encoder:
        context = layer(context, padding_mask=mask)
    own = ops.zeros((batch, 2, room + 1, heads, head_size))
    cross = ops.zeros((batch, 2, length, heads, head_size))
    cache = ((own,) * sizes.num_layers, (cross,) * sizes.num_layers, context, mask)
    start = ops.full((batch, 1), worker.START_ID, "int32")
    # Fills the caches of cross-attention.
    _, cache = decoder_step(start, 0, cache, cross_start=0)

    never = np.zeros(sizes.vocab_size, "float32")
    never[[*worker.NEVER] + [worker.END_ID] * forced] = -1e9

    def following(prompt, cache, index):
        newest = ops.slice(prompt, (0, index - 1), (ops.shape(prompt)[0], 1))
        logits, cache = decoder_step(newest, index - 1, cache)
        return logits + never, None, cache

    prompt = ops.pad(start, [[0, 0], [0, room]])
    ids = SAMPLERS[beam](
        next=following,
        prompt=prompt,
        cache=cache,
        index=1,
        mask=ops.not_equal(prompt, worker.PAD_ID),
        stop_token_ids=None if forced else (worker.END_ID,),
    )
    return ids[:, 1:]


functions = {}


def decode(batch, beam, min_tokens, max_tokens):
    room, forced = max(max_tokens), bool(min_tokens)
    source = worker.padded(batch, worker.width_for_xla(batch) if args.xla else None)
    source = tf.constant(source, "int32")
    if not args.xla:
        # One graph serves all shapes.
        if (beam, forced) not in functions:
            functions[beam, forced] = tf.function(
                lambda source, room: search(source, room, beam, forced),
                input_signature=[
                    tf.TensorSpec((None, None), tf.int32),
                    tf.TensorSpec((), tf.int32),
                ],
            )
        return functions[beam, forced](source, room).numpy()
    # XLA needs the room known: the rule's for the padded width.
    if not forced:
        room = min(2 * source.shape[1] + 10, sizes.max_length)
    if (beam, room, forced) not in functions:
        functions[beam, room, forced] = tf.function(
            lambda source: search(source, room, beam, forced), jit_compile=True
        )
    ids = functions[beam, room, forced](source).numpy()
    return ids[:, : max(max_tokens)]


worker.serve(decode, "keras-hub", "tensorflow", "keras")
