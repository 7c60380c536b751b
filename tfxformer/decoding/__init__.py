"""From source ids to target ids: greedy, beam search and sampling, one token a step."""

from tfxformer.decoding.hypotheses import Decoded
from tfxformer.decoding.search import decode, decode_steps, length_limit
from tfxformer.decoding_options import DecodingOptions

__all__ = ["Decoded", "DecodingOptions", "decode", "decode_steps", "length_limit"]
