"""What a translation read, in every layer and head, and a page that shows it."""

import io
import json
from pathlib import Path

import numpy as np
from keras import ops

from tfxformer.plots import drawing, expand_weights, png
from tfxformer.special_tokens import START_ID

TEMPLATE = Path(__file__).with_name("attention_page.html")


def attention_maps(translator, text):
    """Translates a sentence and returns all the attention of doing so.

    The model reads both sides once more, as in training, for the weights and
    probabilities that decoding does not keep.

    Args:
        translator: a `Translator`.
        text: a string, read as one sentence and cut off where the model reads no more.

    Returns:
        A dict of "encoder" and "decoder", their self-attention, and "cross", the
        decoder's attention to the source. Each is a tuple: the Q tokens that read, the
        K tokens that are read, and float32 weights ``(layers, heads, Q, K)`` whose
        rows sum to 1. The decoder's tokens are its inputs, which begin with the start
        token (section 3.1: "shifted right"). In "cross" they are what it writes at
        each of these places, and "probabilities" are those of each token of the
        vocabulary there, ``(target, vocabulary)``.

    Example:
        >>> from tfxformer import Translator
        >>> maps = attention_maps(Translator.load(), "o gato")
        >>> queries, keys, weights = maps["encoder"]
        >>> weights.shape == (6, 4, len(queries), len(keys))
        True
    """
    answer, model = translator.explain(text), translator.transformer
    source, target = answer.source_tokens, answer.target_tokens
    reader, writer = translator.tokenizer.sides
    source_ids = np.array([reader.processor.piece_to_id(source)])
    input_ids = np.array([[START_ID, *writer.processor.piece_to_id(target[:-1])]])
    inputs = writer.tokens(input_ids[0])
    logits = model((source_ids, input_ids))[0]  # (target, vocabulary)
    encoder = [x.self_attention.last_attn_scores for x in model.encoder.enc_layers]
    decoder = [
        x.causal_self_attention.last_attn_scores for x in model.decoder.dec_layers
    ]
    return {
        "cross": (target, source, answer.attention),
        "encoder": (source, source, np.concatenate(encoder)),
        "decoder": (inputs, inputs, np.concatenate(decoder)),
        "probabilities": np.asarray(ops.softmax(logits)),
    }


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


def decoding_gif(translator, text):
    """Draws an animation of decoding: each token reads the source, then is written.

    Lines show the new token's attention to the source, in the head that aligns words
    best, and numbers show the probability of each token.

    Args:
        translator: a `Translator`.
        text: a string, read as one sentence.

    Returns:
        The bytes of a GIF file.

    Example:
        >>> from tfxformer import Translator
        >>> decoding_gif(Translator.load(), "o gato")[:6]
        b'GIF89a'
    """
    from matplotlib.artist import setp
    from PIL import Image

    maps = attention_maps(translator, text)
    target, source, weights = maps["cross"]
    layer, head = best_head(weights)
    written = translator.tokenizer.target.processor.piece_to_id(target)
    shares = maps["probabilities"][range(len(target)), written]
    weights, source, target = weights[layer, head], readable(source), readable(target)
    note = f"lines: attention of layer {layer + 1}, head {head + 1}; below: probability"
    with drawing(7, 2.8) as figure:
        figure.set(dpi=150, layout_engine="none")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.axis("off")
        axes.text(0, 0.06, note, size=9, ha="center", alpha=0.7)
        style = {"size": 13, "color": "black", "ha": "center", "va": "center_baseline"}
        chip = {"boxstyle": "round,pad=0.35", "edgecolor": "#aab4be"}
        rows, wide = [], 7 * figure.dpi  # in pixels, as all widths here
        for y, tokens, colour in ((0.8, source, "#ffecdd"), (0.36, target, "#e3edf6")):
            style["bbox"] = chip | {"facecolor": colour}
            row = [axes.text(0, y, token, **style) for token in tokens]
            widths = np.array([token.get_window_extent().width + 45 for token in row])
            middles = widths.cumsum() - (widths + widths.sum()) / 2
            for token, x in zip(row, middles, strict=True):
                token.set_x(x)
            rows.append(row)
            wide = max(wide, widths.sum() + 60)
        figure.set_figwidth(wide / figure.dpi)
        axes.set(xlim=(-wide / 2, wide / 2), ylim=(0, 1))
        setp(rows[1], visible=False)
        frames = []
        for new, reads, share in zip(rows[1], weights, shares, strict=True):
            x, y = new.get_position()
            setp(axes.lines, visible=False)
            for token, read in zip(rows[0], reads, strict=True):
                line = np.transpose([token.get_position(), (x, y)])
                axes.plot(*line, "-", color="#0f5c99", alpha=0.7, lw=6.5 * read)
            new.set(visible=True, color="none")  # the box alone
            frames.append(png(figure))
            new.set_color("black")
            axes.text(x, y - 0.18, f"{share:.0%}", size=9, ha="center", alpha=0.7)
            frames.append(png(figure))
        setp(axes.lines, visible=True)
        frames.append(png(figure))
    images = [Image.open(io.BytesIO(frame)).convert("RGB") for frame in frames]
    palette = images[-2].quantize(64)  # one for all: what does not move stays the same
    first, *others = (image.quantize(palette=palette, dither=0) for image in images)
    file, times = io.BytesIO(), [600, 700] * len(target) + [3000]
    first.save(file, "GIF", save_all=True, append_images=others, duration=times, loop=0)
    return file.getvalue()


def attention_page(queries, keys, weights, title="Attention", dark=None):
    """One HTML file: point at a token to see what it reads. It works offline.

    The mouse, a finger or the arrow keys choose a token; menus choose a layer and head.

    Args:
        queries: the tokens that read.
        keys: the tokens that are read.
        weights: an array of any shape that `draw_attention` takes.
        title: text above the page.
        dark: True or False for a theme, None for the theme of the reader's system.

    Returns:
        The page, a string.

    Raises:
        ValueError: when the numbers of tokens and weights differ.

    Example:
        >>> page = attention_page(["▁cat"], ["▁o", "▁gato"], [[0.1, 0.9]])
        >>> page.startswith("<!doctype html>"), "http" in page
        (True, False)
    """
    shares = expand_weights(queries, keys, weights).astype("float64").round(4).tolist()
    data = {"title": title, "dark": dark, "queries": queries, "keys": keys}
    # In ASCII, and without the "<" that could end the script around it.
    text = json.dumps(data | {"weights": shares}).replace("<", "\\u003c")
    return TEMPLATE.read_text("utf-8").replace("{{data}}", text)
