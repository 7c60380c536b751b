"""Encoder and decoder: stacks of layers, and the sublayers of each (Figure 1)."""

import keras
from keras import ops

from tfxformer.layers.attention import (
    CausalSelfAttention,
    CrossAttention,
    GlobalSelfAttention,
)
from tfxformer.layers.kernels import LayerNorm, Projection
from tfxformer.layers.masking import padding_mask
from tfxformer.layers.positional import PositionalEmbedding
from tfxformer.layers.residual import EPSILON, AddAndNorm, Layer


@keras.saving.register_keras_serializable("tfxformer")
class FeedForward(Layer):
    """``max(0, x W1 + b1) W2 + b2`` at each position (section 3.3), with Add & Norm.

    Args:
        d_model: size of the input and the output.
        dff: size of the hidden layer.
        dropout_rate, norm: as for `AddAndNorm`.
        activation_dropout: dropout rate of the hidden layer.
        activation: "relu" (the paper's), or "swish".

    Call arguments:
        x: ``(batch, length, d_model)``.

    Returns:
        ``(batch, length, d_model)``.

    Example:
        >>> import numpy as np
        >>> tuple(FeedForward(16, 32)(np.ones((1, 3, 16), "float32")).shape)
        (1, 3, 16)
    """

    def __init__(
        self,
        d_model,
        dff,
        dropout_rate=0.1,
        norm="post",
        activation_dropout=0.0,
        activation="relu",
        **kwargs,
    ):
        super().__init__(locals(), **kwargs)
        d_model, dff = self.settings["d_model"], self.settings["dff"]
        of = {"dtype": self.dtype_policy}
        self.hidden_dense = Projection(dff, activation=activation, name="hidden", **of)
        self.dropout = keras.layers.Dropout(activation_dropout, **of)
        self.output_dense = Projection(d_model, name="output", **of)
        self.add_and_norm = AddAndNorm(dropout_rate, norm, name="add_norm", **of)

    def build(self, x_shape):
        self.hidden_dense.build(x_shape)
        self.output_dense.build((*x_shape[:-1], self.hidden_dense.units))
        self.add_and_norm.build(x_shape)

    def call(self, x):
        y = self.add_and_norm.before(x)
        y = self.dropout(self.hidden_dense(y))  # (batch, length, dff)
        return self.add_and_norm(x, self.output_dense(y))


class StackLayer(Layer):
    """One layer of a stack; see `EncoderLayer` and `DecoderLayer`.

    Args:
        d_model, num_heads, dff, norm, attention_dropout, activation_dropout: as for
            `tfxformer.Transformer`.
        activation: as for `FeedForward`.
        dropout_rate: dropout of attention weights and sublayer outputs.
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
        super().__init__(locals(), **kwargs)
        if d_model % num_heads:
            problem = f"d_model={d_model} is not a multiple of num_heads={num_heads}"
            raise ValueError(problem)
        key_dim = d_model // num_heads  # section 3.2.2
        of = {"dtype": self.dtype_policy}
        attention = (num_heads, key_dim, dropout_rate, norm, attention_dropout)
        self.make_attention(*attention, **of)
        rates = (dropout_rate, norm, activation_dropout)
        self.ffn = FeedForward(d_model, dff, *rates, activation, name="ffn", **of)


class Stack(Layer):
    """Embedding, positions and a stack of layers; see `Encoder` and `Decoder`.

    Args:
        num_layers: number of layers.
        d_model, num_heads, dff, dropout_rate, attention_dropout, activation_dropout: as
            for `tfxformer.Transformer`.
        activation: as for `FeedForward`.
        norm: "post" (the paper's) or "pre", which adds one norm after the stack.
        vocab_size, max_length, learned_positions, use_positions, embedding: as for
            `PositionalEmbedding`.
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
        super().__init__(locals(), **kwargs)
        of = {"dtype": self.dtype_policy}
        positions = (max_length, learned_positions, use_positions)
        self.pos_embedding = PositionalEmbedding(
            vocab_size, d_model, *positions, embedding, name="embedding", **of
        )
        self.dropout = keras.layers.Dropout(dropout_rate, **of)
        sizes = (d_model, num_heads, dff)
        rates = (dropout_rate, norm, attention_dropout, activation_dropout, activation)
        self.stack = [
            self.kind_of_layer(*sizes, *rates, name=f"layer_{i}", **of)
            for i in range(num_layers)
        ]
        self.final_norm = keras.layers.Identity(**of)
        if norm == "pre":
            self.final_norm = LayerNorm(epsilon=EPSILON, name="final_norm", **of)

    def build(self, x_shape):
        self.pos_embedding.build(x_shape)
        shape = (*x_shape, self.settings["d_model"])
        for layer in (*self.stack, self.final_norm):
            layer.build(shape)


@keras.saving.register_keras_serializable("tfxformer")
class EncoderLayer(StackLayer):
    """A `StackLayer` of self-attention, then feed-forward.

    It has the call arguments and the result of `GlobalSelfAttention`.

    Example:
        >>> import numpy as np
        >>> layer = EncoderLayer(d_model=16, num_heads=2, dff=32)
        >>> tuple(layer(np.ones((1, 3, 16), "float32")).shape)
        (1, 3, 16)
    """

    def make_attention(self, *args, **of):
        self.self_attention = GlobalSelfAttention(*args, name="self_attention", **of)

    def build(self, x_shape):
        self.self_attention.build(x_shape)
        self.ffn.build(x_shape)

    def call(self, x, mask=None):
        return self.ffn(self.self_attention(x, mask=mask))


@keras.saving.register_keras_serializable("tfxformer")
class Encoder(Stack):
    """A `Stack` of encoder layers: token ids to hidden states.

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

    kind_of_layer = EncoderLayer
    enc_layers = property(lambda self: self.stack)

    def call(self, x, mask=None):
        if mask is None:
            mask = padding_mask(x)
        x = self.dropout(self.pos_embedding(x, mask=mask))  # (batch, source, d_model)
        for layer in self.stack:
            x = layer(x, mask=mask)
        return self.final_norm(x)

    def compute_mask(self, x, previous_mask=None):
        return padding_mask(x) if previous_mask is None else previous_mask


@keras.saving.register_keras_serializable("tfxformer")
class DecoderLayer(StackLayer):
    """A `StackLayer` of causal self-attention, cross-attention, then feed-forward.

    Call arguments:
        x_mask: padding mask of x, ``(batch, target)``.
        x, context, context_mask, return_attention_scores: as for `CrossAttention`.

    Returns:
        As for `CrossAttention`; ``last_attn_scores`` is that layer's.

    Example:
        >>> import numpy as np
        >>> layer = DecoderLayer(d_model=16, num_heads=2, dff=32)
        >>> x, context = np.ones((1, 3, 16), "float32"), np.ones((1, 5, 16), "float32")
        >>> tuple(layer(x, context).shape), tuple(layer.last_attn_scores.shape)
        ((1, 3, 16), (1, 2, 3, 5))
    """

    last_attn_scores = property(lambda self: self.cross_attention.last_attn_scores)

    def make_attention(self, *args, **of):
        causal, cross = CausalSelfAttention, CrossAttention
        self.causal_self_attention = causal(*args, name="self_attention", **of)
        self.cross_attention = cross(*args, name="cross_attention", **of)

    def build(self, x_shape):
        for layer in (self.causal_self_attention, self.cross_attention, self.ffn):
            layer.build(x_shape)

    def call(
        self, x, context, x_mask=None, context_mask=None, return_attention_scores=False
    ):
        x = self.causal_self_attention(x, mask=x_mask)
        x, weights = self.cross_attention(
            x, context, context_mask=context_mask, return_attention_scores=True
        )
        x = self.ffn(x)
        return (x, weights) if return_attention_scores else x


@keras.saving.register_keras_serializable("tfxformer")
class Decoder(Stack):
    """A `Stack` of decoder layers: token ids to hidden states, before the logits.

    Call arguments:
        x: token ids ``(batch, target)``.
        x_mask: padding mask ``(batch, target)``; None for ``x != 0``.
        context, context_mask, return_attention_scores: as for `CrossAttention`.

    Returns:
        ``(batch, target, d_model)``, and with ``return_attention_scores`` also the
        weights ``(batch, layers, heads, target, source)``. ``last_attn_scores`` is the
        last layer's (see `CrossAttention`).

    Example:
        >>> import numpy as np
        >>> stack = Decoder(num_layers=2, d_model=8, num_heads=2, dff=32, vocab_size=99)
        >>> tuple(stack(np.array([[2, 7, 8]]), np.ones((1, 5, 8), "float32")).shape)
        (1, 3, 8)
    """

    kind_of_layer = DecoderLayer
    dec_layers = property(lambda self: self.stack)
    last_attn_scores = property(lambda self: self.stack[-1].last_attn_scores)

    def call(
        self, x, context, x_mask=None, context_mask=None, return_attention_scores=False
    ):
        if x_mask is None:
            x_mask = padding_mask(x)
        x = self.dropout(self.pos_embedding(x, mask=x_mask))  # (batch, target, d_model)
        masks = {"x_mask": x_mask, "context_mask": context_mask}
        attention = []
        for layer in self.stack:
            x, weights = layer(x, context, **masks, return_attention_scores=True)
            attention.append(weights)
        x = self.final_norm(x)
        return (x, ops.stack(attention, axis=1)) if return_attention_scores else x

    def step(self, tokens, position, encoded, cache, buffers):
        """One more token of each hypothesis; see `Transformer.decode_step`."""
        x = self.pos_embedding.step(tokens, position)  # (batch * beams, d_model)
        beams = cache[0][0].shape[1] // self.settings["num_heads"]
        written, attention = [], []
        for layer, source, past in zip(
            self.stack, encoded.key_value, cache, strict=True
        ):
            x, past = layer.causal_self_attention.step(x, position, past, buffers)
            x, weights = layer.cross_attention.step(x, source, encoded.mask_bias, beams)
            x = layer.ffn(x)
            written.append(past)
            attention.append(weights)  # (batch, heads, beams, source)
        attention = ops.transpose(ops.concatenate(attention, axis=1), (0, 2, 1, 3))
        return self.final_norm(x), tuple(written), attention
