"""Decodes with tfxformer in Python: token ids to token ids in a `tf.function`."""

import sys

import worker

from tfxformer.console import start_tensorflow

start_tensorflow()

import tensorflow as tf  # noqa: E402

from tfxformer import Translator  # noqa: E402
from tfxformer.decoding import DecodingOptions, decode  # noqa: E402

translator = Translator.load(sys.argv[1])
searches = {}


def search(batch, beam):
    if beam not in searches:
        options = DecodingOptions(beam_size=beam)
        searches[beam] = tf.function(
            lambda source: decode(translator.folded(), source, options).ids[:, 0],
            input_signature=[tf.TensorSpec((None, None), tf.int32)],
        )
    return searches[beam](tf.constant(batch, tf.int32)).numpy()


worker.serve(search, ["tensorflow", "keras"], worker.written)
