"""Attention (section 3.2): what each position gathers from the others.

Queries, keys and values always have the same roles: **keys and values come from
one sequence, queries may come from another**. In cross-attention the queries come
from the decoder, the keys and values from the encoder's output.
"""

import keras
from keras import ops

from tfxformer.layers.dropout import Dropout
from tfxformer.layers.masking import key_mask, look_ahead_mask
from tfxformer.layers.projection import Projection
from tfxformer.layers.residual import AddAndNorm
from tfxformer.layers.sizes import integers

# Far below any score, yet finite in half precision, so that a row with everything
# masked gives no NaN.
MASKED = {"float64": -1e9, "float32": -1e9, "bfloat16": -3e4, "float16": -3e4}
# Between (batch, heads, length, key_dim) and (batch, length, heads, key_dim).
SWAPPED = (0, 2, 1, 3)


def scaled_dot_product_attention(query, key, value, mask=None, dropout=None):
    """``softmax(Q K^T / sqrt(d_k)) V`` (section 3.2.1).

    Args:
        query: ``(batch, heads, target, key_dim)``.
        key: ``(batch, heads, source, key_dim)``.
        value: ``(batch, heads, source, value_dim)``.
        mask: boolean, broadcasts to ``(batch, heads, target, source)``; True means
            "may be looked at". None hides nothing.
        dropout: a Keras dropout layer for the weights, or None.

    Returns:
        The gathered values ``(batch, heads, target, value_dim)``, and the weights
        ``(batch, heads, target, source)``: each row sums to 1, what is masked is
        exactly 0, and a row that may look at nothing at all is all 0.

    Example:
        >>> import numpy as np
        >>> x = np.ones((1, 1, 2, 4), "float32")
        >>> output, weights = scaled_dot_product_attention(x, x, x)
        >>> np.asarray(weights).tolist()
        [[[[0.5, 0.5], [0.5, 0.5]]]]
    """
    # Scaling the query, the smallest of the tensors, is the cheapest place.
    query = query * ops.cast(query.shape[-1] ** -0.5, query.dtype)
    scores = ops.matmul(query, ops.swapaxes(key, -1, -2))
    if mask is None:
        weights = _softmax(scores)  # (batch, heads, target, source)
    else:
        # Adding is several times faster on a CPU than choosing between two tensors
        # of the scores' shape.
        seen = ops.cast(mask, scores.dtype)
        hidden = (1 - seen) * MASKED[keras.backend.standardize_dtype(scores.dtype)]
        weights = _softmax(scores + hidden)
        # Only where a whole row is masked does this change anything.
        weights = weights * seen
    dropped = weights if dropout is None else dropout(weights)
    return ops.matmul(dropped, value), weights


def _softmax(scores):
    # Keras warns of a softmax over one element, which a first token's is.
    return ops.ones_like(scores) if scores.shape[-1] == 1 else ops.softmax(scores)


@keras.saving.register_keras_serializable("tfxformer")
class MultiHeadAttention(keras.layers.Layer):
    """Several attentions side by side, each on its own projections (section 3.2.2).

    Args:
        num_heads: number of heads.
        key_dim: size of one head; the paper's ``d_model / num_heads``.
        dropout: share of the attention weights dropped in training.

    Call arguments:
        query: ``(batch, target, d_model)``.
        value: ``(batch, source, d_model)``; keys and values are made from it.
        mask: boolean, broadcasts to ``(batch, heads, target, source)``.
        value_mask: boolean padding mask ``(batch, source)``, used where ``mask`` is
            not given; without it the Keras mask of value is.
        return_attention_scores: also return the weights.

    Returns:
        ``(batch, target, d_model)``, and with ``return_attention_scores`` the
        weights ``(batch, heads, target, source)`` as well.

    Example:
        >>> import numpy as np
        >>> x = np.ones((2, 5, 16), "float32")
        >>> layer = MultiHeadAttention(num_heads=4, key_dim=4)
        >>> tuple(layer(x, x).shape)
        (2, 5, 16)
    """

    def __init__(self, num_heads, key_dim, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        sizes = integers(num_heads=num_heads, key_dim=key_dim)
        self.num_heads, self.key_dim = sizes.values()
        self.dropout_rate = dropout
        width = self.num_heads * self.key_dim
        policy = self.dtype_policy
        self.query_dense = Projection(width, name="query", dtype=policy)
        self.key_dense = Projection(width, name="key", dtype=policy)
        self.value_dense = Projection(width, name="value", dtype=policy)
        self.dropout = Dropout(dropout, dtype=policy)

    def build(self, query_shape, value_shape):
        self.output_dense = Projection(
            query_shape[-1], name="output", dtype=self.dtype_policy
        )
        self.query_dense.build(query_shape)
        self.key_dense.build(value_shape)
        self.value_dense.build(value_shape)
        self.output_dense.build((None, None, self.num_heads * self.key_dim))
        self.built = True

    def compute_mask(self, query, previous_mask=None):
        # The output's positions are the query's; `mask` says nothing of them.
        return getattr(query, "_keras_mask", None)

    def call(
        self,
        query,
        value,
        mask=None,
        value_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        if mask is None:
            mask = key_mask(value_mask)
        query = self._split(self.query_dense(query))
        key, value = self.project(value)
        x, weights = scaled_dot_product_attention(query, key, value, mask, self.dropout)
        x = ops.transpose(x, SWAPPED)  # (batch, target, heads, key_dim)
        x = ops.reshape(x, (-1, ops.shape(x)[1], self.num_heads * self.key_dim))
        output = self.output_dense(x)
        return (output, weights) if return_attention_scores else output

    def project(self, value):
        """The keys and values of a sequence, in heads.

        Args:
            value: ``(batch, source, d_model)``.

        Returns:
            Keys and values, each ``(batch, heads, source, key_dim)``.
        """
        return self._split(self.key_dense(value)), self._split(self.value_dense(value))

    def _split(self, x):
        x = ops.reshape(x, (-1, ops.shape(x)[1], self.num_heads, self.key_dim))
        return ops.transpose(x, SWAPPED)  # (batch, heads, length, key_dim)

    def get_config(self):
        return super().get_config() | {
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "dropout": self.dropout_rate,
        }


class BaseAttention(keras.layers.Layer):
    """Multi-head attention in its residual connection; see the three kinds below.

    Args:
        num_heads: number of heads.
        key_dim: size of one head.
        dropout: dropout rate of the sublayer's output.
        norm: "post" (the paper's) or "pre".
        attention_dropout: dropout rate of the weights; None for ``dropout``.

    Example:
        >>> BaseAttention(num_heads=2, key_dim=8, norm="pre").get_config()["norm"]
        'pre'
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
        self.supports_masking = True
        policy = self.dtype_policy
        if attention_dropout is None:
            attention_dropout = dropout
        self.mha = MultiHeadAttention(
            num_heads, key_dim, attention_dropout, name="mha", dtype=policy
        )
        self.add_and_norm = AddAndNorm(dropout, norm, name="add_norm", dtype=policy)

    def build(self, x_shape):
        self.mha.build(x_shape, x_shape)
        self.add_and_norm.build(x_shape)
        self.built = True

    def get_config(self):
        return super().get_config() | {
            "num_heads": self.mha.num_heads,
            "key_dim": self.mha.key_dim,
            "dropout": self.add_and_norm.dropout_rate,
            "norm": self.add_and_norm.norm,
            "attention_dropout": self.mha.dropout_rate,
        }


@keras.saving.register_keras_serializable("tfxformer")
class GlobalSelfAttention(BaseAttention):
    """The encoder's attention: each position looks at all of its own sequence.

    It is made as `BaseAttention` is.

    Call arguments:
        x: ``(batch, length, d_model)``.
        mask: boolean padding mask ``(batch, length)``; without it the Keras mask
            of x is used.

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
        y = self.mha(y, y, mask=key_mask(mask))
        return self.add_and_norm(x, y, mask=mask)


@keras.saving.register_keras_serializable("tfxformer")
class CausalSelfAttention(BaseAttention):
    """The decoder's attention over what has been written so far.

    It is made as `BaseAttention` is.

    Call arguments:
        x: ``(batch, length, d_model)``.
        mask: boolean padding mask ``(batch, length)``; without it the Keras mask
            of x is used. The look-ahead mask is always applied.

    Returns:
        ``(batch, length, d_model)``.

    Example:
        >>> import numpy as np
        >>> layer = CausalSelfAttention(num_heads=2, key_dim=8)
        >>> tuple(layer(np.ones((1, 3, 16), "float32")).shape)
        (1, 3, 16)
    """

    def call(self, x, mask=None):
        visible = look_ahead_mask(ops.shape(x)[1])  # (1, 1, length, length)
        if mask is not None:
            visible = ops.logical_and(visible, key_mask(mask))
        y = self.add_and_norm.before(x)
        y = self.mha(y, y, mask=visible)
        return self.add_and_norm(x, y, mask=mask)


@keras.saving.register_keras_serializable("tfxformer")
class CrossAttention(BaseAttention):
    """The decoder's attention over the source: queries from x, the rest from context.

    It is made as `BaseAttention` is.

    Call arguments:
        x: the decoder's positions, ``(batch, target, d_model)``.
        context: the encoder's output, ``(batch, source, d_model)``.
        context_mask: boolean padding mask of the source, ``(batch, source)``;
            without it the Keras mask of context is used.

    Returns:
        ``(batch, target, d_model)``.

    After a call that is not traced into a graph, ``last_attn_scores`` holds the
    weights, ``(batch, heads, target, source)``.

    Example:
        >>> import numpy as np
        >>> layer = CrossAttention(num_heads=2, key_dim=8)
        >>> x, context = np.ones((1, 3, 16), "float32"), np.ones((1, 5, 16), "float32")
        >>> tuple(layer(x, context).shape), tuple(layer.last_attn_scores.shape)
        ((1, 3, 16), (1, 2, 3, 5))
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.last_attn_scores = None

    def build(self, x_shape, context_shape):
        self.mha.build(x_shape, context_shape)
        self.add_and_norm.build(x_shape)
        self.built = True

    def call(self, x, context, context_mask=None):
        y = self.add_and_norm.before(x)
        mask = key_mask(context_mask)
        if _is_traced(y):
            return self.add_and_norm(x, self.mha(y, context, mask=mask))
        y, weights = self.mha(y, context, mask=mask, return_attention_scores=True)
        if not _is_traced(weights):
            self.last_attn_scores = weights
        return self.add_and_norm(x, y)


def _is_traced(x):
    """Whether x is only a name in a graph: it must not be kept, and has no value."""
    if keras.backend.backend() == "jax":
        import jax

        return isinstance(x, jax.core.Tracer)
    return not hasattr(x, "numpy")
