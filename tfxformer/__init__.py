"""Transformer translators: two columns of text in, one SavedModel out."""

import importlib
import os

# TensorFlow's C++ messages are for its own developers. Set it to 0 to see them.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

__version__ = "0.1.0"

# The module of each public name. It loads on first use, so that `import tfxformer`
# itself is light.
_HOMES = {
    "decoding.options": ["DecodingOptions"],
    "layers": [
        "CausalSelfAttention",
        "CrossAttention",
        "Decoder",
        "DecoderLayer",
        "Encoder",
        "EncoderLayer",
        "FeedForward",
        "GlobalSelfAttention",
        "MultiHeadAttention",
        "PositionalEmbedding",
        "positional_encoding",
    ],
    "model": ["Transformer"],
    "tokenizer": ["Tokenizer"],
    "training.loss": ["masked_accuracy", "masked_loss"],
    "training.schedule": ["CustomSchedule"],
    "translator": ["Translator"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name):
    if name not in _HOME_OF:
        raise AttributeError(f"module 'tfxformer' has no attribute {name!r}")
    from tfxformer.console import quiet_stderr

    with quiet_stderr():  # TensorFlow writes several lines when it is imported
        return getattr(importlib.import_module(f"tfxformer.{_HOME_OF[name]}"), name)


def __dir__():
    return sorted([*globals(), *__all__])
