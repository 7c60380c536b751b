"""Gives a model more encoder layers without changing what it computes.

    python grow.py MODEL LAYERS REPOSITORY NAME

The new layers stand between the old ones, at equal distances. Each starts as a copy of
the layer before it whose output matrices are zero, so that it adds nothing to the
residual stream: the grown model translates like MODEL until training moves it. This
needs a pre-norm model (Gong et al. 2019 stack layers for the same purpose).
"""

import sys

import numpy as np

from tfxformer.exporting.saved_model import export
from tfxformer.model import Transformer
from tfxformer.repository import SHIPPED
from tfxformer.translator import Translator


def origins(old, new):
    """Returns the old layer that each new layer comes from, and whether it is a copy.

    Example:
        >>> origins(2, 4)
        [(0, False), (0, True), (1, False), (1, True)]
    """
    found = [number * old // new for number in range(new)]
    return [(layer, layer in found[:place]) for place, layer in enumerate(found)]


def grown(transformer, num_layers):
    """Returns a copy of a `Transformer` with more encoder layers."""
    if transformer.norm != "pre":
        sys.exit("error: only a pre-norm model can grow without changing its answers")
    config = dict(transformer.config)
    config["num_decoder_layers"] = len(transformer.decoder.dec_layers)
    config["num_layers"] = num_layers
    larger = Transformer(**config)
    larger.build()
    mine = _by_path(transformer.weights)
    numbers = origins(len(transformer.encoder.enc_layers), num_layers)
    for weight in larger.weights:
        path, is_copy = _path(weight), False
        for place, (layer, copied) in enumerate(numbers):
            if path.startswith(f"encoder/layer_{place}/"):
                path = path.replace(f"layer_{place}/", f"layer_{layer}/", 1)
                is_copy = copied
                break
        value = np.array(mine[path])
        last = path.rsplit("/", 2)[-2]
        if is_copy and last in ("output", "attention_output"):
            value[...] = 0
        weight.assign(value)
    return larger


def _path(weight):
    """A weight's path below the model."""
    return weight.path.partition("/")[2]


def _by_path(weights):
    return {_path(weight): weight.numpy() for weight in weights}


def main():
    """Runs the command line."""
    model, layers, repository, name = sys.argv[1:]
    translator = Translator.load(None if model == SHIPPED else model)
    larger = grown(translator.transformer, int(layers))
    grown_translator = Translator(translator.tokenizer, larger, translator.options)
    print(export(grown_translator, repository, name, precision="float16")[0])


if __name__ == "__main__":
    main()
