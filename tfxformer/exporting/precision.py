"""Weights in fewer bits: stored so in an export, widened once when it is loaded.

What is computed stays float32, so that an answer takes no longer than with weights
that were never narrowed: on a CPU, products in fewer bits do not pay for one token at
a time (`benchmarks/precision.py` has the figures). What pays is the size.
"""

import functools
import hashlib

import keras
import tensorflow as tf

from tfxformer.errors import UserError

# int8 has a scale for each row of a matrix: for an embedding that is each piece.
PRECISIONS = ("float32", "float16", "int8")
INT8_LARGEST = 127


def check_precision(precision):
    """Refuses a precision that there is not.

    Args:
        precision: a string.

    Raises:
        UserError: naming it, and those that there are.

    Example:
        >>> check_precision("float8")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: precision 'float8': there are float32, ...
    """
    if precision not in PRECISIONS:
        raise UserError(
            f"precision {precision!r}: there are {', '.join(PRECISIONS[:-1])} and "
            f"{PRECISIONS[-1]}"
        )


def round_weights(transformer, precision):
    """Rounds a model's matrices to the values that an export of a precision has.

    Args:
        transformer: a `Transformer`; its weights are changed.
        precision: one of `PRECISIONS`; float32 and None change nothing.

    Example:
        >>> from tfxformer import Transformer
        >>> transformer = Transformer(
        ...     num_layers=1, d_model=16, num_heads=2, dff=32,
        ...     input_vocab_size=90, target_vocab_size=90,
        ... )
        >>> transformer.build()
        >>> round_weights(transformer, "float16")
        >>> weights = transformer.output_weights()[0].numpy()
        >>> bool((weights == weights.astype("float16")).all())
        True
    """
    if precision not in ("float32", None):
        NarrowWeights(transformer, precision)


class NarrowWeights:
    """A model's matrices as an export stores them, and widened as it uses them.

    Biases and norms, a percent of the weights, stay as they are. The model's own
    matrices are rounded to the same values, so that Python answers as the export
    does.

    Args:
        transformer: a `Transformer`; its weights are changed.
        precision: one of `PRECISIONS`, but float32.

    Attributes:
        matrices: the model's Keras variables.
        widened: for each, what an export must track.

    Example:
        >>> from tfxformer import Transformer
        >>> transformer = Transformer(
        ...     num_layers=1, d_model=16, num_heads=2, dff=32,
        ...     input_vocab_size=90, target_vocab_size=90,
        ... )
        >>> transformer.build()
        >>> weights = NarrowWeights(transformer, "float16")
        >>> len(weights.matrices) == len(weights.widened)
        True
    """

    def __init__(self, transformer, precision):
        self.matrices = [x for x in transformer.weights if len(x.shape) > 1]
        self.widened = [_Widened(_narrow(x.value, precision)) for x in self.matrices]
        for matrix, widened in zip(self.matrices, self.widened, strict=True):
            matrix.assign(widened.value())

    def used_by(self, function):
        """A function that reads the widened weights in place of the model's.

        Args:
            function: a Python function of tensors that calls the model.

        Returns:
            The function to export.
        """

        @functools.wraps(function)  # its arguments are named as the inputs are
        def with_widened(*tensors):
            values = [widened.value() for widened in self.widened]
            pairs = zip(self.matrices, values, strict=True)
            with keras.StatelessScope(state_mapping=pairs):
                return function(*tensors)

        return with_widened


class _Widened(tf.saved_model.experimental.TrackableResource):
    """A matrix in float32 that no file holds: loading makes it of what is stored.

    Args:
        parts: what `_narrow` gave.
    """

    def __init__(self, parts):
        super().__init__()
        self.parts = parts
        for i, part in enumerate(parts):
            self._track_trackable(part, f"part_{i}")  # or no file would hold it
        # Two models in one process must not share a variable, unless it is the same.
        digest = hashlib.sha256()
        for part in parts:
            digest.update(f"{part.dtype} {part.shape}".encode())
            digest.update(part.numpy().tobytes())
        self.name = f"widened-{digest.hexdigest()}"
        self._initialize()

    def _create_resource(self):
        return tf.raw_ops.VarHandleOp(
            dtype=tf.float32, shape=self.parts[0].shape, shared_name=self.name
        )

    def _initialize(self):
        """What a SavedModel's loader runs when it has restored the variables."""
        value, *scale = (tf.cast(part, tf.float32) for part in self.parts)
        if scale:
            value = value * scale[0]
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=value)

    def value(self):
        """The matrix, float32."""
        value = tf.raw_ops.ReadVariableOp(
            resource=self.resource_handle, dtype=tf.float32
        )
        return tf.ensure_shape(value, self.parts[0].shape)


def _narrow(matrix, precision):
    """The variables that store a matrix: its values, for int8 its rows' scales too."""
    if precision != "int8":
        return [tf.Variable(tf.cast(matrix, precision), trainable=False)]
    largest = tf.reduce_max(tf.abs(matrix), axis=-1, keepdims=True)
    scale = tf.maximum(largest, 1e-30) / INT8_LARGEST  # a row of zeros stays one
    values = tf.cast(tf.round(matrix / scale), tf.int8)
    return [tf.Variable(x, trainable=False) for x in (values, scale)]
