"""Sizes of any integer type: Python's, NumPy's, a TensorFlow scalar."""

import operator


def integers(**sizes):
    """Python integers, which Keras insists on and a config can hold.

    Args:
        sizes: integers of any type, by their names.

    Returns:
        The same as a dict of Python integers.

    Raises:
        TypeError: for what is no integer, such as a float or a string.

    Example:
        >>> import numpy as np
        >>> integers(d_model=np.int32(512), num_heads=8)
        {'d_model': 512, 'num_heads': 8}
    """
    found = {}
    for name, size in sizes.items():
        try:
            found[name] = operator.index(size)
        except (TypeError, AttributeError):  # the latter for TensorFlow's floats
            raise TypeError(f"{name} must be an integer, not {size!r}") from None
    return found
