"""Attention (section 3.2): each position gathers information from other positions.

**Keys and values come from one sequence; queries may come from another.** In
cross-attention, queries come from the decoder, and keys and values from the encoder's
output.
"""

from typing import NamedTuple

import keras
from keras import ops

from tfxformer.layers.add_and_norm import AddAndNorm
from tfxformer.layers.kernels import Projection, few_rows_matmul, few_rows_softmax
from tfxformer.layers.masking import key_mask, look_ahead_mask, mask_bias
from tfxformer.layers.sizes import ConfiguredLayer, as_size


class KeyValue(NamedTuple):
    """The keys and the values of a sequence, split into heads.

    The KV cache of a decoder layer is one of these, too. There, the hypotheses of a
    sentence share an axis with the heads: ``(batch, beams * heads, positions,
    key_dim)``.
    """

    key: object  # (batch, heads, source, key_dim)
    value: object  # (batch, heads, source, key_dim)


def scaled_dot_product_attention(query, key, value, mask=None, dropout=None):
    """``softmax(Q K^T / sqrt(d_k)) V`` (section 3.2.1).

    Args:
        query: ``(batch, heads, target, key_dim)``.
        key: ``(batch, heads, source, key_dim)``.
        value: ``(batch, heads, source, value_dim)``.
        mask: boolean, broadcasts to ``(batch, heads, target, source)``; True where
            attention is allowed. None hides nothing.
        dropout: a Keras dropout layer for the weights, or None.

    Returns:
        The weighted values ``(batch, heads, target, value_dim)``, and the weights
        ``(batch, heads, target, source)``: each row sums to 1, masked weights are
        exactly 0, and a fully masked row is all 0.

    Example:
        >>> import numpy as np
        >>> x = np.ones((1, 1, 2, 4), "float32")
        >>> output, weights = scaled_dot_product_attention(x, x, x)
        >>> np.asarray(weights).tolist()
        [[[[0.5, 0.5], [0.5, 0.5]]]]
    """
    # Scaling the query is cheapest: it is the smallest tensor.
    query = query * ops.cast(query.shape[-1] ** -0.5, query.dtype)
    # (batch, heads, target, source)
    scores = few_rows_matmul(query, key, transpose_y=True)
    if mask is not None:
        # On a CPU, adding is several times faster than `ops.where` on the scores.
        scores = scores + mask_bias(mask, scores.dtype)
    weights = few_rows_softmax(scores)  # (batch, heads, target, source)
    if mask is not None:
        # This changes only rows that are fully masked.
        weights = weights * ops.cast(mask, weights.dtype)
    dropped = weights if dropout is None else dropout(weights)
    output = few_rows_matmul(dropped, value)  # (batch, heads, target, value_dim)
    return output, weights


@keras.saving.register_keras_serializable("tfxformer")
class MultiHeadAttention(ConfiguredLayer):
    """Several attention heads in parallel, each on its own projections (section 3.2.2).

    Args:
        num_heads: number of heads.
        key_dim: size of one head; the paper's ``d_model / num_heads``.
        dropout: dropout rate of the attention weights.

    Call arguments:
        query: ``(batch, target, d_model)``.
        value: ``(batch, source, d_model)``, the source of keys and values.
        mask: boolean, broadcasts to ``(batch, heads, target, source)``.
        value_mask: padding mask ``(batch, source)``, used without ``mask``.
        return_attention_scores: also return the weights.

    Returns:
        ``(batch, target, d_model)``, and with ``return_attention_scores`` also the
        weights ``(batch, heads, target, source)``.

    Example:
        >>> import numpy as np
        >>> x = np.ones((2, 5, 16), "float32")
        >>> layer = MultiHeadAttention(num_heads=4, key_dim=4)
        >>> tuple(layer(x, x).shape)
        (2, 5, 16)
    """

    last_attn_scores = None

    def __init__(self, num_heads, key_dim, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = as_size("num_heads", num_heads)
        self.key_dim = as_size("key_dim", key_dim)
        # All heads side by side: one product projects for all of them.
        width = self.num_heads * self.key_dim
        policy = self.dtype_policy
        self.query_dense = Projection(width, name="query", dtype=policy)
        self.key_dense = Projection(width, name="key", dtype=policy)
        self.value_dense = Projection(width, name="value", dtype=policy)
        self.dropout = keras.layers.Dropout(dropout, dtype=policy)

    def build(self, query_shape):
        *positions, d_model = query_shape
        self.output_dense = Projection(d_model, name="output", dtype=self.dtype_policy)
        for dense in (self.query_dense, self.key_dense, self.value_dense):
            dense.build(query_shape)
        self.output_dense.build((*positions, self.query_dense.units))

    def compute_mask(self, query, previous_mask=None):
        # The output has the query's positions; `mask` hides the value's.
        return getattr(query, "_keras_mask", None)

    def call(
        self, query, value, mask=None, value_mask=None, return_attention_scores=False
    ):
        if mask is None:
            mask = key_mask(value_mask)
        length = ops.shape(query)[1]
        # (batch, heads, target, key_dim)
        query = self.split(self.query_dense(query), length)
        key_value = self.project(value)
        # x: (batch * target, d_model); weights: (batch, heads, target, source)
        x, weights = self.attend(query, key_value, mask=mask)
        if hasattr(weights, "numpy"):  # in a graph they have no value
            self.last_attn_scores = weights
        x = ops.reshape(x, (-1, length, x.shape[-1]))  # (batch, target, d_model)
        return (x, weights) if return_attention_scores else x

    def project(self, value):
        """The `KeyValue` of a sequence ``(batch, source, d_model)``."""
        length = ops.shape(value)[1]
        return KeyValue(
            key=self.split(self.key_dense(value), length),
            value=self.split(self.value_dense(value), length),
        )

    def split(self, x, length):
        """Splits the last axis into heads: ``(batch, heads, length, key_dim)``."""
        # (batch, length, heads, key_dim)
        x = ops.reshape(x, (-1, length, self.num_heads, self.key_dim))
        return ops.transpose(x, (0, 2, 1, 3))  # (batch, heads, length, key_dim)

    def attend(self, query, key_value, mask=None):
        """Attends with all heads, and joins them.

        Args:
            query: ``(batch, heads, target, key_dim)``.
            key_value: a `KeyValue`.
            mask: as for `scaled_dot_product_attention`.

        Returns:
            Rows ``(batch * target, d_model)``, and the weights
            ``(batch, heads, target, source)``.
        """
        x, weights = scaled_dot_product_attention(
            query,
            key_value.key,
            key_value.value,
            mask=mask,
            dropout=self.dropout,
        )  # (batch, heads, target, key_dim)
        x = ops.transpose(x, (0, 2, 1, 3))  # (batch, target, heads, key_dim)
        x = ops.reshape(x, (-1, self.num_heads * self.key_dim))
        return self.output_dense(x), weights  # (batch * target, d_model)


class BaseAttention(ConfiguredLayer):
    """Multi-head attention with Add & Norm; the base of the three kinds below.

    After a call outside a graph, ``last_attn_scores`` holds the weights, as
    `MultiHeadAttention` returns them.

    Args:
        num_heads: number of heads.
        key_dim: size of one head.
        dropout: dropout rate of the sublayer's output.
        norm: "post" or "pre"; see `AddAndNorm`.
        attention_dropout: dropout rate of the weights; None for ``dropout``.
    """

    def __init__(
        self,
        num_heads,
        key_dim,
        dropout=0.0,
        norm="post",
        attention_dropout=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.mha = MultiHeadAttention(
            num_heads=num_heads,
            key_dim=key_dim,
            dropout=dropout if attention_dropout is None else attention_dropout,
            name="mha",
            dtype=self.dtype_policy,
        )
        self.add_and_norm = AddAndNorm(
            dropout_rate=dropout, norm=norm, name="add_norm", dtype=self.dtype_policy
        )

    last_attn_scores = property(lambda self: self.mha.last_attn_scores)

    def build(self, x_shape):
        self.mha.build(x_shape)
        self.add_and_norm.build(x_shape)


@keras.saving.register_keras_serializable("tfxformer")
class GlobalSelfAttention(BaseAttention):
    """The encoder's `BaseAttention`: each position attends to its whole sequence.

    Call arguments:
        x: ``(batch, length, d_model)``.
        mask: padding mask ``(batch, length)``.

    Returns:
        ``(batch, length, d_model)``.

    Example:
        >>> import numpy as np
        >>> layer = GlobalSelfAttention(num_heads=2, key_dim=8)
        >>> tuple(layer(np.ones((1, 3, 16), "float32")).shape)
        (1, 3, 16)
    """

    def call(self, x, mask=None):
        y = self.add_and_norm.before(x)
        y = self.mha(y, y, mask=key_mask(mask))  # (batch, length, d_model)
        return self.add_and_norm(x, y, mask=mask)


@keras.saving.register_keras_serializable("tfxformer")
class CausalSelfAttention(BaseAttention):
    """The decoder's `BaseAttention`: each position attends to itself and earlier ones.

    It has the call arguments and the result of `GlobalSelfAttention`, and always
    applies the look-ahead mask.

    Example:
        >>> import numpy as np
        >>> layer = CausalSelfAttention(num_heads=2, key_dim=8)
        >>> tuple(layer(np.ones((1, 3, 16), "float32")).shape)
        (1, 3, 16)
    """

    def call(self, x, mask=None):
        visible = look_ahead_mask(ops.shape(x)[1])  # (1, 1, length, length)
        if mask is not None:
            # (batch, 1, length, length)
            visible = ops.logical_and(visible, key_mask(mask))
        y = self.add_and_norm.before(x)
        y = self.mha(y, y, mask=visible)  # (batch, length, d_model)
        return self.add_and_norm(x, y, mask=mask)


@keras.saving.register_keras_serializable("tfxformer")
class CrossAttention(BaseAttention):
    """The decoder's `BaseAttention` over the source: keys and values from ``context``.

    Call arguments:
        x: the decoder's hidden states, ``(batch, target, d_model)``.
        context: the encoder's output, ``(batch, source, d_model)``.
        context_mask: padding mask of the source, ``(batch, source)``.

    Returns:
        ``(batch, target, d_model)``.

    Example:
        >>> import numpy as np
        >>> layer = CrossAttention(num_heads=2, key_dim=8)
        >>> x, context = np.ones((1, 3, 16), "float32"), np.ones((1, 5, 16), "float32")
        >>> tuple(layer(x, context).shape), tuple(layer.last_attn_scores.shape)
        ((1, 3, 16), (1, 2, 3, 5))
    """

    def call(self, x, context, context_mask=None):
        y = self.add_and_norm.before(x)
        y = self.mha(y, context, mask=key_mask(context_mask))
        return self.add_and_norm(x, y)  # (batch, target, d_model)
