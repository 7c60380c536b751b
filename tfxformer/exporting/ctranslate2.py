"""Export for CTranslate2, an inference engine in C++."""

import ctranslate2
import keras
import numpy as np

from tfxformer.errors import UserError
from tfxformer.layers import positional_encoding
from tfxformer.special_tokens import END_ID, START_ID, UNK_ID
from tfxformer.tokenizer import encode_source, encode_target

# CTranslate2 reads up to 1,024 tokens and writes up to 256 by default, and fails at a
# position without an encoding.
POSITIONS = 1025
# Both sum log-probabilities in single precision, in different orders.
TOLERANCE = 1e-3


def specification(tokenizer, transformer):
    """The model as CTranslate2's ``TransformerSpec``, validated."""
    if not transformer.use_positions:
        problem = "CTranslate2 always adds positions"
        raise UserError(f"use_positions=False: {problem}; export a SavedModel instead")
    encoder, decoder = transformer.encoder, transformer.decoder
    spec = ctranslate2.specs.TransformerSpec.from_config(
        (len(encoder.enc_layers), len(decoder.dec_layers)),
        transformer.num_heads,
        pre_norm=transformer.norm == "pre",
        activation=getattr(
            ctranslate2.specs.Activation, transformer.activation.upper()
        ),
    )
    _set_stack(spec.encoder, spec.encoder.embeddings[0], encoder)
    for to, layer in zip(spec.encoder.layer, encoder.enc_layers, strict=True):
        _set_attention(to.self_attention, layer.self_attention)
        _set_feed_forward(to.ffn, layer.ffn)
    _set_stack(spec.decoder, spec.decoder.embeddings, decoder)
    for to, layer in zip(spec.decoder.layer, decoder.dec_layers, strict=True):
        _set_attention(to.self_attention, layer.causal_self_attention)
        _set_attention(to.attention, layer.cross_attention)
        _set_feed_forward(to.ffn, layer.ffn)
    projection = spec.decoder.projection
    if transformer.final_layer is not None:
        _set_linear(projection, transformer.final_layer)
    else:
        projection.weight = _array(decoder.pos_embedding.embedding.embeddings)
        bias = transformer.output_bias
        size = transformer.target_vocab_size
        projection.bias = np.zeros(size, "float32") if bias is None else _array(bias)
    # As `decode`, never write padding, unknown and start tokens. This bias prevents it
    # with any options of CTranslate2, and fits into half precision.
    projection.bias[:END_ID] = -3e4

    source, tokens = (x.tokens(range(x.vocab_size)) for x in tokenizer.sides)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(tokens)
    spec.config.unk_token = tokens[UNK_ID]
    spec.config.bos_token = spec.config.decoder_start_token = tokens[START_ID]
    spec.config.eos_token = tokens[END_ID]
    spec.config.add_source_eos = True
    norm = encoder.enc_layers[0].ffn.add_and_norm.layernorm
    spec.config.layer_norm_epsilon = norm.epsilon  # all norms have the same
    # For callers, to cut longer texts; CTranslate2 ignores it.
    spec.config.add_attribute("max_length", transformer.max_length)
    spec.validate()
    spec.optimize()
    return spec


def _set_stack(spec, embeddings, stack):
    """Embeddings, positions and the last norm: an `Encoder`'s or a `Decoder`'s."""
    embedding = stack.pos_embedding
    # CTranslate2 scales them by the square root of d_model itself.
    embeddings.weight = _array(embedding.embedding.embeddings)
    positions = embedding.positions
    if not embedding.learned_positions:
        # CTranslate2's own are not interleaved, and start at position 1.
        length = max(embedding.max_length, POSITIONS)
        positions = positional_encoding(length, embedding.d_model)
    spec.position_encodings.encodings = _array(positions)
    if stack.final_norm.weights:
        _set_norm(spec.layer_norm, stack.final_norm)


def _set_attention(spec, attention):
    """Self-attention has one matrix for query, key and value, cross-attention two."""
    mha = attention.mha
    query, rest = [mha.query_dense], [mha.key_dense, mha.value_dense]
    inputs = [query + rest] if len(spec.linear) == 2 else [query, rest]
    for linear, parts in zip(spec.linear, [*inputs, [mha.output_dense]], strict=True):
        _set_linear(linear, *parts)
    _set_norm(spec.layer_norm, attention.add_and_norm.layernorm)


def _set_feed_forward(spec, ffn):
    _set_linear(spec.linear_0, ffn.hidden_dense)
    _set_linear(spec.linear_1, ffn.output_dense)
    _set_norm(spec.layer_norm, ffn.add_and_norm.layernorm)


def _set_linear(spec, *layers):
    # Keras's kernels are (in, out), CTranslate2's weights (out, in).
    spec.weight = np.concatenate([_array(layer.kernel).T for layer in layers])
    spec.bias = np.concatenate([_array(layer.bias) for layer in layers])


def _set_norm(spec, layernorm):
    spec.gamma, spec.beta = _array(layernorm.gamma), _array(layernorm.beta)


def _array(weight):
    return keras.ops.convert_to_numpy(weight).astype("float32")


def prove(path, translator, texts):
    """Loads an export with CTranslate2 and compares it with its `Translator`.

    Both score the translator's translations of some texts. The log-probability of each
    token must agree. Returns a line with the result.
    """
    engine = ctranslate2.Translator(str(path), compute_type="float32")
    tokenizer, longest = translator.tokenizer, translator.max_length - 1
    written = translator.answers("translate", {"text": texts})["translation"]
    source = encode_source(tokenizer, texts, longest=longest)
    target_in, target_out = encode_target(tokenizer.target, written, longest=longest)
    logits = translator.transformer((source, target_in), training=False)
    # The loss of each token (batch, target), among those that may be written.
    loss = keras.losses.sparse_categorical_crossentropy(
        np.maximum(target_out - END_ID, 0), logits[..., END_ID:], from_logits=True
    )
    rows = [
        [side.tokens(row[(row == UNK_ID) | (row > END_ID)]) for row in ids.numpy()]
        for side, ids in zip(tokenizer.sides, (source, target_out), strict=True)
    ]
    results = engine.score_batch(*rows, max_input_length=0)
    difference = max(
        np.abs(ours[: len(theirs.log_probs)] + theirs.log_probs).max()
        for ours, theirs in zip(loss.numpy(), results, strict=True)
    )
    if not difference <= TOLERANCE:
        raise UserError(
            "the export would not translate like the run: log-probabilities of the "
            f"same tokens differ by {difference:.2g}"
        )
    return (
        f"CTranslate2 {ctranslate2.__version__} scores {len(texts)} translations like "
        f"the run; log-probabilities differ by at most {difference:.1g}"
    )
