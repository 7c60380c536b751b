"""The attention of a translation, in every layer and head."""

from typing import NamedTuple

import numpy as np

from tfxformer.special_tokens import START_ID


class AttentionMap(NamedTuple):
    """What each token reads, in each layer and head.

    Attributes:
        queries: the tokens that read, Q strings.
        keys: the tokens that are read, K strings.
        weights: a float32 array ``(layers, heads, Q, K)``; each row sums to 1.
    """

    queries: list
    keys: list
    weights: np.ndarray


def attention_maps(translator, text):
    """Translates a sentence and returns all the attention of doing so.

    The model reads both sides once more, as in training, for the weights that decoding
    does not keep.

    Args:
        translator: a `Translator`.
        text: a string, read as one sentence and cut off where the model reads no more.

    Returns:
        A dict of three `AttentionMap`. "encoder" and "decoder" are their
        self-attention, and "cross" is the decoder's attention to the source. The
        tokens of "decoder" are its inputs, which begin with the start token (section
        3.1: "shifted right"). The queries of "cross" are what the decoder writes at
        each of these places.

    Example:
        >>> from tfxformer import Translator
        >>> maps = attention_maps(Translator.load(), "o gato")
        >>> queries, keys, weights = maps["encoder"]
        >>> weights.shape[2:] == (len(queries), len(keys))
        True
    """
    answer = translator.explain(text)
    source, target = answer.source_tokens, answer.target_tokens
    source_tokenizer, target_tokenizer = translator.tokenizer.sides
    source_ids = source_tokenizer.processor.piece_to_id(source)
    # At each place the decoder reads what it wrote at the place before.
    input_ids = [START_ID, *target_tokenizer.processor.piece_to_id(target[:-1])]
    # The model reads and writes a batch; this one has a single sentence.
    model = translator.transformer
    model((np.array([source_ids]), np.array([input_ids])))
    inputs = target_tokenizer.tokens(input_ids)
    encoder_layers = [layer.self_attention for layer in model.encoder.enc_layers]
    decoder_layers = [layer.causal_self_attention for layer in model.decoder.dec_layers]
    return {
        "cross": AttentionMap(target, source, answer.attention),
        "encoder": AttentionMap(source, source, _last_weights(encoder_layers)),
        "decoder": AttentionMap(inputs, inputs, _last_weights(decoder_layers)),
    }


def _last_weights(attention_layers):
    """The weights of the last call: ``(layers, heads, queries, keys)``."""
    # Each layer has (1, heads, queries, keys): the first axis is the batch.
    return np.concatenate([layer.last_attn_scores for layer in attention_layers])


def readable(tokens):
    """Spells tokens as a reader knows words: a hyphen begins what continues a word.

    Args:
        tokens: strings, as the vocabulary has them; "\u2581" begins a word.

    Returns:
        As many strings.

    Example:
        >>> readable(["<s>", "\u2581cat", "s", ".", "</s>"])
        ['(start)', 'cat', '-s', '.', '(end)']
    """
    names = {"<s>": "(start)", "</s>": "(end)", "<pad>": "(padding)", "\u2581": "_"}
    words = []
    for token in tokens:
        word = names.get(token, token.removeprefix("\u2581"))
        continues = word == token and word[:1].isalnum()
        words.append(f"-{word}" if words and continues else word)
    return words
