"""What all layers share: masks pass through, and the config is their own arguments."""

import operator

import keras

SIZES = {"num_layers", "num_decoder_layers", "d_model", "num_heads", "key_dim", "dff"}
SIZES |= {"vocab_size", "input_vocab_size", "target_vocab_size", "max_length"}
# What a constructor has beside its settings; the embedding is a layer to share.
NO_SETTINGS = {"self", "__class__", "kwargs", "embedding"}


class Layer(keras.layers.Layer):
    """A Keras layer with the config that its constructor's arguments make.

    Args:
        arguments: ``locals()`` of the constructor, as `settings` takes them.
        kwargs: what every Keras layer takes, such as ``name`` and ``dtype``.
    """

    def __init__(self, arguments, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.settings = settings(arguments)

    def get_config(self):
        return super().get_config() | self.settings


def settings(arguments):
    """The arguments of a constructor, as a config holds them.

    Args:
        arguments: ``locals()``, taken on the constructor's first line.

    Returns:
        A dict by name. Sizes are Python integers, which Keras insists on and JSON can
        hold; None stays None.

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
