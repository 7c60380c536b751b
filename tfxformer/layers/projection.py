"""A linear map of every position."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("tfxformer")
class Projection(keras.layers.Dense):
    """``activation(x W + b)``, as one matrix product over all positions of the batch.

    It is Keras's `Dense`, whose arguments it takes, but for speed: where lengths are
    unknown, `Dense` makes some twenty small ops of a three-dimensional input
    (``tensordot``), which weigh in a graph that decodes one token at a time.

    Call arguments:
        x: ``(batch, length, depth)``, with at least one position.

    Returns:
        ``(batch, length, units)``.

    Example:
        >>> import numpy as np
        >>> tuple(Projection(4)(np.ones((2, 3, 8), "float32")).shape)
        (2, 3, 4)
    """

    def call(self, x):
        y = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), self.kernel)
        if self.bias is not None:
            y = ops.add(y, self.bias)
        y = ops.reshape(y, (-1, ops.shape(x)[1], self.units))
        return y if self.activation is None else self.activation(y)
