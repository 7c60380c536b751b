"""The encoder: a stack of self-attention and feed-forward networks (Figure 1, left)."""

import keras

from tfxformer.layers.attention import GlobalSelfAttention
from tfxformer.layers.feed_forward import FeedForward
from tfxformer.layers.kernels import EPSILON, LayerNorm
from tfxformer.layers.masking import padding_mask
from tfxformer.layers.positional import PositionalEmbedding
from tfxformer.layers.sizes import ConfiguredLayer, as_size, head_size


@keras.saving.register_keras_serializable("tfxformer")
class EncoderLayer(ConfiguredLayer):
    """Self-attention, then a feed-forward network (section 3.1).

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
        x: ``(batch, length, d_model)``.
        mask: padding mask ``(batch, length)``.

    Returns:
        ``(batch, length, d_model)``.

    Raises:
        ValueError: ``num_heads`` does not divide ``d_model``.

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
        activation="relu",
        **kwargs,
    ):
        super().__init__(**kwargs)
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
            d_model=d_model,
            dff=dff,
            dropout_rate=dropout_rate,
            norm=norm,
            activation_dropout=activation_dropout,
            activation=activation,
            name="ffn",
            dtype=self.dtype_policy,
        )

    def build(self, x_shape):
        self.self_attention.build(x_shape)
        self.ffn.build(x_shape)

    def call(self, x, mask=None):
        x = self.self_attention(x, mask=mask)
        return self.ffn(x)


class Stack(ConfiguredLayer):
    """Embedding, positions and layers of one type: the base of `Encoder` and `Decoder`.

    A subclass has the type as ``layer_type``.
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
        activation="relu",
        embedding=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_layers = as_size("num_layers", num_layers)
        self.d_model = as_size("d_model", d_model)
        self.pos_embedding = PositionalEmbedding(
            vocab_size=vocab_size,
            d_model=self.d_model,
            max_length=max_length,
            learned_positions=learned_positions,
            use_positions=use_positions,
            embedding=embedding,
            name="embedding",
            dtype=self.dtype_policy,
        )
        self.dropout = keras.layers.Dropout(dropout_rate, dtype=self.dtype_policy)
        # A `.weights.h5` file calls the layers `enc_layers` and `dec_layers`, the first
        # of their attributes in the alphabet.
        self.stacked = [
            self.layer_type(
                d_model=self.d_model,
                num_heads=num_heads,
                dff=dff,
                dropout_rate=dropout_rate,
                norm=norm,
                attention_dropout=attention_dropout,
                activation_dropout=activation_dropout,
                activation=activation,
                name=f"layer_{number}",
                dtype=self.dtype_policy,
            )
            for number in range(self.num_layers)
        ]
        if norm == "pre":
            self.final_norm = LayerNorm(
                epsilon=EPSILON, name="final_norm", dtype=self.dtype_policy
            )
        else:
            self.final_norm = keras.layers.Identity(dtype=self.dtype_policy)

    def build(self, x_shape):
        self.pos_embedding.build(x_shape)
        for layer in (*self.stacked, self.final_norm):
            layer.build((*x_shape, self.d_model))


@keras.saving.register_keras_serializable("tfxformer")
class Encoder(Stack):
    """Embedding, positions and a stack of `EncoderLayer`: token ids to hidden states.

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
        x: token ids ``(batch, source)``.
        mask: padding mask ``(batch, source)``; None for ``x != 0``.

    Returns:
        ``(batch, source, d_model)``, with the padding mask as its Keras mask.

    Example:
        >>> import numpy as np
        >>> stack = Encoder(num_layers=2, d_model=8, num_heads=2, dff=32, vocab_size=99)
        >>> tuple(stack(np.array([[7, 8, 0]])).shape)
        (1, 3, 8)
    """

    layer_type = EncoderLayer
    enc_layers = property(lambda self: self.stacked)

    def call(self, x, mask=None):
        if mask is None:
            mask = padding_mask(x)
        x = self.pos_embedding(x, mask=mask)  # (batch, source, d_model)
        x = self.dropout(x)
        for layer in self.enc_layers:
            x = layer(x, mask=mask)
        return self.final_norm(x)

    def compute_mask(self, x, previous_mask=None):
        return padding_mask(x) if previous_mask is None else previous_mask
