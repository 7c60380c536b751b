"""Trains a Keras model with its own `fit`, on the driver's batches."""

import itertools

import numpy as np
import tensorflow as tf
import worker

IDS = tf.TensorSpec((None, None), tf.int32)


def serve(model, batches, *packages):
    """Answers the driver. Each request is one call of `fit`.

    Args:
        model: a compiled Keras model that takes ``(source, target_in)``.
        batches: the batches of `worker.read_batches`, which repeat forever.
        *packages: the packages whose versions the driver gets.
    """
    endless = itertools.cycle(batches)

    def train(steps):
        taken = [*itertools.islice(endless, steps)]
        dataset = tf.data.Dataset.from_generator(
            lambda: taken, output_signature=((IDS, IDS), IDS)
        )
        options = tf.data.Options()
        # With autotuning, the end of a dataset waits for its thread, which sleeps for
        # up to a minute.
        options.autotune.enabled = False
        model.fit(dataset.prefetch(2).with_options(options), verbose=0)
        return taken

    worker.serve(train, ["tensorflow", "keras", *packages], size_of)


def size_of(batches):
    """Counts the target tokens, the target positions and the sentences."""
    targets = [target for _, target in batches]
    return {
        "tokens": sum(int(np.count_nonzero(target)) for target in targets),
        "positions": sum(target.size for target in targets),
        "sentences": sum(map(len, targets)),
    }
