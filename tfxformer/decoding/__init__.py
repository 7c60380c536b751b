"""Decoding, source ids to target ids: greedy, beam search and sampling."""

from tfxformer.decoding.options import DecodingOptions

__all__ = ["Decoded", "DecodingOptions", "decode", "length_limit"]


def __getattr__(name):
    # The searches import Keras; options can be checked without it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tfxformer.decoding import search

    return getattr(search, name)
