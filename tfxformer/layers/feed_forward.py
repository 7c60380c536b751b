"""The position-wise feed-forward network (section 3.3)."""

import keras

from tfxformer.layers.add_and_norm import AddAndNorm
from tfxformer.layers.kernels import Projection
from tfxformer.layers.sizes import ConfiguredLayer, as_size


@keras.saving.register_keras_serializable("tfxformer")
class FeedForward(ConfiguredLayer):
    """``max(0, x W1 + b1) W2 + b2`` at each position (section 3.3), with Add & Norm.

    Args:
        d_model: size of the input and the output.
        dff: size of the hidden layer.
        dropout_rate: dropout of the output (section 5.4).
        norm: "post" or "pre"; see `AddAndNorm`.
        activation_dropout: dropout rate of the hidden layer.
        activation: "relu" (the paper's), or "swish".

    Call arguments:
        x: ``(batch, length, d_model)``.

    Returns:
        ``(batch, length, d_model)``.

    Raises:
        TypeError: a size is not an integer.

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
        super().__init__(**kwargs)
        self.d_model = as_size("d_model", d_model)
        self.dff = as_size("dff", dff)
        self.hidden_dense = Projection(
            self.dff, activation=activation, name="hidden", dtype=self.dtype_policy
        )
        self.dropout = keras.layers.Dropout(activation_dropout, dtype=self.dtype_policy)
        self.output_dense = Projection(
            self.d_model, name="output", dtype=self.dtype_policy
        )
        self.add_and_norm = AddAndNorm(
            dropout_rate=dropout_rate,
            norm=norm,
            name="add_norm",
            dtype=self.dtype_policy,
        )

    def build(self, x_shape):
        self.hidden_dense.build(x_shape)
        self.output_dense.build((*x_shape[:-1], self.dff))
        self.add_and_norm.build(x_shape)

    def call(self, x):
        y = self.add_and_norm.before(x)
        y = self.dropout(self.hidden_dense(y))  # (batch, length, dff)
        y = self.output_dense(y)  # (batch, length, d_model)
        return self.add_and_norm(x, y)
