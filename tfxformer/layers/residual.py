"""The parts that every sublayer shares: its config, and Add & Norm (section 3.1)."""

import operator

import keras

from tfxformer.layers.kernels import LayerNorm

SIZES = {"num_layers", "num_decoder_layers", "d_model", "num_heads", "key_dim", "dff"}
SIZES |= {"vocab_size", "input_vocab_size", "target_vocab_size", "max_length"}
# Names in a constructor that are not settings; the embedding is a layer to share.
NO_SETTINGS = {"self", "__class__", "kwargs", "embedding"}
EPSILON = 1e-6  # added to the variance


def settings(arguments):
    """A constructor's ``locals()`` as a config, with sizes as Python integers."""
    found = {name: x for name, x in arguments.items() if name not in NO_SETTINGS}
    for name in SIZES & found.keys():
        if found[name] is not None:
            try:
                found[name] = operator.index(found[name])
            except (TypeError, AttributeError):  # TensorFlow's floats raise the second
                problem = f"{name} must be an integer, not {found[name]!r}"
                raise TypeError(problem) from None
    return found


class Layer(keras.layers.Layer):
    """A Keras layer that passes masks through, with its arguments as its config."""

    def __init__(self, arguments, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.settings = settings(arguments)

    def get_config(self):
        return super().get_config() | self.settings


@keras.saving.register_keras_serializable("tfxformer")
class AddAndNorm(Layer):
    """A residual connection with layer normalisation and dropout.

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

    Example:
        >>> import numpy as np
        >>> x = np.array([[[1.0, 3.0]]], "float32")
        >>> np.asarray(AddAndNorm()(x, 2 * x)).round(3).tolist()  # mean 0, variance 1
        [[[-1.0, 1.0]]]
    """

    def __init__(self, dropout_rate=0.1, norm="post", **kwargs):
        super().__init__(locals(), **kwargs)
        if norm not in ("post", "pre"):
            raise ValueError(f"norm must be 'post' or 'pre', not {norm!r}")
        self.norm = norm
        policy = self.dtype_policy
        self.layernorm = LayerNorm(epsilon=EPSILON, name="norm", dtype=policy)
        self.dropout = keras.layers.Dropout(dropout_rate, dtype=policy)

    def build(self, x_shape):
        self.layernorm.build(x_shape)

    def before(self, x):
        """The sublayer's input: x itself, or x normalised (pre-norm)."""
        return x if self.norm == "post" else self.layernorm(x)

    def call(self, x, y, mask=None):
        x = x + self.dropout(y)
        return self.layernorm(x) if self.norm == "post" else x
