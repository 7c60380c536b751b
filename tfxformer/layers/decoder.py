"""The decoder: a stack of layers that read the target and the source (Figure 1, right).

A layer is causal self-attention, cross-attention and a feed-forward network.
"""

import keras

from tfxformer.layers.attention import CausalSelfAttention, CrossAttention
from tfxformer.layers.encoder import Stack
from tfxformer.layers.feed_forward import FeedForward
from tfxformer.layers.masking import padding_mask
from tfxformer.layers.sizes import ConfiguredLayer, head_size


@keras.saving.register_keras_serializable("tfxformer")
class DecoderLayer(ConfiguredLayer):
    """Causal self-attention, cross-attention, then feed-forward (section 3.1).

    Args:
        d_model: size of the hidden states.
        num_heads: number of attention heads; it must divide ``d_model``.
        dff: size of the feed-forward network's hidden layer.
        dropout_rate: dropout of attention weights and sublayer outputs.
        norm: "post" or "pre"; see `AddAndNorm`.
        attention_dropout: dropout of the attention weights; None for ``dropout_rate``.
        activation_dropout: dropout of the feed-forward network's hidden layer.
        activation: of this hidden layer; see `FeedForward`.

    Call arguments:
        x: ``(batch, target, d_model)``.
        context: the encoder's output, ``(batch, source, d_model)``.
        x_mask: padding mask of x, ``(batch, target)``.
        context_mask: padding mask of the source, ``(batch, source)``.

    Returns:
        ``(batch, target, d_model)``. ``last_attn_scores`` is that of `CrossAttention`.

    Raises:
        ValueError: ``num_heads`` does not divide ``d_model``.

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
        activation="relu",
        **kwargs,
    ):
        super().__init__(**kwargs)
        key_dim = head_size(d_model, num_heads)
        self.causal_self_attention = CausalSelfAttention(
            num_heads=num_heads,
            key_dim=key_dim,
            dropout=dropout_rate,
            norm=norm,
            attention_dropout=attention_dropout,
            name="self_attention",
            dtype=self.dtype_policy,
        )
        self.cross_attention = CrossAttention(
            num_heads=num_heads,
            key_dim=key_dim,
            dropout=dropout_rate,
            norm=norm,
            attention_dropout=attention_dropout,
            name="cross_attention",
            dtype=self.dtype_policy,
        )
        self.ffn = FeedForward(
            d_model=d_model,
            dff=dff,
            dropout_rate=dropout_rate,
            norm=norm,
            activation_dropout=activation_dropout,
            activation=activation,
            name="ffn",
            dtype=self.dtype_policy,
        )

    last_attn_scores = property(lambda self: self.cross_attention.last_attn_scores)

    def build(self, x_shape):
        self.causal_self_attention.build(x_shape)
        self.cross_attention.build(x_shape)
        self.ffn.build(x_shape)

    def call(self, x, context, x_mask=None, context_mask=None):
        x = self.causal_self_attention(x, mask=x_mask)  # (batch, target, d_model)
        x = self.cross_attention(x, context, context_mask=context_mask)
        return self.ffn(x)


@keras.saving.register_keras_serializable("tfxformer")
class Decoder(Stack):
    """Embedding, positions and a stack of `DecoderLayer`: token ids to hidden states.

    Args:
        num_layers: number of layers.
        d_model: size of the hidden states.
        num_heads: number of attention heads; it must divide ``d_model``.
        dff: size of the feed-forward networks' hidden layer.
        vocab_size: number of token ids; id 0 is padding.
        dropout_rate: dropout of embeddings, attention weights and sublayer outputs.
        norm: "post" (the paper's) or "pre", which adds one norm after the stack.
        max_length: the most positions.
        learned_positions: see `PositionalEmbedding`.
        use_positions: see `PositionalEmbedding`.
        attention_dropout: dropout of the attention weights; None for ``dropout_rate``.
        activation_dropout: dropout of the feed-forward networks' hidden layers.
        activation: of these hidden layers; see `FeedForward`.
        embedding: a Keras embedding layer to share, or None for a new one.

    Call arguments:
        x: token ids ``(batch, target)``.
        context: the encoder's output, ``(batch, source, d_model)``.
        x_mask: padding mask ``(batch, target)``; None for ``x != 0``.
        context_mask: padding mask of the source, ``(batch, source)``.

    Returns:
        ``(batch, target, d_model)``. ``last_attn_scores`` is the last layer's (see
        `CrossAttention`).

    Example:
        >>> import numpy as np
        >>> stack = Decoder(num_layers=2, d_model=8, num_heads=2, dff=32, vocab_size=99)
        >>> tuple(stack(np.array([[2, 7, 8]]), np.ones((1, 5, 8), "float32")).shape)
        (1, 3, 8)
    """

    layer_type = DecoderLayer
    dec_layers = property(lambda self: self.stacked)
    last_attn_scores = property(lambda self: self.dec_layers[-1].last_attn_scores)

    def call(self, x, context, x_mask=None, context_mask=None):
        if x_mask is None:
            x_mask = padding_mask(x)
        x = self.pos_embedding(x, mask=x_mask)  # (batch, target, d_model)
        x = self.dropout(x)
        for layer in self.dec_layers:
            x = layer(x, context, x_mask=x_mask, context_mask=context_mask)
        return self.final_norm(x)
