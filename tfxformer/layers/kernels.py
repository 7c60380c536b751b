"""Operations that are faster in TensorFlow's own ops than in `keras.ops`."""

import keras
from keras import ops

FEW_ROWS = 8
EPSILON = 1e-6  # what the model's layer normalizations add to the variance
ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
if ON_TENSORFLOW:
    import tensorflow as tf


def add_bias(x, bias):
    """Adds a bias ``(units,)`` to ``(rows, units)``."""
    # TensorFlow fuses BiasAdd, unlike Add, with the MatMul before and the ReLU after.
    return tf.nn.bias_add(x, bias) if ON_TENSORFLOW else ops.add(x, bias)


def few_rows_matmul(x, y, transpose_y=False):
    """Many matrix products, faster where each x is known to have only a few rows."""
    if ON_TENSORFLOW and _has_few_rows(x):
        # oneDNN does not replace this version. Its set-up costs 40 us a product on a
        # CPU, twenty times as much as the products of one query. This version has no
        # float16; oneDNN's has an empty result on CPUs with AVX512-FP16.
        wide = tf.float32 if x.dtype == tf.float16 else x.dtype
        product = tf.raw_ops.BatchMatMulV3(
            x=tf.cast(x, wide), y=tf.cast(y, wide), Tout=wide, adj_y=transpose_y
        )
        return tf.cast(product, x.dtype)
    return ops.matmul(x, ops.swapaxes(y, -1, -2) if transpose_y else y)


def few_rows_softmax(x):
    """Softmax over the last axis, faster where x is known to have only a few rows."""
    if _has_few_rows(x):
        # oneDNN's set-up takes 40 us here, too; these four ops take 1 us each.
        x = ops.exp(x - ops.max(x, axis=-1, keepdims=True))
        return x / ops.sum(x, axis=-1, keepdims=True)
    # Keras warns about a softmax over one element, as for a source of one token.
    return ops.ones_like(x) if x.shape[-1] == 1 else ops.softmax(x)


def _has_few_rows(x):
    """Whether this is a decoding step: one position, or the hypotheses of a beam."""
    rows, empty = x.shape[-2], 0 in x.shape  # Keras fails on the maximum of no values
    return rows is not None and rows <= FEW_ROWS and not empty


def take_rows(x, rows):
    """Rows of a tensor by their numbers, none negative."""
    # `ops.take` supports negative numbers, at the cost of several ops a call.
    return tf.gather(x, rows) if ON_TENSORFLOW else ops.take(x, rows, axis=0)


def unseen(size):
    """A size hidden from shape inference, so that it may change in a loop."""
    if ON_TENSORFLOW:
        return tf.raw_ops.PlaceholderWithDefault(input=size, shape=[])
    return size


def shrinking_while_loop(unfinished, step, state):
    """`keras.ops.while_loop` over tensors whose shapes may change.

    The first axis may shrink. Others may grow if their size is `unseen`.
    """
    if not ON_TENSORFLOW or tf.executing_eagerly():
        while unfinished(*state):
            state = step(*state)
        return state
    shapes = tf.nest.map_structure(
        lambda x: tf.TensorShape([None, *x.shape[1:]] if x.shape.rank else []), state
    )
    return tf.while_loop(unfinished, step, state, shape_invariants=shapes)


class Projection(keras.layers.Dense):
    """``activation(x W + b)``, as one matrix product over all positions of the batch.

    It is Keras's `Dense` for ``(batch, length, depth)`` with at least one position, or
    ``(rows, depth)``. For unknown lengths, `Dense` creates some twenty small ops
    (``tensordot``), which take 8% of a training step.
    """

    def call(self, x):
        y = x if len(x.shape) == 2 else ops.reshape(x, (-1, x.shape[-1]))
        y = self.activation(add_bias(ops.matmul(y, self.kernel), self.bias))
        if len(x.shape) == 2:
            return y
        return ops.reshape(y, (-1, ops.shape(x)[1], self.units))


class LayerNorm(keras.layers.LayerNormalization):
    """Layer normalization over the last axis (Ba et al. 2016), faster in training.

    It has the arguments of Keras's `LayerNormalization` and computes the gradient in
    closed form. Automatic differentiation would read the same memory six times, 11% of
    a training step. For another axis, or without gain or bias, Keras's own code runs.
    """

    def call(self, inputs, training=None):
        last_axis = self.axis in ([-1], [len(inputs.shape) - 1])
        if not last_axis or self.gamma is None or self.beta is None:
            return super().call(inputs)
        given = keras.backend.standardize_dtype(inputs.dtype)
        wide = keras.backend.result_type(given, "float32")  # accumulate in float32

        def normalize(x):
            x = ops.cast(x, wide)
            x = x - ops.mean(x, axis=-1, keepdims=True)
            variance = ops.mean(ops.square(x), axis=-1, keepdims=True)
            scale = ops.rsqrt(variance + self.epsilon)
            x = x * scale

            def gradient(upstream):
                # The parts of the gradient through the mean and the variance.
                by_mean = ops.mean(upstream, axis=-1, keepdims=True)
                by_scale = ops.mean(upstream * x, axis=-1, keepdims=True)
                return ops.cast((upstream - by_mean - x * by_scale) * scale, given)

            return x, gradient

        x = ops.custom_gradient(normalize)(inputs) if training else normalize(inputs)[0]
        gamma, beta = (ops.cast(weight, wide) for weight in (self.gamma, self.beta))
        return ops.cast(x * gamma + beta, given)
