"""Add & Norm: the residual connection around each sublayer (section 3.1)."""

import keras

from tfxformer.layers.kernels import EPSILON, LayerNorm
from tfxformer.layers.sizes import ConfiguredLayer


@keras.saving.register_keras_serializable("tfxformer")
class AddAndNorm(ConfiguredLayer):
    """A residual connection with layer normalization and dropout.

    The paper uses post-norm: ``LayerNorm(x + Dropout(Sublayer(x)))``. Pre-norm trains
    deep stacks more steadily: ``x + Dropout(Sublayer(LayerNorm(x)))``. Each sublayer
    has two calls around it::

        y = sublayer(add_and_norm.before(x))
        x = add_and_norm(x, y)

    Args:
        dropout_rate: dropout of the sublayer's output (section 5.4).
        norm: "post" or "pre".

    Call arguments:
        x: the sublayer's input, ``(batch, length, d_model)``.
        y: the sublayer's output, of the same shape.
        mask: the padding mask ``(batch, length)`` that the result carries.

    Returns:
        ``(batch, length, d_model)``.

    Raises:
        ValueError: ``norm`` is neither "post" nor "pre".

    Example:
        >>> import numpy as np
        >>> x = np.array([[[1.0, 3.0]]], "float32")
        >>> np.asarray(AddAndNorm()(x, 2 * x)).round(3).tolist()  # mean 0, variance 1
        [[[-1.0, 1.0]]]
    """

    def __init__(self, dropout_rate=0.1, norm="post", **kwargs):
        super().__init__(**kwargs)
        if norm not in ("post", "pre"):
            raise ValueError(f"norm must be 'post' or 'pre', not {norm!r}")
        self.norm = norm
        self.layernorm = LayerNorm(
            epsilon=EPSILON, name="norm", dtype=self.dtype_policy
        )
        self.dropout = keras.layers.Dropout(dropout_rate, dtype=self.dtype_policy)

    def build(self, x_shape):
        self.layernorm.build(x_shape)

    def before(self, x):
        """The sublayer's input: x itself, or x normalized (pre-norm)."""
        return x if self.norm == "post" else self.layernorm(x)

    def call(self, x, y, mask=None):
        x = x + self.dropout(y)
        return self.layernorm(x) if self.norm == "post" else x
