"""Training a Keras model by its own `fit`, on the driver's batches."""

import tensorflow as tf
import worker

IDS = tf.TensorSpec((None, None), tf.int32)


def serve(model, batches, *packages):
    """Answers the driver; each request is one call of `fit`.

    Args:
        model: a compiled Keras model that takes ``(source, target_in)``.
        batches: the worker's `Batches`.
        *packages: their versions are told to the driver.
    """

    def train(steps):
        taken = batches.take(steps)
        dataset = tf.data.Dataset.from_generator(
            lambda: taken, output_signature=((IDS, IDS), IDS)
        )
        history = model.fit(dataset.prefetch(2), verbose=0).history
        return [worker.size_of(batch) for batch in taken], history["loss"][-1]

    worker.serve(train, model.count_params(), "tensorflow", "keras", *packages)
