"""The encoder: reads the source, all positions at once (Figure 1, left)."""

import keras

from tfxformer.layers.attention import GlobalSelfAttention
from tfxformer.layers.feed_forward import FeedForward
from tfxformer.layers.masking import padding_mask
from tfxformer.layers.sizes import settings
from tfxformer.layers.stack import Stack, head_size


@keras.saving.register_keras_serializable("tfxformer")
class EncoderLayer(keras.layers.Layer):
    """Self-attention, then feed-forward, each in its residual connection.

    Args:
        d_model: size of each position's vector.
        num_heads: number of attention heads; it divides ``d_model``.
        dff: size of the feed-forward network's hidden layer.
        dropout_rate: dropout of weights and sublayer outputs.
        norm: "post" (the paper's) or "pre".
        attention_dropout: dropout of the attention weights; None for
            ``dropout_rate``.
        activation_dropout: dropout of the feed-forward network's hidden layer.

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

    def __init__(
        self,
        d_model,
        num_heads,
        dff,
        dropout_rate=0.1,
        norm="post",
        attention_dropout=None,
        activation_dropout=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.settings = settings(locals())
        self.supports_masking = True
        policy = self.dtype_policy
        self.self_attention = GlobalSelfAttention(
            num_heads=num_heads,
            key_dim=head_size(d_model, num_heads),
            dropout=dropout_rate,
            norm=norm,
            attention_dropout=attention_dropout,
            name="self_attention",
            dtype=policy,
        )
        self.ffn = FeedForward(
            d_model,
            dff,
            dropout_rate,
            norm,
            activation_dropout,
            name="ffn",
            dtype=policy,
        )

    def build(self, x_shape):
        self.self_attention.build(x_shape)
        self.ffn.build(x_shape)
        self.built = True

    def call(self, x, mask=None):
        x = self.self_attention(x, mask=mask)
        return self.ffn(x)

    def get_config(self):
        return super().get_config() | self.settings


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

    def call(self, x, mask=None):
        if mask is None:
            mask = padding_mask(x)
        x = self.dropout(self.pos_embedding(x, mask=mask))  # (batch, source, d_model)
        for layer in self.stack:
            x = layer(x, mask=mask)
        return self.finish(x)

    def compute_mask(self, x, previous_mask=None):
        return padding_mask(x) if previous_mask is None else previous_mask
