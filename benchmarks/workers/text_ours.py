"""Translates with tfxformer, through the signature of an exported SavedModel."""

import sys

import worker

from tfxformer.console import start_tensorflow

start_tensorflow()

import tensorflow as tf  # noqa: E402
import tensorflow_text  # noqa: E402, F401 - the tokenizer's ops

translate = tf.saved_model.load(sys.argv[1]).signatures["translate"]


def decode(texts):
    return translate(text=tf.constant(texts))["translation"].numpy()


def finish(found):
    return {"translations": [text.decode() for text in found]}


worker.serve(decode, ["tensorflow"], finish)
