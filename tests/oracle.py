"""Tiny models, and their weights as the dicts that `numpy_transformer` reads."""

import numpy as np

from tfxformer import Transformer

TINY = {"num_layers": 2, "d_model": 16, "num_heads": 4, "dff": 32}
SOURCE_VOCAB, TARGET_VOCAB = 23, 19


def tiny_transformer(seed=0, **options):
    """A built `Transformer` with random weights; dropout stays at 0.1."""
    tied = options.get("tie_embeddings")
    target = SOURCE_VOCAB if tied else TARGET_VOCAB
    vocabularies = {"input_vocab_size": SOURCE_VOCAB, "target_vocab_size": target}
    model = Transformer(**{**TINY, **vocabularies, **options})
    model.build(((None, None), (None, None)))
    return randomise(model, seed)


def randomise(layer, seed=0):
    """Sets every weight of a built layer at random, biases, gamma and beta too.

    A test with a bias of 0 or a gamma of 1 would miss errors.
    """
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        name = weight.path.rsplit("/", 1)[-1]
        mean = 1.0 if name == "gamma" else 0.0
        sizes = {"kernel": weight.shape[0], "embeddings": weight.shape[-1]}
        deviation = sizes[name] ** -0.5 if name in sizes else 0.3
        weight.assign(rng.normal(mean, deviation, weight.shape))
    return layer


def read(layer, **names):
    """A layer's weights as arrays, under the names in `numpy_transformer`."""
    return {name: np.asarray(getattr(layer, x)) for name, x in names.items()}


def attention_weights(mha):
    weights = {}
    for role in ("query", "key", "value", "output"):
        names = {f"{role}_kernel": "kernel", f"{role}_bias": "bias"}
        weights |= read(getattr(mha, f"{role}_dense"), **names)
    return weights


def norm_weights(layernorm):
    return read(layernorm, gamma="gamma", beta="beta")


def layer_weights(layer):
    """The weights of an `EncoderLayer` or a `DecoderLayer`."""
    first, second = layer.ffn.hidden_dense, layer.ffn.output_dense
    weights = {
        "feed_forward": read(first, w1="kernel", b1="bias")
        | read(second, w2="kernel", b2="bias"),
        "feed_forward_norm": norm_weights(layer.ffn.add_and_norm.layernorm),
    }
    if hasattr(layer, "cross_attention"):
        parts = {"self_attention": layer.causal_self_attention}
        parts |= {"cross_attention": layer.cross_attention}
    else:
        parts = {"self_attention": layer.self_attention}
    for name, part in parts.items():
        weights[name] = attention_weights(part.mha)
        weights[f"{name}_norm"] = norm_weights(part.add_and_norm.layernorm)
    return weights


def stack_weights(stack):
    """The weights of an `Encoder` or a `Decoder`."""
    layers = getattr(stack, "enc_layers", None) or stack.dec_layers
    embedding = stack.pos_embedding
    weights = read(embedding.embedding, embedding="embeddings")
    weights["layers"] = [layer_weights(layer) for layer in layers]
    if not embedding.use_positions:
        weights["positions"] = np.zeros((99, 1))
    elif embedding.learned_positions:
        weights |= read(embedding, positions="positions")
    if stack.final_norm.weights:
        weights["final_norm"] = norm_weights(stack.final_norm)
    return weights


def cross_attention(model):
    """The weights of the last call, ``(batch, layers, heads, target, source)``."""
    return np.stack([x.last_attn_scores for x in model.decoder.dec_layers], axis=1)


def transformer_weights(model):
    weights = {x: stack_weights(getattr(model, x)) for x in ("encoder", "decoder")}
    if model.final_layer is not None:
        weights["output"] = read(model.final_layer, kernel="kernel", bias="bias")
    return weights
