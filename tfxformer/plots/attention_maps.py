"""All the attention of a translation: every layer and head of encoder and decoder."""

from dataclasses import dataclass

import numpy as np

from tfxformer.layers.masking import key_mask, look_ahead_mask
from tfxformer.tokenizer import START_ID


@dataclass(frozen=True)
class AttentionMaps:
    """What each layer and head read; each row of weights sums to 1.

    Attributes:
        source_tokens: the source's S tokens, the end token included.
        target_inputs: the T tokens that the decoder read: the start token, then what
            it had written (section 3.1: "shifted right").
        target_tokens: the T tokens that it wrote at each of these places.
        encoder: the encoder's self-attention, float32 ``(layers, heads, S, S)``.
        decoder: the decoder's causal self-attention, ``(layers, heads, T, T)``.
        cross: the decoder's attention to the source, ``(layers, heads, T, S)``.
    """

    source_tokens: list
    target_inputs: list
    target_tokens: list
    encoder: np.ndarray
    decoder: np.ndarray
    cross: np.ndarray

    def of_kind(self, kind):
        """The tokens that read, the tokens that are read, and the weights.

        Args:
            kind: "encoder", "decoder" or "cross", where the tokens that read are those
                that were written.
        """
        return {
            "encoder": (self.source_tokens, self.source_tokens, self.encoder),
            "decoder": (self.target_inputs, self.target_inputs, self.decoder),
            "cross": (self.target_tokens, self.source_tokens, self.cross),
        }[kind]


def attention_maps(translator, text):
    """Translates a sentence and returns all the attention of doing so.

    The model reads both sides once more, as in training, for the weights that decoding
    does not keep.

    Args:
        translator: a `Translator`.
        text: a string, read as one sentence; what is longer than the model reads is
            cut off.

    Returns:
        An `AttentionMaps`.

    Example:
        >>> from tfxformer import Tokenizer, Transformer, Translator
        >>> tokenizer = Tokenizer.train(["o gato", "the cat"] * 50, vocab_size=300)
        >>> sizes = dict(num_layers=1, d_model=8, num_heads=2, dff=8, max_length=8)
        >>> size = tokenizer.vocab_size
        >>> sizes |= dict(input_vocab_size=size, target_vocab_size=size)
        >>> translator = Translator(tokenizer, Transformer(**sizes))
        >>> maps = attention_maps(translator, "o gato")
        >>> length = len(maps.source_tokens)
        >>> maps.encoder.shape == (1, 2, length, length)
        True
    """
    answer = translator.explain(text)
    ids = translator.tokenizer.processor.piece_to_id
    target_in = [START_ID, *ids(answer.target_tokens[:-1])]
    return AttentionMaps(
        answer.source_tokens,
        translator.tokenizer.tokens(target_in),
        answer.target_tokens,
        *_weights(translator.transformer, ids(answer.source_tokens), target_in),
    )


def _weights(transformer, source, target_in):
    """The weights of one sentence: encoder, decoder and cross, a layer at a time."""
    source, target_in = np.array([source]), np.array([target_in])
    everything = key_mask(np.ones(source.shape, bool))
    past = look_ahead_mask(target_in.shape[1])

    x = transformer.encoder.pos_embedding(source)  # (1, S, d_model)
    encoder = []
    for layer in transformer.encoder.enc_layers:
        encoder.append(_layer_weights(layer.self_attention, x, x, everything))
        x = layer(x)
    context = transformer.encoder(source)

    x = transformer.decoder.pos_embedding(target_in)  # (1, T, d_model)
    decoder, cross = [], []
    for layer in transformer.decoder.dec_layers:
        own, across = layer.causal_self_attention, layer.cross_attention
        decoder.append(_layer_weights(own, x, x, past))
        cross.append(_layer_weights(across, own(x), context, everything))
        x = layer(x, context)
    return [np.concatenate(kind) for kind in (encoder, decoder, cross)]


def _layer_weights(attention, x, keys, mask):
    """One layer's weights, ``(1, heads, queries, keys)``."""
    query = attention.add_and_norm.before(x)
    value = query if keys is x else keys
    _, weights = attention.mha(query, value, mask=mask, return_attention_scores=True)
    return np.asarray(weights)
