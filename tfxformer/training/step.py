"""One step of training."""

import contextlib
import functools

import numpy as np
import tensorflow as tf

from tfxformer.training.step_math import (
    SEEDS_APART,
    Totals,
    batch_sums,
    from_arrays,
    make_averages,
    make_optimizer,
    square_norm,
    to_arrays,
    update,
    with_shares,
)


class TrainingStep:
    """Gradients and updates in graphs that take batches of any shape.

    Where it is made in the scope of a `tf.distribute.Strategy`, each of its devices
    takes a share of a batch's rows, and the sums are over all of them.

    Args:
        model: a built `Transformer`, made in the same scope.
        settings: a `TrainingConfig`.
    """

    def __init__(self, model, settings):
        self.model = model
        self.settings = settings
        self.optimizer = make_optimizer(model, settings)
        self.averages = make_averages(model, settings)
        self.strategy = tf.distribute.get_strategy()
        self.devices = self.strategy.num_replicas_in_sync
        ids = tf.TensorSpec([None, None], tf.int32)
        batch = ((ids, ids), ids)
        seed, scale = tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.float32)
        gradients = [
            tf.TensorSpec(v.shape, tf.float32) for v in model.trainable_variables
        ]

        def compiled(function, *signature):
            # XLA compiles for each shape, so there is no graph for all of them.
            if settings.xla:
                return tf.function(function, autograph=False, jit_compile=True)
            return tf.function(function, autograph=False, input_signature=signature)

        if self.devices > 1:
            self._build_distributed(batch, seed, scale, gradients)
            return
        self._gradients = compiled(self._take_gradients, batch, seed, scale)
        self._more = compiled(self._take_gradients, batch, seed, scale, gradients)
        self._apply = compiled(self._update, gradients, scale)
        self._evaluate = compiled(self._sums, batch)

    def _build_distributed(self, batch, seed, scale, gradients):
        # Collectives are not XLA's: it compiles what each device does by itself.
        xla = self.settings.xla
        self._local_gradients, self._local_sums = (
            tf.function(f, autograph=False, jit_compile=True) if xla else f
            for f in (self._local_gradients, self._sums)
        )
        # Keras would add up once more what is added up before, for its norm.
        self.optimizer._all_reduce_sum_gradients = lambda pairs: pairs
        # What each device has found so far stays on it between the batches of a step.
        zeros = self.strategy.run(lambda: [tf.zeros(g.shape) for g in gradients])
        carried = tf.nest.map_structure(tf.type_spec_from_value, zeros)

        def compiled(function, *signature):
            return tf.function(function, autograph=False, input_signature=signature)

        once = batch, seed, scale
        self._gradients = compiled(self._gradients_of_all, *once)
        self._more = compiled(self._gradients_of_all, *once, carried)
        self._part = compiled(self._gradients_of_each, *once)
        self._more_part = compiled(self._gradients_of_each, *once, carried)
        self._apply = compiled(self._update_all, carried, scale)
        self._evaluate = compiled(self._sums_of_all, batch)

    def gradients(self, batch, seed, scale=1.0, carried=None, last=True):
        """The gradient of a batch's summed loss, added to what is carried.

        Args:
            batch: ``((source, target_in), target_out)``, int32 arrays.
            seed: an int below 2^31 that decides what dropout drops.
            scale: what the loss is multiplied with (float16).
            carried: gradients of the batches before, or None.
            last: whether these are all of the step: only then are they added up over
                the devices, and their square norm is worth something.

        Returns:
            `Totals` of this batch, its square norm that of all gradients so far,
            and the gradients.
        """
        batch = with_shares(batch, self.devices)
        arguments = (_tensors(batch), tf.constant(seed, tf.int32), tf.constant(scale))
        if last or self.devices == 1:
            first, more = self._gradients, self._more
        else:
            first, more = self._part, self._more_part
        if carried is None:
            sums, gradients = first(*arguments)
        else:
            sums, gradients = more(*arguments, carried)
        return Totals(*sums.numpy().tolist()), gradients

    def _take_gradients(self, batch, seed, scale, carried=None):
        sums, gradients = self._local_gradients(batch, seed, scale, carried)
        return tf.concat([sums, [square_norm(gradients)]], axis=0), gradients

    def _local_gradients(self, batch, seed, scale, carried):
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            sums = batch_sums(self.model, batch, self.settings.label_smoothing, seed)
            scaled = sums.loss * scale
        gradients = [
            tf.convert_to_tensor(gradient)  # an embedding's are rows alone
            for gradient in tape.gradient(scaled, [v.value for v in variables])
        ]
        if carried is not None:
            gradients = [g + c for g, c in zip(gradients, carried, strict=True)]
        return tf.stack([*sums]), gradients

    def _gradients_of_all(self, batch, seed, scale, carried=None, last=True):
        def ours(carried):
            context = tf.distribute.get_replica_context()
            number = tf.cast(context.replica_id_in_sync_group, tf.int32)
            share = self._share(batch, number)
            found = self._local_gradients(
                share, seed + number * SEEDS_APART, scale, carried
            )
            add = functools.partial(context.all_reduce, tf.distribute.ReduceOp.SUM)
            if not last:
                return tf.concat([add(found[0]), [0.0]], axis=0), found[1]
            sums, *gradients = add([found[0], *found[1]])
            return tf.concat([sums, [square_norm(gradients)]], axis=0), gradients

        totals, gradients = self.strategy.run(ours, args=(carried,))
        return self.strategy.experimental_local_results(totals)[0], gradients

    def _gradients_of_each(self, batch, seed, scale, carried=None):
        return self._gradients_of_all(batch, seed, scale, carried, last=False)

    def _share(self, batch, number):
        return tf.nest.map_structure(
            # Rows of a batch are in order of length: each device takes every nth.
            lambda ids: tf.reshape(
                ids, [-1, self.devices, ids.shape[1] or tf.shape(ids)[1]]
            )[:, number],
            batch,
        )

    def apply(self, gradients, factor):
        """Moves the weights.

        Args:
            gradients: from `gradients`.
            factor: what they are multiplied with: one over the tokens, the scale,
                and what clips them.
        """
        self._apply(gradients, tf.constant(factor, tf.float32))

    def _update_all(self, gradients, factor):
        self.strategy.run(self._update, args=(gradients, factor))

    def _update(self, gradients, factor):
        update(
            self.optimizer,
            self.model.trainable_variables,
            self.averages,
            self.settings.ema_decay,
            [gradient * factor for gradient in gradients],
        )

    def evaluate(self, batch):
        """`Totals` of a batch without dropout; the square norm is 0."""
        batch = _tensors(with_shares(batch, self.devices))
        return Totals(*self._evaluate(batch).numpy().tolist(), 0.0)

    def _sums(self, batch):
        return tf.stack(batch_sums(self.model, batch, 0.0))

    def _sums_of_all(self, batch):
        def ours():
            context = tf.distribute.get_replica_context()
            number = tf.cast(context.replica_id_in_sync_group, tf.int32)
            sums = self._local_sums(self._share(batch, number))
            return context.all_reduce(tf.distribute.ReduceOp.SUM, sums)

        return self.strategy.experimental_local_results(self.strategy.run(ours))[0]

    def compiled(self, function):
        """A function of the model and arrays of ids, compiled.

        Args:
            function: takes int32 tensors ``(batch, length)``, gives tensors.

        Returns:
            The same of arrays to arrays.
        """
        graph = tf.function(function, autograph=False, reduce_retracing=True)
        return lambda *ids: tf.nest.map_structure(
            lambda tensor: tensor.numpy(), graph(*map(tf.constant, ids))
        )

    def learning_rate(self):
        """The next step's."""
        return float(self.optimizer.learning_rate)

    @contextlib.contextmanager
    def averaged(self):
        """Within it, the model has the moving average of its weights, if any."""
        variables = self.model.trainable_variables if self.averages else []
        kept = [tf.identity(variable.value) for variable in variables]
        for variable, average in zip(variables, self.averages, strict=True):
            variable.assign(average.value)
        try:
            yield
        finally:
            for variable, value in zip(variables, kept, strict=True):
                variable.assign(value)

    def state(self):
        """All that a step changes but the weights: arrays by name."""
        return {
            "optimizer": to_arrays(self.optimizer.variables),
            "averages": to_arrays(self.averages),
        }

    def restore(self, state):
        """Takes `state` back, and the weights as the model has them now.

        Raises:
            ValueError: when it is of another model or another optimiser.
        """
        from_arrays(self.optimizer.variables, state["optimizer"])
        from_arrays(self.averages, state["averages"])


def _tensors(batch):
    (source, target_in), target_out = batch
    source, target_in, target_out = (
        tf.convert_to_tensor(np.asarray(x, np.int32))
        for x in (source, target_in, target_out)
    )
    return (source, target_in), target_out
