"""Sizes as Python integers, and the base of the layers, which records them."""

import operator

import keras


def as_size(name, value):
    """Returns a size as a Python integer: NumPy's and TensorFlow's are taken, too.

    Args:
        name: the argument's name, for the message.
        value: an integer of any kind.

    Returns:
        An int.

    Raises:
        TypeError: the value is not an integer.

    Example:
        >>> import numpy as np
        >>> as_size("d_model", np.int64(512))
        512
    """
    try:
        return operator.index(value)
    except (TypeError, AttributeError):  # TensorFlow's floats raise the second
        raise TypeError(f"{name} must be an integer, not {value!r}") from None


def head_size(d_model, num_heads):
    """Returns the size of one attention head, ``d_model / num_heads`` (section 3.2.2).

    Args:
        d_model: size of the hidden states.
        num_heads: number of attention heads.

    Returns:
        An int.

    Raises:
        ValueError: ``num_heads`` does not divide ``d_model``.

    Example:
        >>> head_size(512, 8)
        64
    """
    d_model, num_heads = as_size("d_model", d_model), as_size("num_heads", num_heads)
    if d_model % num_heads:
        raise ValueError(
            f"d_model={d_model} is not a multiple of num_heads={num_heads}"
        )
    return d_model // num_heads


class ConfiguredLayer(keras.layers.Layer):
    """A layer whose config is its arguments, as Keras records them.

    Keras records plain values: sizes of any kind become Python's integers.
    """

    def __new__(cls, *args, **kwargs):
        args, kwargs = keras.tree.map_structure(_plain, (args, kwargs))
        return super().__new__(cls, *args, **kwargs)

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True


def _plain(value):
    """An argument as the config holds it."""
    if isinstance(value, keras.DTypePolicy):
        return value.name
    try:
        return value if isinstance(value, bool) else operator.index(value)
    except (TypeError, AttributeError):  # not an integer
        return value
