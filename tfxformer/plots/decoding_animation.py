"""An animation of decoding: each token reads the source, then is written.

The tokens stand in two rows of boxes, the source above the translation. Lines lead from
a new token to the tokens that it reads: the larger the weight, the wider the line.
"""

import io

import numpy as np

from tfxformer.plots import drawing, png
from tfxformer.plots.attention_maps import attention_maps, best_head, readable


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

    maps = attention_maps(translator, text)
    target, source, weights = maps["cross"]
    layer, head = best_head(weights)
    target_ids = translator.tokenizer.target.processor.piece_to_id(target)
    probabilities = maps["probabilities"][range(len(target)), target_ids]  # (target,)
    note = f"lines: attention of layer {layer + 1}, head {head + 1}; below: probability"
    small = {"size": 9, "ha": "center", "alpha": 0.7}
    frames = []
    with drawing(7, 2.8) as figure:
        figure.set(dpi=150, layout_engine="none")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.axis("off")
        axes.text(0, 0.06, note, **small)
        source_boxes, source_width = _draw_row(axes, readable(source), 0.8, "#ffecdd")
        target_boxes, target_width = _draw_row(axes, readable(target), 0.36, "#e3edf6")
        width = max(7 * figure.dpi, source_width + 60, target_width + 60)  # pixels
        figure.set_figwidth(width / figure.dpi)
        axes.set(xlim=(-width / 2, width / 2), ylim=(0, 1))
        setp(target_boxes, visible=False)
        for step, box in enumerate(target_boxes):
            setp(axes.lines, visible=False)  # those of earlier steps
            _draw_lines(axes, box, source_boxes, weights[layer, head, step])
            box.set(visible=True, color="none")  # the box without its token
            frames.append(png(figure))
            box.set_color("black")
            x, y = box.get_position()
            axes.text(x, y - 0.18, f"{probabilities[step]:.0%}", **small)
            frames.append(png(figure))
        setp(axes.lines, visible=True)
        frames.append(png(figure))
    return _join_frames(frames)


def _draw_row(axes, tokens, y, colour):
    """Draws a row of tokens in boxes. Returns the boxes, and its width in pixels."""
    chip = {"boxstyle": "round,pad=0.35", "edgecolor": "#aab4be", "facecolor": colour}
    style = {"size": 13, "color": "black", "ha": "center", "va": "center_baseline"}
    boxes = [axes.text(0, y, token, bbox=chip, **style) for token in tokens]
    # Matplotlib knows a text's width once it is drawn. The rest is the box and a gap.
    widths = np.array([box.get_window_extent().width + 45 for box in boxes])
    middles = widths.cumsum() - (widths + widths.sum()) / 2  # around x = 0
    for box, x in zip(boxes, middles, strict=True):
        box.set_x(x)
    return boxes, widths.sum()


def _draw_lines(axes, box, source_boxes, weights):
    """Draws a line from a token's box to each source token, as wide as its weight."""
    x, y = box.get_position()
    for source_box, weight in zip(source_boxes, weights, strict=True):
        source_x, source_y = source_box.get_position()
        (line,) = axes.plot([source_x, x], [source_y, y], "-", color="#0f5c99")
        line.set(alpha=0.7, linewidth=6.5 * weight)


def _join_frames(frames):
    """Joins PNG files to a GIF file that repeats for ever."""
    from PIL import Image

    images = [Image.open(io.BytesIO(frame)).convert("RGB") for frame in frames]
    # One palette for all: what does not move keeps its colours. The last image but one
    # has all tokens.
    palette = images[-2].quantize(64)
    first, *others = (image.quantize(palette=palette, dither=0) for image in images)
    times = [600, 700] * (len(frames) // 2) + [3000]  # milliseconds
    file = io.BytesIO()
    first.save(file, "GIF", save_all=True, append_images=others, duration=times, loop=0)
    return file.getvalue()
