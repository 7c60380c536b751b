"""The few operations whose fastest form is TensorFlow's own.

`keras.ops` is what layers and decoding are written in. In a graph that decodes one
token at a time these are worth a spelling of their own where TensorFlow runs them: the
seam between the backends, in one place.
"""

import keras
from keras import ops

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
if ON_TENSORFLOW:
    import tensorflow as tf


def add_bias(x, bias):
    """``x + bias``, in a form that the graph joins with the product before it.

    Args:
        x: ``(rows, units)``.
        bias: ``(units,)``.

    Returns:
        ``(rows, units)``.

    Example:
        >>> import numpy as np
        >>> np.asarray(add_bias(np.zeros((1, 2), "float32"), [1.0, 2.0])).tolist()
        [[1.0, 2.0]]
    """
    # BiasAdd, unlike Add, becomes one op with the MatMul before and the ReLU after.
    return tf.nn.bias_add(x, bias) if ON_TENSORFLOW else ops.add(x, bias)


def small_matmul(x, y, transpose_y=False):
    """Many small matrix products, as those of one query with each head's keys.

    Args:
        x: ``(..., m, k)``.
        y: ``(..., k, n)``, or ``(..., n, k)`` with ``transpose_y``.
        transpose_y: multiply with y transposed.

    Returns:
        ``(..., m, n)``.

    Example:
        >>> import numpy as np
        >>> x = np.ones((2, 1, 3), "float32")
        >>> np.asarray(small_matmul(x, x, transpose_y=True)).tolist()
        [[[3.0]], [[3.0]]]
    """
    if ON_TENSORFLOW and x.dtype != tf.float16:  # which it has not on a CPU
        # The version that oneDNN does not take over: its set-up costs 40 us a
        # product on a CPU, twenty times what one query's products themselves take.
        return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=x.dtype, adj_y=transpose_y)
    return ops.matmul(x, ops.swapaxes(y, -1, -2) if transpose_y else y)


def small_softmax(x):
    """Softmax over the last axis, for small tensors.

    Args:
        x: ``(..., n)``.

    Returns:
        The same shape; each row sums to 1.

    Example:
        >>> import numpy as np
        >>> np.asarray(small_softmax(ops.zeros((1, 2)))).tolist()
        [[0.5, 0.5]]
    """
    # Here too oneDNN's set-up, 40 us, outweighs four ops of a microsecond each.
    x = ops.exp(x - ops.max(x, axis=-1, keepdims=True))
    return x / ops.sum(x, axis=-1, keepdims=True)


def take_rows(x, rows):
    """Rows of a tensor, whose numbers are known not to be negative.

    Args:
        x: ``(rows, ...)``.
        rows: an int tensor of any shape.

    Returns:
        ``(*shape of rows, ...)``.

    Example:
        >>> [int(n) for n in take_rows(ops.arange(4), ops.arange(2))]
        [0, 1]
    """
    # `ops.take` counts from the end where a number is negative, at several ops a call.
    return tf.gather(x, rows) if ON_TENSORFLOW else ops.take(x, rows, axis=0)


def unseen(size):
    """A size that shape inference does not take for known.

    Args:
        size: an int scalar.

    Returns:
        The same; tensors made with it may have another size there later.
    """
    if ON_TENSORFLOW:
        return tf.raw_ops.PlaceholderWithDefault(input=size, shape=[])
    return size


def shrinking_while_loop(unfinished, step, state):
    """`keras.ops.while_loop`, of tensors whose first axis may shrink.

    Args:
        unfinished: the state's fields to a boolean: whether to go on.
        step: the state's fields to the next state's.
        state: a tuple of structures of tensors.

    Returns:
        The last state.

    Example:
        >>> x = ops.arange(4)
        >>> (x,) = shrinking_while_loop(
        ...     lambda x: ops.shape(x)[0] > 1, lambda x: (x[1:],), (x,)
        ... )
        >>> [int(n) for n in x]
        [3]
    """
    if not ON_TENSORFLOW or tf.executing_eagerly():
        return ops.while_loop(unfinished, step, state)
    shapes = tf.nest.map_structure(
        lambda x: tf.TensorShape([None, *x.shape[1:]] if x.shape.rank else []), state
    )
    return tf.while_loop(unfinished, step, state, shape_invariants=shapes)


def random_bits(shape, seed):
    """Random 16-bit numbers that the seed alone decides.

    Args:
        shape: a tuple of ints, or a tensor of them.
        seed: int32 ``(2,)``.

    Returns:
        uint16 of that shape.

    Example:
        >>> tuple(random_bits((2, 3), ops.convert_to_tensor([1, 2])).shape)
        (2, 3)
    """
    if not ON_TENSORFLOW:
        import jax

        key = jax.random.wrap_key_data(ops.cast(seed, "uint32"))
        return jax.random.bits(key, shape, "uint16")
    # TensorFlow draws 64 bits for the price of 32, and four numbers are in them.
    size = tf.reduce_prod(shape)
    drawn = tf.random.stateless_uniform(
        [-(-size // 4)], seed, minval=None, maxval=None, dtype=tf.uint64
    )
    drawn = tf.reshape(tf.bitcast(drawn, tf.uint16), [-1])
    return tf.reshape(drawn[:size], shape)


def scan(step, carry, inputs):
    """A loop over the first axis that carries values on and stacks others.

    Args:
        step: ``(carry, one of inputs)`` to ``(carry, output)``.
        carry: a tuple of tensors.
        inputs: a tuple of tensors with the same first axis.

    Returns:
        The last carry, and the outputs stacked.

    Example:
        >>> import numpy as np
        >>> (total,), doubled = scan(
        ...     lambda carry, x: ((carry[0] + x[0],), 2 * x[0]),
        ...     (np.float32(0),), (np.array([1, 2, 3], "float32"),),
        ... )
        >>> float(total), np.asarray(doubled).tolist()
        (6.0, [2.0, 4.0, 6.0])
    """
    if not ON_TENSORFLOW:
        return ops.scan(step, carry, inputs)
    # On TensorFlow Keras's own wants outputs of the carry's shapes.
    inputs = tuple(tf.convert_to_tensor(x) for x in inputs)
    carry = tuple(tf.convert_to_tensor(x) for x in carry)
    count = tf.shape(inputs[0])[0]

    def body(i, carry, outputs):
        carry, output = step(carry, tuple(x[i] for x in inputs))
        return i + 1, carry, outputs.write(i, output)

    _, carry, outputs = tf.while_loop(
        lambda i, *_: i < count,
        body,
        (0, carry, tf.TensorArray(tf.float32, size=count)),
        parallel_iterations=1,
    )
    return carry, outputs.stack()
