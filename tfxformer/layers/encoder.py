"""The encoder: reads the source, all positions at once (Figure 1, left)."""

import keras

from tfxformer.layers.attention import GlobalSelfAttention
from tfxformer.layers.feed_forward import FeedForward
from tfxformer.layers.masking import padding_mask
from tfxformer.layers.stack import Stack, StackLayer


@keras.saving.register_keras_serializable("tfxformer")
class EncoderLayer(StackLayer):
    """Self-attention, then feed-forward, each in its residual connection.

    It takes the arguments of `StackLayer`.

    Call arguments:
        x: ``(batch, source, d_model)``.
        mask: boolean padding mask ``(batch, source)``; without it the Keras mask
            of x is used.

    Returns:
        ``(batch, source, d_model)``.

    Example:
        >>> import numpy as np
        >>> layer = EncoderLayer(d_model=16, num_heads=2, dff=32)
        >>> tuple(layer(np.ones((1, 3, 16), "float32")).shape)
        (1, 3, 16)
    """

    def make_sublayers(self, attention, feed_forward):
        self.self_attention = GlobalSelfAttention(name="self_attention", **attention)
        self.ffn = FeedForward(name="ffn", **feed_forward)

    def build(self, x_shape):
        self.self_attention.build(x_shape)
        self.ffn.build(x_shape)
        self.built = True

    def call(self, x, mask=None):
        x = self.self_attention(x, mask=mask)
        return self.ffn(x)


@keras.saving.register_keras_serializable("tfxformer")
class Encoder(Stack):
    """Embedding, positions and a stack of encoder layers.

    It takes the arguments of `Stack`.

    Call arguments:
        x: token ids ``(batch, source)``.
        mask: boolean padding mask ``(batch, source)``; without it the Keras mask of
            x is used, and without that, ``x != 0``.

    Returns:
        ``(batch, source, d_model)``, with the padding mask as its Keras mask.

    Example:
        >>> import numpy as np
        >>> encoder = Encoder(
        ...     num_layers=2, d_model=16, num_heads=2, dff=32, vocab_size=100
        ... )
        >>> tuple(encoder(np.array([[7, 8, 0]])).shape)
        (1, 3, 16)
    """

    kind_of_layer = EncoderLayer

    @property
    def enc_layers(self):
        """The stack's `EncoderLayer`s, first to last."""
        return self.stack

    def build(self, x_shape):
        self.build_stack(x_shape)

    def call(self, x, mask=None):
        if mask is None:
            mask = padding_mask(x)
        x = self.dropout(self.pos_embedding(x, mask=mask))  # (batch, source, d_model)
        for layer in self.stack:
            x = layer(x, mask=mask)
        return self.finish(x)

    def compute_mask(self, x, previous_mask=None):
        return padding_mask(x) if previous_mask is None else previous_mask
