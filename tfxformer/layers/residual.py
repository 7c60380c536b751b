"""Add & Norm: the residual connection around every sublayer (section 3.1)."""

import keras

from tfxformer.layers.base import Layer
from tfxformer.layers.kernels import LayerNorm

NORMS = ("post", "pre")
EPSILON = 1e-6  # added to the variance


@keras.saving.register_keras_serializable("tfxformer")
class AddAndNorm(Layer):
    """A residual connection with layer normalisation and dropout.

    Post-norm is the paper's: ``LayerNorm(x + Dropout(Sublayer(x)))``. Pre-norm is
    the modern variant, steadier in deep stacks:
    ``x + Dropout(Sublayer(LayerNorm(x)))``. So a sublayer is wrapped in two calls::

        y = sublayer(add_and_norm.before(x))
        x = add_and_norm(x, y)

    Args:
        dropout_rate: share of the sublayer's output that is dropped in training
            (section 5.4).
        norm: "post" or "pre".

    Call arguments:
        x: the sublayer's own input, ``(batch, length, d_model)``.
        y: the sublayer's output, of the same shape.
        mask: the padding mask ``(batch, length)`` that the result carries on.

    Returns:
        Tensor ``(batch, length, d_model)``.

    Example:
        >>> import numpy as np
        >>> x = np.array([[[1.0, 3.0]]], "float32")
        >>> np.asarray(AddAndNorm()(x, 2 * x)).round(3).tolist()  # mean 0, variance 1
        [[[-1.0, 1.0]]]
    """

    def __init__(self, dropout_rate=0.1, norm="post", **kwargs):
        super().__init__(locals(), **kwargs)
        if norm not in NORMS:
            raise ValueError(f"norm must be 'post' or 'pre', not {norm!r}")
        self.norm = norm
        policy = self.dtype_policy
        self.layernorm = LayerNorm(epsilon=EPSILON, name="norm", dtype=policy)
        self.dropout = keras.layers.Dropout(dropout_rate, dtype=policy)

    def build(self, x_shape, y_shape=None):
        self.layernorm.build(x_shape)
        self.built = True

    def before(self, x):
        """What the sublayer reads: x itself, or x normalised (pre-norm).

        Args:
            x: ``(batch, length, d_model)``.

        Returns:
            A tensor of the same shape.
        """
        return x if self.norm == "post" else self.layernorm(x)

    def call(self, x, y, mask=None):
        x = x + self.dropout(y)
        return self.layernorm(x) if self.norm == "post" else x
