"""The decoder: writes the target, each position seeing those before it (Figure 1)."""

import keras

from tfxformer.layers.attention import CausalSelfAttention, CrossAttention
from tfxformer.layers.dropout import Dropout
from tfxformer.layers.encoder import head_size
from tfxformer.layers.feed_forward import FeedForward
from tfxformer.layers.masking import padding_mask
from tfxformer.layers.normalization import LayerNorm
from tfxformer.layers.positional import PositionalEmbedding
from tfxformer.layers.residual import EPSILON
from tfxformer.layers.sizes import integers


@keras.saving.register_keras_serializable("tfxformer")
class DecoderLayer(keras.layers.Layer):
    """Causal self-attention, cross-attention, feed-forward.

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
        x: ``(batch, target, d_model)``.
        context: the encoder's output, ``(batch, source, d_model)``.
        x_mask: boolean padding mask ``(batch, target)``.
        context_mask: boolean padding mask ``(batch, source)``. Where a mask is not
            given, the Keras mask of its tensor is used.

    Returns:
        ``(batch, target, d_model)``. ``last_attn_scores`` then holds the
        cross-attention's weights (see `CrossAttention`).

    Example:
        >>> import numpy as np
        >>> layer = DecoderLayer(d_model=16, num_heads=2, dff=32)
        >>> x, context = np.ones((1, 3, 16), "float32"), np.ones((1, 5, 16), "float32")
        >>> tuple(layer(x, context).shape), tuple(layer.last_attn_scores.shape)
        ((1, 3, 16), (1, 2, 3, 5))
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
        attention = {
            "num_heads": num_heads,
            "key_dim": head_size(d_model, num_heads),
            "dropout": dropout_rate,
            "norm": norm,
            "attention_dropout": attention_dropout,
            "dtype": self.dtype_policy,
        }
        self.causal_self_attention = CausalSelfAttention(
            name="self_attention", **attention
        )
        self.cross_attention = CrossAttention(name="cross_attention", **attention)
        self.ffn = FeedForward(
            d_model,
            dff,
            dropout_rate,
            norm,
            activation_dropout,
            name="ffn",
            dtype=self.dtype_policy,
        )

    @property
    def last_attn_scores(self):
        """The last cross-attention weights, ``(batch, heads, target, source)``."""
        return self.cross_attention.last_attn_scores

    def build(self, x_shape, context_shape):
        self.causal_self_attention.build(x_shape)
        self.cross_attention.build(x_shape, context_shape)
        self.ffn.build(x_shape)
        self.built = True

    def call(self, x, context, x_mask=None, context_mask=None):
        x = self.causal_self_attention(x, mask=x_mask)
        x = self.cross_attention(x, context, context_mask=context_mask)
        return self.ffn(x)

    def get_config(self):
        return super().get_config() | self.config


@keras.saving.register_keras_serializable("tfxformer")
class Decoder(keras.layers.Layer):
    """Embedding, positions and a stack of decoder layers; vectors, not yet logits.

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
        embedding: a Keras embedding layer to share (tied embeddings), or None.

    Call arguments:
        x: token ids ``(batch, target)``.
        context: the encoder's output, ``(batch, source, d_model)``.
        x_mask: boolean padding mask ``(batch, target)``; without it the Keras mask
            of x is used, and without that, ``x != 0``.
        context_mask: boolean padding mask ``(batch, source)``; without it the Keras
            mask of context is used.

    Returns:
        ``(batch, target, d_model)``. ``last_attn_scores`` then holds the last
        layer's cross-attention weights (see `CrossAttention`).

    Example:
        >>> import numpy as np
        >>> decoder = Decoder(
        ...     num_layers=2, d_model=16, num_heads=2, dff=32, vocab_size=100
        ... )
        >>> context = np.ones((1, 5, 16), "float32")
        >>> tuple(decoder(np.array([[2, 7, 8]]), context).shape)
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
        embedding=None,
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
            embedding=embedding,
            name="embedding",
            dtype=policy,
        )
        self.dropout = Dropout(dropout_rate, dtype=policy)
        self.dec_layers = [
            DecoderLayer(
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

    @property
    def last_attn_scores(self):
        """The last layer's last weights, ``(batch, heads, target, source)``."""
        return self.dec_layers[-1].last_attn_scores

    def build(self, x_shape, context_shape):
        self.pos_embedding.build(x_shape)
        shape = (*x_shape, self.config["d_model"])
        for layer in self.dec_layers:
            layer.build(shape, context_shape)
        if self.final_norm is not None:
            self.final_norm.build(shape)
        self.built = True

    def call(self, x, context, x_mask=None, context_mask=None, training=None):
        if x_mask is None:
            x_mask = padding_mask(x)
        x = self.dropout(self.pos_embedding(x, mask=x_mask))  # (batch, target, d_model)
        for layer in self.dec_layers:
            x = layer(x, context, x_mask=x_mask, context_mask=context_mask)
        return x if self.final_norm is None else self.final_norm(x)

    def get_config(self):
        return super().get_config() | self.config
