"""Exports a model without every other layer of its encoder.

    python halve.py MODEL REPOSITORY NAME

A pre-norm layer adds its output to the residual stream, so the other layers still work
when it is gone (Fan et al. 2020 leave layers out the same way). The decoder stays as it
is. MODEL is a run, an export, or ``pt_en``. The script writes the smaller model as the
next version of NAME in REPOSITORY, with matrices in float16.
"""

import re
import sys

from tfxformer.exporting.saved_model import export
from tfxformer.model import Transformer
from tfxformer.repository import SHIPPED
from tfxformer.translator import Translator

_LAYER = re.compile(r"^encoder/layer_(\d+)/")


def halved(transformer):
    """Returns a copy of a `Transformer` with the encoder layers 0, 2, 4 and so on."""
    layers = transformer.encoder.enc_layers[::2]
    config = transformer.config | {"num_layers": len(layers)}
    config["num_decoder_layers"] = len(transformer.decoder.dec_layers)
    smaller = Transformer(**config)
    smaller.build()
    weights = {_path(weight): weight.numpy() for weight in transformer.weights}
    for weight in smaller.weights:
        path = _LAYER.sub(lambda x: f"encoder/layer_{2 * int(x[1])}/", _path(weight))
        weight.assign(weights[path])
    return smaller


def _path(weight):
    """A weight's path below the model."""
    return weight.path.partition("/")[2]


def main():
    """Runs the command line."""
    model, repository, name = sys.argv[1:]
    translator = Translator.load(None if model == SHIPPED else model)
    smaller = halved(translator.transformer)
    smaller_translator = Translator(translator.tokenizer, smaller, translator.options)
    print(export(smaller_translator, repository, name, precision="float16")[0])


if __name__ == "__main__":
    main()
