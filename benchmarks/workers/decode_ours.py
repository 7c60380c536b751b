"""Decodes with tfxformer in Python: token ids to token ids in a `tf.function`."""

import sys

import worker

from tfxformer.console import start_tensorflow

start_tensorflow()

import tensorflow as tf  # noqa: E402

from tfxformer import Translator  # noqa: E402
from tfxformer.decoding import DecodingOptions, decode  # noqa: E402

path, *flags = sys.argv[1:]
xla = "--xla" in flags
model = Translator.load(path).transformer
# XLA compiles each shape; without it one graph serves all shapes.
signature = None if xla else [tf.TensorSpec((None, None), tf.int32)]
searches = {}


def search(batch, beam):
    if beam not in searches:
        options = DecodingOptions(beam_size=beam)
        searches[beam] = tf.function(
            lambda source: decode(model, source, options, xla=xla).ids[:, 0],
            input_signature=signature,
            jit_compile=xla,
        )
    if xla:  # few shapes: widths of 16, 32, 64, ...
        width = max(16, 2 ** (len(batch[0]) - 1).bit_length())
        batch = [row + [worker.PAD_ID] * (width - len(row)) for row in batch]
    return searches[beam](tf.constant(batch, tf.int32)).numpy()


worker.serve(search, ["tensorflow", "keras"], worker.written)
