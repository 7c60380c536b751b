"""The Transformer's parts as Keras layers, in the order of the paper's Figure 1.

A call without a padding mask uses the Keras mask that its tensor carries.
"""

from tfxformer.layers.add_and_norm import AddAndNorm
from tfxformer.layers.attention import (
    CausalSelfAttention,
    CrossAttention,
    GlobalSelfAttention,
    MultiHeadAttention,
    scaled_dot_product_attention,
)
from tfxformer.layers.decoder import Decoder, DecoderLayer
from tfxformer.layers.encoder import Encoder, EncoderLayer
from tfxformer.layers.feed_forward import FeedForward
from tfxformer.layers.masking import look_ahead_mask, padding_mask
from tfxformer.layers.positional import PositionalEmbedding, positional_encoding
