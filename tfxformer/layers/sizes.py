"""Sizes of any integer type: Python's, NumPy's, a TensorFlow scalar."""

import operator

SIZES = {
    "num_layers",
    "num_decoder_layers",
    "d_model",
    "num_heads",
    "key_dim",
    "dff",
    "vocab_size",
    "input_vocab_size",
    "target_vocab_size",
    "max_length",
}
# Not settings: what Python adds to them, and a layer to share.
NO_SETTINGS = {"self", "__class__", "kwargs", "embedding"}


def settings(arguments):
    """A layer's own settings, as its config holds them.

    Args:
        arguments: ``locals()``, taken before a constructor has other names.

    Returns:
        A dict of the constructor's arguments by name. Sizes are Python integers,
        which Keras insists on and JSON can hold; None stays None.

    Raises:
        TypeError: for a size that is no integer, such as a float or a string.

    Example:
        >>> import numpy as np
        >>> settings({"d_model": np.int32(512), "norm": "pre"})
        {'d_model': 512, 'norm': 'pre'}
    """
    found = {name: x for name, x in arguments.items() if name not in NO_SETTINGS}
    for name in SIZES & found.keys():
        if found[name] is not None:
            try:
                found[name] = operator.index(found[name])
            except (TypeError, AttributeError):  # the latter for TensorFlow's floats
                problem = f"{name} must be an integer, not {found[name]!r}"
                raise TypeError(problem) from None
    return found
