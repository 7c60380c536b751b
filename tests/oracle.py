"""Tiny models, and their weights as the dicts that `numpy_transformer` reads."""

import numpy as np

from tfxformer import Transformer
from tfxformer.tokenizer import END_ID

TINY = {"num_layers": 2, "d_model": 16, "num_heads": 4, "dff": 32}
SOURCE_VOCAB, TARGET_VOCAB = 23, 19


def tiny_transformer(seed=0, **options):
    """A built `Transformer`, each weight drawn at random; dropout stays at 0.1."""
    vocabularies = {
        "input_vocab_size": SOURCE_VOCAB,
        "target_vocab_size": SOURCE_VOCAB
        if options.get("tie_embeddings")
        else TARGET_VOCAB,
    }
    model = Transformer(**{**TINY, **vocabularies, **options})
    model.build(((None, None), (None, None)))
    return randomise(model, seed)


def randomise(layer, seed=0):
    """Draws every weight of a built layer: biases, gamma and beta too.

    A bias that is 0, or a gamma that is 1, proves nothing.
    """
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        name = weight.path.rsplit("/", 1)[-1]
        mean = 1.0 if name == "gamma" else 0.0
        deviation = {
            "kernel": weight.shape[0] ** -0.5,
            "embeddings": weight.shape[-1] ** -0.5,
            "bias": 0.3,
            "gamma": 0.3,
            "beta": 0.3,
            "positions": 0.3,
        }[name]
        weight.assign(rng.normal(mean, deviation, weight.shape))
    return layer


def random_ids(rng, lengths, vocab_size, width=None):
    """Padded rows of token ids, each as long as asked and with an end token."""
    ids = np.zeros((len(lengths), width or max(lengths)), np.int32)
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = rng.integers(END_ID + 1, vocab_size, length)
        row[length - 1] = END_ID
    return ids


def attention_weights(mha):
    weights = {}
    for role in ("query", "key", "value", "output"):
        dense = getattr(mha, f"{role}_dense")
        weights[f"{role}_kernel"] = np.asarray(dense.kernel)
        weights[f"{role}_bias"] = np.asarray(dense.bias)
    return weights


def norm_weights(layernorm):
    return {x: np.asarray(getattr(layernorm, x)) for x in ("gamma", "beta")}


def feed_forward_weights(ffn):
    return {
        "w1": np.asarray(ffn.hidden_dense.kernel),
        "b1": np.asarray(ffn.hidden_dense.bias),
        "w2": np.asarray(ffn.output_dense.kernel),
        "b2": np.asarray(ffn.output_dense.bias),
    }


def encoder_layer_weights(layer):
    return {
        "attention": attention_weights(layer.self_attention.mha),
        "attention_norm": norm_weights(layer.self_attention.add_and_norm.layernorm),
        "feed_forward": feed_forward_weights(layer.ffn),
        "feed_forward_norm": norm_weights(layer.ffn.add_and_norm.layernorm),
    }


def decoder_layer_weights(layer):
    causal, cross = layer.causal_self_attention, layer.cross_attention
    return {
        "self_attention": attention_weights(causal.mha),
        "self_attention_norm": norm_weights(causal.add_and_norm.layernorm),
        "cross_attention": attention_weights(cross.mha),
        "cross_attention_norm": norm_weights(cross.add_and_norm.layernorm),
        "feed_forward": feed_forward_weights(layer.ffn),
        "feed_forward_norm": norm_weights(layer.ffn.add_and_norm.layernorm),
    }


def stack_weights(stack):
    """The weights of an `Encoder` or a `Decoder`."""
    if hasattr(stack, "enc_layers"):
        layers = [encoder_layer_weights(layer) for layer in stack.enc_layers]
    else:
        layers = [decoder_layer_weights(layer) for layer in stack.dec_layers]
    embedding = stack.pos_embedding.embedding.embeddings
    weights = {"embedding": np.asarray(embedding), "layers": layers}
    if not stack.pos_embedding.use_positions:
        weights["positions"] = np.zeros((99, 1))
    elif stack.pos_embedding.learned_positions:
        weights["positions"] = np.asarray(stack.pos_embedding.positions)
    if stack.final_norm is not None:
        weights["final_norm"] = norm_weights(stack.final_norm)
    return weights


def transformer_weights(model):
    weights = {
        "encoder": stack_weights(model.encoder),
        "decoder": stack_weights(model.decoder),
    }
    if model.final_layer is not None:
        weights["output"] = {
            "kernel": np.asarray(model.final_layer.kernel),
            "bias": np.asarray(model.final_layer.bias),
        }
    return weights
