"""What a translation read, in every layer and head, and a page that shows it."""

import html
import json
from pathlib import Path

import numpy as np
from keras import ops

from tfxformer.errors import write_file
from tfxformer.layers.masking import look_ahead_mask
from tfxformer.plots import by_layers
from tfxformer.tokenizer import START_ID

TEMPLATE = Path(__file__).with_name("attention_page.html")


def attention_maps(translator, text):
    """Translates a sentence and returns all the attention of doing so.

    The model reads both sides once more, as in training, for the weights that decoding
    does not keep.

    Args:
        translator: a `Translator`.
        text: a string, read as one sentence; what is longer than the model reads is
            cut off.

    Returns:
        A dict of "encoder" and "decoder", their self-attention, and "cross", the
        decoder's attention to the source. Each is a tuple: the Q tokens that read, the
        K tokens that are read, and float32 weights ``(layers, heads, Q, K)`` whose
        rows sum to 1. The source has its end token. The decoder's tokens are its inputs
        (section 3.1: "shifted right"): the start token, and what it has written. In
        "cross" they are what it writes at each of these places.

    Example:
        >>> from tfxformer import Tokenizer, Transformer, Translator
        >>> tokenizer = Tokenizer.train(["o gato", "the cat"] * 50, vocab_size=300)
        >>> sizes = dict(num_layers=1, d_model=8, num_heads=2, dff=8, max_length=8)
        >>> size = tokenizer.vocab_size
        >>> sizes |= dict(input_vocab_size=size, target_vocab_size=size)
        >>> translator = Translator(tokenizer, Transformer(**sizes))
        >>> queries, keys, weights = attention_maps(translator, "o gato")["encoder"]
        >>> weights.shape == (1, 2, len(queries), len(keys))
        True
    """
    answer, model = translator.explain(text), translator.transformer
    source, target = answer.source_tokens, answer.target_tokens
    tokenizer, written = translator.tokenizer.sides
    source_ids = [tokenizer.processor.piece_to_id(source)]
    input_ids = [[START_ID, *written.processor.piece_to_id(target[:-1])]]
    inputs = written.tokens(input_ids[0])
    encoder = _weights(model.encoder, "self_attention", source_ids)
    past, context = look_ahead_mask(len(inputs)), model.encoder(np.array(source_ids))
    decoder = _weights(model.decoder, "causal_self_attention", input_ids, past, context)
    return {
        "cross": (target, source, answer.attention),
        "encoder": (source, source, encoder),
        "decoder": (inputs, inputs, decoder),
    }


def token_probabilities(translator, maps):
    """How probable each token of the vocabulary was at each step of a translation.

    Args:
        translator: a `Translator`.
        maps: what `attention_maps` returned for a sentence.

    Returns:
        A float array ``(target, vocabulary)``; each row sums to 1. Row t belongs to
        token t of the translation, and depends only on the tokens before it.
    """
    sides = zip(translator.tokenizer.sides, ("encoder", "decoder"), strict=True)
    source, inputs = (
        np.array([side.processor.piece_to_id(maps[kind][0])]) for side, kind in sides
    )
    return np.asarray(ops.softmax(translator.transformer((source, inputs))[0]))


def best_head(weights):
    """The head whose attention looks most like an alignment of words.

    In this head each token of the translation reads one token of the source, and each
    token of the source is read by one. The end tokens do not count.

    Args:
        weights: an array ``(layers, heads, target, source)``.

    Returns:
        The numbers of its layer and of the head in it, from 0.

    Example:
        >>> one, mixed = np.eye(3), np.full((3, 3), 1 / 3)
        >>> best_head([[mixed, one]])
        (0, 1)
    """
    words = np.asarray(weights)[..., :-1, :-1]
    if not words.size:
        return 0, 0
    fit = words.max(axis=-1).mean(axis=-1) + words.max(axis=-2).mean(axis=-1)
    layer, head = np.unravel_index(fit.argmax(), fit.shape)
    return int(layer), int(head)


def readable(tokens):
    """Tokens as a reader knows words: a hyphen begins what continues a word.

    Example:
        >>> readable(["<s>", "\u2581cat", "s", ".", "</s>"])
        ['(start)', 'cat', '-s', '.', '(end)']
    """
    names = {"<s>": "(start)", "</s>": "(end)", "<pad>": "(padding)", "\u2581": "_"}
    shown = [names.get(token, token.removeprefix("\u2581")) for token in tokens]
    return [
        f"-{text}" if place and text == token and text[:1].isalnum() else text
        for place, (token, text) in enumerate(zip(tokens, shown, strict=True))
    ]


def _weights(stack, attention, ids, mask=None, *context):
    """What a stack's self-attention reads, ``(layers, heads, length, length)``."""
    x, weights = stack.pos_embedding(np.array(ids)), []  # x: (1, length, d_model)
    for layer in stack.stack:
        own = getattr(layer, attention)
        y = own.add_and_norm.before(x)
        weights.append(own.mha(y, y, mask, return_attention_scores=True)[1])
        x = layer(x, *context)
    return np.concatenate(weights)


class AttentionPage:
    """One HTML file: point at a token to see what it reads. It works offline.

    The mouse, a finger or the arrow keys choose a token; menus choose a layer and head.

    Args:
        queries, keys, weights, title: as `draw_attention` takes them.
        dark: True or False for a theme, None for the theme of the reader's system.

    Raises:
        ValueError: when the numbers of tokens and weights differ.

    Example:
        >>> page = AttentionPage(["▁cat"], ["▁o", "▁gato"], [[0.1, 0.9]])
        >>> page.html.startswith("<!doctype html>"), "http" in page.html
        (True, False)
    """

    def __init__(self, queries, keys, weights, title="Attention", dark=None):
        shares = by_layers(queries, keys, weights).astype("float64").round(4).tolist()
        data = {"title": title, "dark": dark, "queries": queries, "keys": keys}
        # In ASCII, and without the "<" that could end the script around it.
        text = json.dumps(data | {"weights": shares}).replace("<", "\\u003c")
        self.html = TEMPLATE.read_text("utf-8").replace("{{data}}", text)

    def _repr_html_(self):
        # The frame may run its script, and reach nothing around it.
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" title="attention" '
            'sandbox="allow-scripts" width="100%" height="600" '
            'style="border: 0"></iframe>'
        )

    def save(self, path):
        """Writes the page to a file; returns its path."""
        return write_file(path, self.html.encode())
