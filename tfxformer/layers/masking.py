"""Masks: the positions that attention may use.

A mask is boolean and True where attention is allowed. All masks broadcast to the shape
of the attention scores, ``(batch, heads, target, source)``.
"""

import keras
from keras import ops

from tfxformer.special_tokens import PAD_ID


def padding_mask(ids):
    """Hides padding.

    Args:
        ids: integer tensor ``(batch, length)``; 0 is padding.

    Returns:
        Boolean tensor ``(batch, length)``, True at real tokens.

    Example:
        >>> import numpy as np
        >>> np.asarray(padding_mask(np.array([[5, 9, 0]]))).tolist()
        [[True, True, False]]
    """
    return ops.not_equal(ids, PAD_ID)


def look_ahead_mask(length):
    """Hides the future: position t sees positions 0 to t (section 3.2.3).

    Args:
        length: the number of positions, an int or a scalar tensor.

    Returns:
        Boolean tensor ``(1, 1, length, length)``, its lower triangle True.

    Example:
        >>> import numpy as np
        >>> np.asarray(look_ahead_mask(3))[0, 0].astype(int).tolist()
        [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    position = ops.arange(length)
    return (position[:, None] >= position[None, :])[None, None]


def key_mask(mask):
    """Reshapes a padding mask to hide keys from every head and query.

    Args:
        mask: boolean ``(batch, source)``, or None to hide nothing.

    Returns:
        Boolean ``(batch, 1, 1, source)``, or None.

    Example:
        >>> import numpy as np
        >>> tuple(key_mask(np.array([[True, False]])).shape)
        (1, 1, 1, 2)
    """
    return None if mask is None else ops.expand_dims(ops.cast(mask, "bool"), (1, 2))


# Far below any score, yet finite in half precision, so that a fully masked row gives
# no NaN.
MASKED = {"float64": -1e9, "float32": -1e9, "bfloat16": -3e4, "float16": -3e4}


def mask_bias(mask, dtype):
    """Turns a mask into a bias on the scores: 0, or far below any score.

    Args:
        mask: boolean, of any shape.
        dtype: the scores' type.

    Returns:
        A tensor of this type and the mask's shape.

    Example:
        >>> import numpy as np
        >>> np.asarray(mask_bias(np.array([True, False]), "float32")).tolist()
        [-0.0, -1000000000.0]
    """
    dtype = keras.backend.standardize_dtype(dtype)
    return (1 - ops.cast(mask, dtype)) * MASKED[dtype]
