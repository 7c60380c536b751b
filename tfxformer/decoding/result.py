"""What decoding gives."""

from typing import NamedTuple


class Decoded(NamedTuple):
    """Translations as ids, best first.

    Attributes:
        ids: int32 ``(batch, n_best, target)``: the tokens without start, with the
            end token where one was written, then padding.
        score: float32 ``(batch, n_best)``: the mean log-probability of those tokens,
            the end token included; 0 where there is none.
        rank: float32 ``(batch, n_best)``: what the translations are ordered by: the
            score, or with a length or coverage penalty log-probability and penalties.
        attention: cross-attention's weights when each token was written,
            ``(batch, n_best, layers, heads, target, source)``; or None.
    """

    ids: object
    score: object
    rank: object
    attention: object
