"""A page that shows attention: one HTML file that needs nothing else."""

import json
from pathlib import Path

from tfxformer.plots import expand_weights

TEMPLATE = Path(__file__).with_name("attention_page.html")


def attention_page(queries, keys, weights, title="Attention", dark=None):
    """Makes one HTML file: point at a token to see what it reads. It works offline.

    The mouse, a finger or the arrow keys choose a token; menus choose a layer and head.

    Args:
        queries: the tokens that read, Q strings.
        keys: the tokens that are read, K strings.
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
    weights = expand_weights(queries, keys, weights)  # (layers, heads, Q, K)
    weights = weights.astype("float64").round(4)  # float32 has no short decimals
    data = {"title": title, "dark": dark, "queries": queries, "keys": keys}
    data["weights"] = weights.tolist()
    # The text is ASCII, and has no "<" that could end the script around it.
    text = json.dumps(data).replace("<", "\\u003c")
    return TEMPLATE.read_text("utf-8").replace("{{data}}", text)
