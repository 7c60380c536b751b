"""Ours, strings to strings: a run folder in Python, or an exported SavedModel."""

import worker

args = worker.arguments("--path", "--xla")

from tfxformer.quiet import start_tensorflow  # noqa: E402

start_tensorflow()

import tensorflow as tf  # noqa: E402

from tfxformer import Translator  # noqa: E402

translator = Translator.load(args.path, xla=args.xla)


def decode(texts):
    answer = translator.signatures["translate"](text=tf.constant(texts))
    return [text.decode() for text in answer["translation"].numpy()]


worker.serve(decode, "tensorflow")
