"""What a step of training computes.

A step is two calls: `gradients` of a batch, and `apply` once they are known to be
sound. What lies between them is the trainer's: adding up several batches, seeing that
nothing exploded.
"""

import contextlib
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from tfxformer.layers.dropout import drawn_from
from tfxformer.tokenizer import PAD_ID
from tfxformer.training.loss import output_loss
from tfxformer.training.schedule import make_schedule

# Between what decides the dropout of two devices; no run has so many steps.
SEEDS_APART = 500_000_003


class Totals(NamedTuple):
    """What the real tokens of some batches add up to."""

    loss: float  # with label smoothing, in nats
    entropy: float  # without
    correct: float  # tokens whose label has the highest logit
    tokens: float
    square_norm: float  # of the loss's gradient, all weights together


def make_optimizer(model, settings):
    """The paper's Adam (section 5.3), or Muon (Jordan et al. 2024), with its variables.

    Muon makes each step of a matrix orthogonal, so that all its directions move alike;
    embeddings, biases and norms keep Adam. A step takes longer and learns more.

    Args:
        model: a built `Transformer`.
        settings: a `TrainingConfig`.

    Returns:
        A Keras optimiser. It does not clip: what it is given is clipped.
    """
    schedule = make_schedule(settings, model.config["d_model"])
    if settings.optimizer == "muon":
        optimizer = Muon(
            schedule,
            adam_beta_1=0.9,
            adam_beta_2=0.98,
            epsilon=1e-9,
            weight_decay=None,
            adam_weight_decay=None,
            precision=settings.precision,
        )
    else:
        optimizer = keras.optimizers.Adam(
            schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9
        )
    optimizer.build(model.trainable_variables)
    return optimizer


class Muon(keras.optimizers.Muon):
    """Keras's, whose matrix products are in bfloat16 where the model's are."""

    def __init__(self, *args, precision, **kwargs):
        super().__init__(*args, **kwargs)
        self.precision = precision

    def zeropower_via_newtonschulz5(self, x, steps):
        if self.precision != "bfloat16":
            return super().zeropower_via_newtonschulz5(x, steps)
        x, given = ops.cast(x, "bfloat16"), x.dtype
        return ops.cast(super().zeropower_via_newtonschulz5(x, steps), given)


def make_averages(model, settings):
    """Variables for the moving average of the weights; none where it is off."""
    if not settings.ema_decay:
        return []
    return [
        keras.Variable(
            ops.convert_to_numpy(variable),
            dtype="float32",
            trainable=False,
            aggregation="only_first_replica",
            name=f"average_{i}",
        )
        for i, variable in enumerate(model.trainable_variables)
    ]


def batch_sums(model, batch, label_smoothing, seed=None):
    """The loss of a batch, and what is reported of it.

    Args:
        model: a `Transformer`.
        batch: ``((source, target_in), target_out)``, as `TrainingBatches` makes them.
        label_smoothing: the paper's epsilon.
        seed: decides what dropout drops; None to drop nothing.

    Returns:
        `tfxformer.training.loss.Sums`.
    """
    inputs, target_out = batch
    training = seed is not None
    with drawn_from(seed) if training else contextlib.nullcontext():
        x = model.hidden_states(inputs, training=training)  # (batch, target, d_model)
    embeddings, bias = model.output_embeddings()
    return output_loss(
        ops.reshape(x, (-1, x.shape[-1])),
        ops.convert_to_tensor(embeddings),
        None if bias is None else ops.convert_to_tensor(bias),
        ops.reshape(target_out, (-1,)),
        label_smoothing,
    )


def square_norm(gradients):
    """The sum of all squares, a float32 scalar."""
    return sum(ops.sum(ops.square(ops.cast(g, "float32"))) for g in gradients)


def update(optimizer, variables, averages, decay, gradients):
    """Moves the weights, and their average behind them.

    Args:
        optimizer: from `make_optimizer`.
        variables: the model's trainable variables.
        averages: from `make_averages`.
        decay: how much of the average stays, once it has had time to form.
        gradients: one for each variable.
    """
    optimizer.apply(gradients, variables)
    if averages:
        # Early on the average follows closely, or it would keep the random start.
        seen = ops.cast(optimizer.iterations, "float32")
        kept = ops.minimum(decay, (1.0 + seen) / (10.0 + seen))
        for average, variable in zip(averages, variables, strict=True):
            average.assign(average + (1.0 - kept) * (variable - average))


def with_shares(batch, devices):
    """A batch with rows of padding, so that each device has as many.

    Args:
        batch: ``((source, target_in), target_out)``, arrays.
        devices: how many there are.

    Returns:
        The same, of a multiple of so many rows.
    """
    (source, target_in), target_out = batch
    missing = -len(source) % devices
    if not missing:
        return batch
    rows = (0, missing), (0, 0)
    source, target_in, target_out = (
        np.pad(ids, rows, constant_values=PAD_ID)
        for ids in (source, target_in, target_out)
    )
    return (source, target_in), target_out


def to_arrays(variables):
    """Variables as NumPy arrays."""
    return [ops.convert_to_numpy(variable) for variable in variables]


def from_arrays(variables, arrays):
    """Gives variables back what `to_arrays` took.

    Raises:
        ValueError: when they are of another model.
    """
    shapes = [tuple(variable.shape) for variable in variables]
    if shapes != [np.shape(array) for array in arrays]:
        raise ValueError("the shapes are of another model")
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)
