"""Ours: `fit` with the step of `tfxformer train`.

With ``--batches own`` batches come from the file of tokens through the trainer's own
pipeline, in the background; otherwise they are the driver's.
"""

import worker

args = worker.arguments("--bfloat16")

from tfxformer.quiet import start_tensorflow  # noqa: E402

start_tensorflow()

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from tfxformer.batches import TokenFile, TrainingBatches  # noqa: E402
from tfxformer.config import load_config  # noqa: E402
from tfxformer.run import build_model  # noqa: E402
from tfxformer.training.step import TrainingTransformer  # noqa: E402

precision = "bfloat16" if args.bfloat16 else "float32"
config = load_config(args.sizes.preset, None, [f"training.precision={precision}"])

keras.utils.set_random_seed(0)
model = build_model(config, args.sizes.vocab_size, precision, TrainingTransformer)
model.prepare(config.training)

given = own = position = None
if args.batches == worker.OWN:
    own = TrainingBatches(
        TokenFile(args.folder / "tokens"),
        tokens_per_batch=config.training.tokens_per_batch,
        max_length=config.model.max_length,
    )
else:
    given = worker.Batches(args)


class Loss(keras.callbacks.Callback):
    """The loss of the last step; the trainer looks at each, too."""

    def on_train_batch_end(self, batch, logs=None):
        sums = np.ravel(logs["sums"])
        self.value = sums[0] / sums[3]


def train(steps):
    global position
    batches = own.generate(position) if own else given.take(steps)
    sizes, loss = [], Loss()

    def measured():
        for batch in batches:
            sizes.append(worker.size_of(batch))
            yield batch

    ids = tf.TensorSpec([None, None], tf.int32)
    dataset = tf.data.Dataset.from_generator(
        measured, output_signature=((ids, ids), ids)
    )
    model.fit(
        dataset.prefetch(8),
        steps_per_epoch=steps,
        shuffle=False,
        verbose=0,
        callbacks=[loss],
    )
    if own:
        position = own.after(position, steps)
    return sizes[:steps], loss.value


worker.serve(train, model.count_params(), "tensorflow", "keras")
