"""From source ids to target ids, one token at a time."""

from tfxformer.decoding.greedy import Decoded, greedy, length_limit

__all__ = ["Decoded", "greedy", "length_limit"]
