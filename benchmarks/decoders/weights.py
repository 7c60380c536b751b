"""The neutral file of weights: arrays under our Keras model's names, and its sizes."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np


def read(args):
    """The arrays by name, and the sizes: ``num_layers``, ``d_model``, ...

    Names are paths without the model's own name, such as
    ``encoder/layer_0/self_attention/mha/query/kernel``.
    """
    sizes = SimpleNamespace(**json.loads(Path(args.config).read_text()))
    if sizes.norm != "post" or not sizes.tie_embeddings or sizes.learned_positions:
        raise ValueError("the peers are set up for post-norm, tied, sine positions")
    with np.load(args.weights) as file:
        return dict(file), sizes


def sinusoids(length, depth):
    """The paper's positional encoding, sines and cosines interleaved."""
    angle = np.arange(length)[:, None] / 10000 ** (np.arange(0, depth, 2) / depth)
    pairs = np.stack([np.sin(angle), np.cos(angle)], axis=-1)
    return pairs.reshape(length, -1)[:, :depth].astype("float32")


def our_model(arrays, sizes):
    """Our `Transformer` with these weights."""
    from tfxformer.model import Transformer  # the workers on PyTorch need none

    settings = dict(vars(sizes))
    vocab_size, _ = settings.pop("vocab_size"), settings.pop("threads")
    model = Transformer(
        input_vocab_size=vocab_size, target_vocab_size=vocab_size, **settings
    )
    model.build()
    for weight in model.weights:
        weight.assign(arrays[weight.path.split("/", 1)[1]])
    return model
