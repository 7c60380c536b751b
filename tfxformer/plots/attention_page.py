"""Attention as one HTML file: point at a token to see what it reads."""

import html
import json
from pathlib import Path

import numpy as np

from tfxformer.errors import write_file

TEMPLATE = Path(__file__).with_name("attention_page.html")


class AttentionPage:
    """A page that shows what each token reads. It loads nothing, so it works offline.

    The mouse, a finger or the arrow keys choose a token; menus choose a layer and head.

    Args:
        queries: the tokens that read, Q strings.
        keys: the tokens that are read, K strings.
        weights: an array ``(layers, heads, Q, K)``; each row sums to 1.
        title: text above.
        dark: True or False for a theme, None for the theme of the reader's system.

    Raises:
        ValueError: when the numbers of tokens and weights differ, or there are none.

    Example:
        >>> page = AttentionPage(["▁cat"], ["▁o", "▁gato"], [[[[0.1, 0.9]]]])
        >>> page.html.startswith("<!doctype html>"), "http" in page.html
        (True, False)
    """

    def __init__(self, queries, keys, weights, title="Attention", dark=None):
        shape = np.shape(weights)
        if len(shape) != 4 or shape[2:] != (len(queries), len(keys)) or 0 in shape:
            raise ValueError(f"{len(queries)} x {len(keys)} tokens, weights.{shape=}")
        data = {
            "title": title,
            "theme": {None: "auto", True: "dark", False: "light"}[dark],
            "queries": list(queries),
            "keys": list(keys),
            "weights": np.nan_to_num(weights).round(4).tolist(),
        }
        # In ASCII, and without the "<" that could end the script around it.
        text = json.dumps(data).replace("<", "\\u003c")
        self.html = TEMPLATE.read_text("utf-8").replace("{{data}}", text)

    def _repr_html_(self):
        # The frame may run its script, and reach nothing around it.
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" title="attention" '
            'sandbox="allow-scripts" width="100%" height="460" '
            'style="border: 0"></iframe>'
        )

    def save(self, path):
        """Writes the page to a file; returns its path."""
        return write_file(path, self.html.encode())
