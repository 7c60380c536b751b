"""The position-wise feed-forward network (section 3.3)."""

import keras

from tfxformer.layers.base import Layer
from tfxformer.layers.kernels import Projection
from tfxformer.layers.residual import AddAndNorm


@keras.saving.register_keras_serializable("tfxformer")
class FeedForward(Layer):
    """``max(0, x W1 + b1) W2 + b2`` at each position, in its residual connection.

    Args:
        d_model: size of the input and the output.
        dff: size of the hidden layer.
        dropout_rate: dropout of the sublayer's output.
        norm: "post" (the paper's) or "pre".
        activation_dropout: dropout rate of the hidden layer.

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
        **kwargs,
    ):
        super().__init__(locals(), **kwargs)
        policy = self.dtype_policy
        self.hidden_dense = Projection(
            self.settings["dff"], activation="relu", name="hidden", dtype=policy
        )
        self.dropout = keras.layers.Dropout(activation_dropout, dtype=policy)
        self.output_dense = Projection(
            self.settings["d_model"], name="output", dtype=policy
        )
        self.add_and_norm = AddAndNorm(
            dropout_rate, norm, name="add_norm", dtype=policy
        )

    def build(self, x_shape):
        self.hidden_dense.build(x_shape)
        self.output_dense.build((*x_shape[:-1], self.hidden_dense.units))
        self.add_and_norm.build(x_shape)
        self.built = True

    def call(self, x):
        y = self.add_and_norm.before(x)
        y = self.dropout(self.hidden_dense(y))  # (batch, length, dff)
        return self.add_and_norm(x, self.output_dense(y))
