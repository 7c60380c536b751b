"""A training step: the model that `fit` trains.

For resuming, `TrainingTransformer.state` gives everything that a step changes besides
the weights: the optimizer's variables and the seeds of dropout. `restore` sets them
again, so that the next step is the same as without the interruption.
"""

import contextlib

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from tfxformer.special_tokens import PAD_ID
from tfxformer.training.loss import output_loss
from tfxformer.training.schedule import make_optimizer


class TrainingTransformer(keras.Model):
    """Trains a `Transformer` with the fused output loss, a quarter faster.

    Each step logs ``sums``, float32 ``(1, 6)``, over all devices: the result of
    `loss.output_loss`, the target positions with padding, and ``stop_request``, which
    any worker may set so that all workers see it in the same step.

    Args:
        transformer: a built `Transformer`, made in the scope of its strategy.
        settings: a `TrainingConfig`.
    """

    def __init__(self, transformer, settings):
        super().__init__(dtype=transformer.dtype_policy)
        self.transformer, self.label_smoothing = transformer, settings.label_smoothing
        self.stop_request = tf.Variable(0.0, trainable=False)
        optimizer = make_optimizer(settings, transformer.d_model)
        # "auto" would compile again for each shape of a batch.
        self.compile(optimizer=optimizer, jit_compile=settings.xla)
        self.optimizer.build(self.trainable_variables)
        self._evaluate = tf.function(
            lambda batch: self._sums(batch, 0.0, training=False),
            reduce_retracing=True,
            jit_compile=settings.xla,
        )

    def train_step(self, data):
        _, target_out = data
        tokens = ops.sum(ops.cast(ops.not_equal(target_out, PAD_ID), "float32"))
        # Summed over all devices, so that several learn the same as one.
        tokens = ops.maximum(_over_replicas(tokens), 1.0)
        with tf.GradientTape() as tape:
            sums = self._sums(data, self.label_smoothing, training=True)
            loss = self.optimizer.scale_loss(sums[0] / tokens)
        variables = self.trainable_variables
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        # The gradient of an embedding is sparse: only the batch's rows.
        self.optimizer.apply([*map(tf.convert_to_tensor, gradients)], variables)
        positions = ops.cast(ops.size(target_out), "float32")
        more = ops.stack([positions, self.stop_request])
        sums = _over_replicas(ops.concatenate([sums, more]))
        return {"sums": sums[None]}  # several workers' logs need a first axis

    def _sums(self, batch, label_smoothing, training):
        """The result of `output_loss` for a batch."""
        inputs, target_out = batch
        # (batch, target, d_model)
        x = self.transformer.hidden_states(inputs, training=training)
        embeddings, bias = self.transformer.output_embeddings()
        return output_loss(
            ops.reshape(x, (-1, x.shape[-1])),
            tf.convert_to_tensor(embeddings),
            None if bias is None else tf.convert_to_tensor(bias),
            labels=ops.reshape(target_out, (-1,)),
            label_smoothing=label_smoothing,
        )

    def sums_of(self, batches):
        """The sums of `loss.output_loss`, ``(4,)``, over batches of NumPy arrays.

        They are this worker's alone, without dropout and label smoothing.
        """
        batches = (tf.nest.map_structure(tf.constant, batch) for batch in batches)
        return np.sum([self._evaluate(batch).numpy() for batch in batches], axis=0)

    @contextlib.contextmanager
    def averaged(self):
        """A context in which the weights are their moving averages, if kept."""
        variables = self.trainable_variables
        kept = [ops.convert_to_numpy(variable) for variable in variables]
        self.optimizer.finalize_variable_values(variables)
        try:
            yield
        finally:
            for variable, value in zip(variables, kept, strict=True):
                variable.assign(value)

    def state(self):
        """Everything that a step changes besides the weights, as NumPy arrays."""
        return [ops.convert_to_numpy(variable) for variable in self._state_variables()]

    def restore(self, state):
        """Restores a result of `state`."""
        for variable, array in zip(self._state_variables(), state, strict=True):
            variable.assign(array)

    def _state_variables(self):
        return [*self.optimizer.variables, *self.non_trainable_variables]

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Does nothing: it is built, and Keras 3.15 fails here with several workers."""


def _over_replicas(value):
    """The sum over the devices of all workers."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return value
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)
