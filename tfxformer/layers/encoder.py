"""The encoder: reads the source, all positions at once (Figure 1, left)."""

import keras

from tfxformer.layers.attention import GlobalSelfAttention
from tfxformer.layers.dropout import Dropout
from tfxformer.layers.feed_forward import FeedForward
from tfxformer.layers.masking import padding_mask
from tfxformer.layers.normalization import LayerNorm
from tfxformer.layers.positional import PositionalEmbedding
from tfxformer.layers.residual import EPSILON
from tfxformer.layers.sizes import integers


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
        self.supports_masking = True
        self.config = {
            **integers(d_model=d_model, num_heads=num_heads, dff=dff),
            "dropout_rate": dropout_rate,
            "norm": norm,
            "attention_dropout": attention_dropout,
            "activation_dropout": activation_dropout,
        }
        self.self_attention = GlobalSelfAttention(
            num_heads=num_heads,
            key_dim=head_size(d_model, num_heads),
            dropout=dropout_rate,
            norm=norm,
            attention_dropout=attention_dropout,
            name="self_attention",
            dtype=self.dtype_policy,
        )
        self.ffn = FeedForward(
            d_model,
            dff,
            dropout_rate,
            norm,
            activation_dropout,
            name="ffn",
            dtype=self.dtype_policy,
        )

    def build(self, x_shape):
        self.self_attention.build(x_shape)
        self.ffn.build(x_shape)
        self.built = True

    def call(self, x, mask=None):
        x = self.self_attention(x, mask=mask)
        return self.ffn(x)

    def get_config(self):
        return super().get_config() | self.config


@keras.saving.register_keras_serializable("tfxformer")
class Encoder(keras.layers.Layer):
    """Embedding, positions and a stack of encoder layers.

    Args:
        num_layers: number of layers.
        d_model: size of each position's vector.
        num_heads: number of attention heads; it divides ``d_model``.
        dff: size of the feed-forward network's hidden layer.
        vocab_size: number of token ids; id 0 is padding.
        dropout_rate: dropout of embeddings, weights and sublayer outputs.
        norm: "post" (the paper's) or "pre", which adds one norm after the stack.
        max_length: the most positions it can encode.
        learned_positions: learn positions instead of the fixed sines and cosines.
        use_positions: False leaves positions out.
        attention_dropout: dropout of the attention weights; None for
            ``dropout_rate``.
        activation_dropout: dropout of the feed-forward networks' hidden layers.

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

    def __init__(
        self,
        num_layers,
        d_model,
        num_heads,
        dff,
        vocab_size,
        dropout_rate=0.1,
        norm="post",
        max_length=2048,
        learned_positions=False,
        use_positions=True,
        attention_dropout=None,
        activation_dropout=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.config = {
            **integers(
                num_layers=num_layers,
                d_model=d_model,
                num_heads=num_heads,
                dff=dff,
                vocab_size=vocab_size,
                max_length=max_length,
            ),
            "dropout_rate": dropout_rate,
            "norm": norm,
            "learned_positions": learned_positions,
            "use_positions": use_positions,
            "attention_dropout": attention_dropout,
            "activation_dropout": activation_dropout,
        }
        policy = self.dtype_policy
        self.pos_embedding = PositionalEmbedding(
            vocab_size,
            d_model,
            max_length,
            learned_positions,
            use_positions,
            name="embedding",
            dtype=policy,
        )
        self.dropout = Dropout(dropout_rate, dtype=policy)
        self.enc_layers = [
            EncoderLayer(
                d_model,
                num_heads,
                dff,
                dropout_rate,
                norm,
                attention_dropout,
                activation_dropout,
                name=f"layer_{i}",
                dtype=policy,
            )
            for i in range(num_layers)
        ]
        self.final_norm = (
            LayerNorm(epsilon=EPSILON, name="final_norm", dtype=policy)
            if norm == "pre"
            else None
        )

    def build(self, x_shape):
        self.pos_embedding.build(x_shape)
        shape = (*x_shape, self.config["d_model"])
        for layer in self.enc_layers:
            layer.build(shape)
        if self.final_norm is not None:
            self.final_norm.build(shape)
        self.built = True

    def call(self, x, mask=None, training=None):
        if mask is None:
            mask = padding_mask(x)
        x = self.dropout(self.pos_embedding(x, mask=mask))  # (batch, source, d_model)
        for layer in self.enc_layers:
            x = layer(x, mask=mask, training=training)
        return x if self.final_norm is None else self.final_norm(x)

    def compute_mask(self, x, previous_mask=None):
        return padding_mask(x) if previous_mask is None else previous_mask

    def get_config(self):
        return super().get_config() | self.config


def head_size(d_model, num_heads):
    """The size of a head: ``d_model / num_heads``, as in the paper (section 3.2.2).

    Args:
        d_model: size of each position's vector.
        num_heads: number of attention heads.

    Returns:
        An integer.

    Raises:
        ValueError: when the heads do not divide ``d_model``.

    Example:
        >>> head_size(512, 8)
        64
    """
    d_model, num_heads = integers(d_model=d_model, num_heads=num_heads).values()
    if d_model % num_heads:
        raise ValueError(
            f"d_model={d_model} is not a multiple of num_heads={num_heads}"
        )
    return d_model // num_heads
