"""Ours: a training step as `tfxformer train` does it.

With ``--batches own`` batches come from the token corpus through the trainer's own
pipeline, in the background; otherwise they are the driver's.
"""

import worker

args = worker.arguments("--bfloat16")

from tfxformer.quiet import start_tensorflow  # noqa: E402

start_tensorflow()

import itertools  # noqa: E402
import math  # noqa: E402

import keras  # noqa: E402
from tfxformer.token_corpus import TokenCorpus  # noqa: E402

from tfxformer.batches import TrainingBatches, prefetch  # noqa: E402
from tfxformer.config import load_config  # noqa: E402
from tfxformer.run import build_model  # noqa: E402
from tfxformer.training.step import TrainingStep  # noqa: E402

precision = "bfloat16" if args.bfloat16 else "float32"
config = load_config(args.sizes.preset, None, [f"training.precision={precision}"])
settings = config.training


def own_batches():
    corpus = TokenCorpus.open(args.folder / "tokens")
    sizes = {
        "tokens_per_batch": settings.tokens_per_batch,
        "max_length": config.model.max_length,
    }
    for batch, _ in prefetch(TrainingBatches([corpus], **sizes)()):
        yield batch


keras.utils.set_random_seed(0)
model = build_model(config, args.sizes.vocab_size, settings.precision)
step = TrainingStep(model, settings)
numbers = itertools.count(1)
batches = iter(own_batches() if args.batches == worker.OWN else worker.Batches(args))


def train(steps):
    done = []
    for _ in range(steps):
        batch = next(batches)
        step.learning_rate()  # the trainer asks for it, too
        totals, gradients = step.gradients(batch, seed=next(numbers))
        norm = math.sqrt(totals.square_norm) / totals.tokens
        clip = min(1.0, settings.clip_norm / norm)
        step.apply(gradients, clip / totals.tokens)
        done.append(worker.size_of(batch))
    return done, totals.loss / totals.tokens


worker.serve(train, model.count_params(), "tensorflow", "keras")
