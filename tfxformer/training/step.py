"""What a step of training computes: the model that `fit` trains, and its optimizer."""

import contextlib

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from tfxformer.model import Transformer
from tfxformer.tokenizer import PAD_ID
from tfxformer.training.loss import output_loss
from tfxformer.training.schedule import make_schedule


class TrainingTransformer(Transformer):
    """A `Transformer` whose step calls the fused output loss, a quarter faster.

    Its weights files are those of a `Transformer`, without the optimizer. Each step
    logs ``sums``, float32 ``(1, 6)``, over all devices: the loss with label smoothing,
    the loss without, correct tokens, tokens, target positions with padding, and
    ``stop_request``, which any worker may assign so that all see it in the same step.

    Example:
        >>> from tfxformer.config import load_config
        >>> model = TrainingTransformer(
        ...     num_layers=1, d_model=16, num_heads=2, dff=32,
        ...     input_vocab_size=100, target_vocab_size=100,
        ... )
        >>> model.build()
        >>> model.prepare(load_config("tiny").training)
        >>> source, target = np.array([[7, 8, 3]]), np.array([[2, 5, 3]])
        >>> batch = (source, target[:, :-1]), target[:, 1:]
        >>> _ = model.fit(*batch, verbose=0)
        >>> float(model.sums_of([batch])[3])  # tokens
        2.0
    """

    def prepare(self, settings):
        """Compiles it, built, in the scope of the strategy that is to train it."""
        self.label_smoothing = settings.label_smoothing
        self.stop_request = tf.Variable(0.0, trainable=False)
        optimizer = make_optimizer(settings, self.config["d_model"])
        # "auto" would compile anew for each shape of a batch.
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
        # Of all devices, so that several learn what one would have learnt.
        tokens = ops.maximum(_over_replicas(tokens), 1.0)
        with tf.GradientTape() as tape:
            sums = self._sums(data, self.label_smoothing, training=True)
            loss = self.optimizer.scale_loss(sums[0] / tokens)
        variables = self.trainable_variables
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        # An embedding's are rows alone.
        self.optimizer.apply([*map(tf.convert_to_tensor, gradients)], variables)
        positions = ops.cast(ops.size(target_out), "float32")
        more = ops.stack([positions, self.stop_request])
        sums = _over_replicas(ops.concatenate([sums, more]))
        return {"sums": sums[None]}  # several workers' logs need a first axis

    def _sums(self, batch, label_smoothing, training):
        """The fields of `loss.Sums` as a vector."""
        inputs, target_out = batch
        x = self.hidden_states(inputs, training=training)  # (batch, target, d_model)
        embeddings, bias = self.output_embeddings()
        sums = output_loss(
            ops.reshape(x, (-1, x.shape[-1])),
            ops.convert_to_tensor(embeddings),
            None if bias is None else ops.convert_to_tensor(bias),
            ops.reshape(target_out, (-1,)),
            label_smoothing,
        )
        return ops.stack([*sums])

    def sums_of(self, batches):
        """The sums of batches, NumPy arrays, without dropout, on this worker alone."""
        batches = (tf.nest.map_structure(tf.constant, batch) for batch in batches)
        return np.sum([self._evaluate(batch).numpy() for batch in batches], axis=0)

    @contextlib.contextmanager
    def averaged(self):
        """Within it, the weights are their moving averages, if there are any."""
        if not _inner(self.optimizer).use_ema:
            yield
            return
        variables = self.trainable_variables
        kept = [ops.convert_to_numpy(variable) for variable in variables]
        self.optimizer.finalize_variable_values(variables)
        try:
            yield
        finally:
            for variable, value in zip(variables, kept, strict=True):
                variable.assign(value)

    def save_weights(self, filepath, overwrite=True, **kwargs):
        with self._without_optimizer():
            super().save_weights(filepath, overwrite, **kwargs)

    def load_weights(self, filepath, skip_mismatch=False, **kwargs):
        with self._without_optimizer():
            super().load_weights(filepath, skip_mismatch, **kwargs)

    @contextlib.contextmanager
    def _without_optimizer(self):
        """Keras would put the optimizer into the file, too."""
        optimizer, self.optimizer = self.optimizer, None
        try:
            yield
        finally:
            self.optimizer = optimizer

    def state(self):
        """All that a step changes but the weights."""
        return [ops.convert_to_numpy(variable) for variable in self._state_variables()]

    def restore(self, state):
        """Takes what `state` returned."""
        variables = self._state_variables()
        shapes = [tuple(variable.shape) for variable in variables]
        if shapes != [np.shape(array) for array in state]:
            raise ValueError("of another model or another optimizer")
        for variable, array in zip(variables, state, strict=True):
            variable.assign(array)

    def _state_variables(self):
        return [*self.optimizer.variables, *self.non_trainable_variables]

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Nothing: it is built, and Keras 3.15 fails here with several workers."""


def make_optimizer(settings, d_model):
    """The paper's Adam (section 5.3), or Muon (Jordan et al. 2024).

    Muon makes each step of a matrix orthogonal, so that all its directions move alike;
    embeddings, biases and norms keep Adam. A step takes longer and learns more.
    """
    options = {
        "learning_rate": make_schedule(settings, d_model),
        "epsilon": 1e-9,
        "global_clipnorm": settings.clip_norm,
        "use_ema": settings.ema_decay > 0,
        "ema_momentum": settings.ema_decay or 0.99,
    }
    if settings.accumulate > 1:
        options["gradient_accumulation_steps"] = settings.accumulate
    if settings.optimizer == "adam":
        return keras.optimizers.Adam(beta_1=0.9, beta_2=0.98, **options)
    return Muon(
        adam_beta_1=0.9,
        adam_beta_2=0.98,
        weight_decay=None,
        adam_weight_decay=None,
        precision=settings.precision,
        **options,
    )


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


def _inner(optimizer):
    """The optimizer that Keras wraps to scale float16's loss."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _over_replicas(value):
    """The sum over the devices of all workers."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return value
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)
