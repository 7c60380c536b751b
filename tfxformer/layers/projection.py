"""A linear map of every position."""

import keras
from keras import ops

from tfxformer.layers.kernels import add_bias


@keras.saving.register_keras_serializable("tfxformer")
class Projection(keras.layers.Dense):
    """``activation(x W + b)``, as one matrix product over all positions of the batch.

    It is Keras's `Dense`, whose arguments it takes, but for speed: where lengths are
    unknown, `Dense` makes some twenty small ops of a three-dimensional input
    (``tensordot``), which weigh in a graph that decodes one token at a time.

    Call arguments:
        x: ``(batch, length, depth)``, with at least one position, or ``(rows, depth)``.

    Returns:
        ``(batch, length, units)``, or ``(rows, units)``.

    Example:
        >>> import numpy as np
        >>> tuple(Projection(4)(np.ones((2, 3, 8), "float32")).shape)
        (2, 3, 4)
    """

    def call(self, x):
        y = x if len(x.shape) == 2 else ops.reshape(x, (-1, x.shape[-1]))
        y = ops.matmul(y, self.kernel)
        if self.bias is not None:
            y = add_bias(y, self.bias)
        if self.activation is not None:
            y = self.activation(y)
        if len(x.shape) == 2:
            return y
        return ops.reshape(y, (-1, ops.shape(x)[1], self.units))
