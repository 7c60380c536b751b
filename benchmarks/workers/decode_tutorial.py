"""Decodes our model as the TensorFlow tutorial's Translator does, without a cache.

It decodes one sentence at a time. For each new token, the whole Transformer (with the
encoder) reads all tokens so far. The tutorial then runs the model once more for the
attention weights; this worker does not.
"""

import sys

import worker

from tfxformer.console import start_tensorflow

start_tensorflow()

import tensorflow as tf  # noqa: E402

import tfxformer  # noqa: E402


class Translator(tf.Module):
    def __init__(self, transformer):
        super().__init__()
        self.transformer = transformer

    @tf.function(
        input_signature=[
            tf.TensorSpec((1, None), tf.int32),
            tf.TensorSpec((), tf.int32),
        ]
    )
    def __call__(self, source, longest):
        written = tf.TensorArray(tf.int32, size=0, dynamic_size=True)
        written = written.write(0, [worker.START_ID])
        for i in tf.range(longest):
            target = tf.transpose(written.stack())  # (1, i + 1)
            logits = self.transformer((source, target), training=False)[:, -1]
            # Never write padding, unknown or start tokens.
            allowed = logits[:, worker.END_ID :]
            token = tf.argmax(allowed, axis=-1, output_type=tf.int32) + worker.END_ID
            written = written.write(i + 1, token)
            if token[0] == worker.END_ID:
                break
        return tf.transpose(written.stack())[:, 1:]


translator = Translator(tfxformer.Translator.load(sys.argv[1]).transformer)


def decode(batch, beam):
    if beam > 1 or len(batch) > 1:
        raise ValueError("one sentence at a time, greedily")
    return translator(tf.constant(batch), 2 * len(batch[0]) + 10).numpy()


worker.serve(decode, ["tensorflow", "keras"], worker.written)
