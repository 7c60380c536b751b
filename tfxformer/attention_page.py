"""Attention to play with, as one file: hover a token, and see what it reads."""

import base64
import html as html_escapes
import json
import re
import unicodedata
from pathlib import Path

import numpy as np

from tfxformer.outputs import write_file

TEMPLATE = Path(__file__).with_name("attention_page.html")
# Of what nobody sees, these shape the letters beside them.
JOINERS = "\u200c\u200d"


def attention_html(queries, keys, weights, title="", dark=None):
    """A page that shows what each token reads; it loads nothing, so it works offline.

    Pointing at a token, a tap or the arrow keys show which tokens it reads, or who
    reads it; a layer, a head or the mean can be chosen.

    Args:
        queries: the tokens that read, strings in any script.
        keys: the tokens that are read.
        weights: an array ``(layers, heads, queries, keys)``; each row sums to 1.
        title: what stands above.
        dark: True or False for a theme, None for the one that the reader's system
            has.

    Returns:
        HTML, a whole page.

    Raises:
        ValueError: when there are not as many tokens as weights, or none.

    Example:
        >>> page = attention_html(["▁cat"], ["▁o", "▁gato"], [[[[0.1, 0.9]]]])
        >>> page.startswith("<!doctype html>"), "http" in page
        (True, False)
    """
    shape = np.shape(weights)
    if len(shape) != 4 or shape[2:] != (len(queries), len(keys)):
        raise ValueError(f"{len(keys)} x {len(queries)} pieces, weights.{shape=}")
    if 0 in shape:
        raise ValueError(f"there is nothing to show: weights.{shape=}")
    numbers = np.clip(np.nan_to_num(np.asarray(weights, "float64")), 0, 1)
    data = {
        "queries": [_visible(token) for token in queries],
        "keys": [_visible(token) for token in keys],
        "shape": shape,
        # Two bytes a weight, the low one first.
        "weights": base64.b64encode(np.round(numbers * 65535).astype("<u2")).decode(),
    }
    # In ASCII, and no "<" that would end the script it stands in.
    text = json.dumps(data).replace("<", "\\u003c")
    values = {
        "title": html_escapes.escape(_visible(title or "Attention")),
        "theme": {None: "auto", True: "dark", False: "light"}[dark],
        "queries_dir": _direction(queries),
        "keys_dir": _direction(keys),
        "data": text,
    }
    template = TEMPLATE.read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], template)


class AttentionPage:
    """A page that a notebook shows in a frame of its own.

    Args:
        html: what `attention_html` gives.

    Example:
        >>> page = AttentionPage(attention_html(["a"], ["b"], [[[[1.0]]]]))
        >>> page._repr_html_()[:7]
        '<iframe'
    """

    def __init__(self, html):
        self.html = html

    def __repr__(self):
        return f"AttentionPage({len(self.html):,} characters)"

    def _repr_html_(self):
        # It may run its script, and reach nothing of the notebook.
        return (
            f'<iframe srcdoc="{html_escapes.escape(self.html)}" title="attention" '
            'sandbox="allow-scripts" width="100%" height="460" '
            'style="border: 0"></iframe>'
        )

    def save(self, path):
        """Writes the page to a file.

        Args:
            path: where to.

        Returns:
            The path.

        Raises:
            UserError: when it cannot be written.
        """
        return write_file(path, self.html.encode())


def _visible(text):
    """Text with the numbers of what would not be seen, or change what is around it."""
    seen = (c if c.isprintable() or c in JOINERS else f"\\u{ord(c):04x}" for c in text)
    return "".join(seen) or "∅"


def _direction(tokens):
    """Where a row of tokens begins: at the right where most letters are written so."""
    kinds = [unicodedata.bidirectional(c) for token in tokens for c in token]
    right = sum(kind in ("R", "AL") for kind in kinds)
    return "rtl" if right > kinds.count("L") else "ltr"
