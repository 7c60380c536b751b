"""Dropout whose draws a training step can fix, so that a step can be done again."""

import contextlib
import contextvars
import random

import keras
import numpy as np
from keras import ops

from tfxformer.layers.kernels import random_bits

LEVELS = 2**16

_step_seed = contextvars.ContextVar("step_seed", default=None)


@contextlib.contextmanager
def drawn_from(seed):
    """Within it, dropout draws what this seed and each layer's own decide.

    So a resumed run drops what the run would have dropped, and no random state has to
    be kept anywhere.

    Args:
        seed: an int32 scalar, a tensor too: another one for each step.

    Yields:
        None.

    Example:
        See `Dropout`.

        >>> with drawn_from(7):
        ...     x = Dropout(0.5, seed=1)(ops.ones((1, 1000)), training=True)
        >>> bool(400 < ops.sum(ops.cast(x == 0, "int32")) < 600)
        True
    """
    token = _step_seed.set(seed)
    try:
        yield
    finally:
        _step_seed.reset(token)


@keras.saving.register_keras_serializable("tfxformer")
class Dropout(keras.layers.Dropout):
    """Keras's `Dropout` (Srivastava et al. 2014), of which a step can fix the draws.

    Outside of `drawn_from` it is Keras's own, with a state that moves on.

    Args:
        rate: the share that is dropped in training.
        seed: the layer's own; by default drawn from Python's `random`.

    Call arguments:
        inputs: a tensor of any shape.
        training: whether to drop anything.

    Returns:
        A tensor of the same shape and the same mean.

    Example:
        >>> import numpy as np
        >>> layer, x = Dropout(0.5, seed=1), np.ones((2, 3), "float32")
        >>> with drawn_from(7):
        ...     once, again = layer(x, training=True), layer(x, training=True)
        >>> bool(np.array_equal(once, again))
        True
    """

    def __init__(self, rate, seed=None, **kwargs):
        if seed is None:
            seed = random.randint(1, 10**9)  # what Keras would draw, but known
        super().__init__(rate, seed=seed, **kwargs)

    def call(self, inputs, training=False):
        step_seed = _step_seed.get()
        if step_seed is None or not training or not self.rate:
            return super().call(inputs, training=training)
        seed = ops.stack([ops.cast(x, "int32") for x in (self.seed, step_seed)])
        # 16 bits decide: a rate of 0.1 is 0.10001, which the scale makes up for.
        dropped = min(round(self.rate * LEVELS), LEVELS - 1)
        kept = random_bits(ops.shape(inputs), seed) >= np.uint16(dropped)
        scale = ops.cast(LEVELS / (LEVELS - dropped), inputs.dtype)
        return inputs * (ops.cast(kept, inputs.dtype) * scale)
