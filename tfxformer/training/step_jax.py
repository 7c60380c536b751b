"""Training steps on JAX: the state goes in and comes out of pure functions."""

import contextlib

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as Spec

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


class JaxStep:
    """Gradients and updates compiled for each shape of a batch.

    Between steps the weights are arrays of this object; `sync` puts them into the
    model. For the methods' arguments see `TensorFlowStep`.

    Where JAX has several devices, of this process or of others too, each takes a share
    of a batch's rows, and the sums are over all of them. The model itself has its
    weights on one device, since it is not called on all at once.

    Args:
        model: a built `Transformer`.
        settings: a `TrainingConfig`.
    """

    def __init__(self, model, settings):
        self.model = model
        self.settings = settings
        self.optimizer = make_optimizer(model, settings)
        self.averages = make_averages(model, settings)
        # What a step changes: the weights, then all else.
        self.changing = [
            *model.trainable_variables,
            *self.optimizer.variables,
            *self.averages,
        ]
        self.devices = jax.device_count()
        self._apply = jax.jit(self._update, donate_argnums=0)
        if self.devices > 1:
            self._build_distributed()
        else:
            self._gradients = self._part = jax.jit(self._take_gradients)
            self._evaluate = jax.jit(self._sums)
        self._collect()

    def _build_distributed(self):
        layouts = keras.distribution.DataParallel(auto_shard_dataset=False)
        mesh = layouts.device_mesh.backend_mesh
        (self.axis,) = mesh.axis_names
        rows, same = Spec(self.axis), Spec()
        self.rows, self.same = NamedSharding(mesh, rows), NamedSharding(mesh, same)

        def compiled(function, inputs, outputs):
            # Unchecked: JAX would add up the gradients by itself, batch for batch.
            return jax.jit(
                jax.shard_map(
                    function,
                    mesh=mesh,
                    in_specs=inputs,
                    out_specs=outputs,
                    check_vma=False,
                )
            )

        inputs = same, rows, same, same, rows
        self._gradients = compiled(self._gradients_of_all, inputs, (same, same))
        # What each device has found so far stays on it between the batches of a step.
        self._part = compiled(self._gradients_of_each, inputs, (same, rows))
        self._evaluate = compiled(self._sums_of_all, (same, rows), same)

    def _collect(self):
        self.values = [self._placed(variable.value) for variable in self.changing]
        self.frozen = [v.value for v in self.model.non_trainable_variables]

    def _scope(self, weights):
        mapping = [
            *zip(self.model.trainable_variables, weights, strict=True),
            *zip(self.model.non_trainable_variables, self.frozen, strict=True),
        ]
        return keras.StatelessScope(state_mapping=mapping)

    @property
    def _weights(self):
        return self.values[: len(self.model.trainable_variables)]

    def _placed(self, value, rows=False):
        """An array on all devices: the whole of it, or to each a share of its rows."""
        if self.devices == 1:
            return value
        value = np.asarray(value)
        sharding = self.rows if rows else self.same
        return jax.make_array_from_callback(value.shape, sharding, value.__getitem__)

    def _here(self, value):
        """An array that all devices have, as one of this process's has it."""
        return value if self.devices == 1 else value.addressable_data(0)

    def _arrays(self, batch):
        (source, target_in), target_out = with_shares(batch, self.devices)
        source, target_in, target_out = (
            self._placed(np.asarray(x, np.int32), rows=True)
            for x in (source, target_in, target_out)
        )
        return (source, target_in), target_out

    def gradients(self, batch, seed, scale=1.0, carried=None, last=True):
        """The gradient of a batch's summed loss, added to what is carried."""
        take = self._gradients if last else self._part
        batch, seed, scale = self._arrays(batch), np.int32(seed), np.float32(scale)
        totals, gradients = take(self._weights, batch, seed, scale, carried)
        return Totals(*np.asarray(totals).tolist()), gradients

    def _take_gradients(self, weights, batch, seed, scale, carried):
        sums, gradients = self._local_gradients(weights, batch, seed, scale, carried)
        return jnp.stack([*sums, square_norm(gradients)]), gradients

    def _gradients_of_all(self, weights, batch, seed, scale, carried):
        totals, gradients = self._gradients_of_each(
            weights, batch, seed, scale, carried
        )
        gradients = [jax.lax.psum(g[0], self.axis) for g in gradients]
        return totals.at[-1].set(square_norm(gradients)), gradients

    def _gradients_of_each(self, weights, batch, seed, scale, carried):
        seed = seed + jax.lax.axis_index(self.axis) * SEEDS_APART
        if carried is not None:
            carried = [c[0] for c in carried]
        sums, gradients = self._local_gradients(weights, batch, seed, scale, carried)
        sums = jax.lax.psum(jnp.stack([*sums, 0.0]), self.axis)
        return sums, [g[None] for g in gradients]

    def _local_gradients(self, weights, batch, seed, scale, carried):
        def loss(weights):
            with self._scope(weights):
                smoothing = self.settings.label_smoothing
                sums = batch_sums(self.model, batch, smoothing, seed)
            return sums.loss * scale, sums

        gradients, sums = jax.grad(loss, has_aux=True)(weights)
        if carried is not None:
            gradients = [g + c for g, c in zip(gradients, carried, strict=True)]
        return sums, gradients

    def apply(self, gradients, factor):
        """Moves the weights."""
        self.values = self._apply(self.values, gradients, np.float32(factor))

    def _update(self, values, gradients, factor):
        mapping = [*zip(self.changing, values, strict=True)]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            update(
                self.optimizer,
                self.model.trainable_variables,
                self.averages,
                self.settings.ema_decay,
                [gradient * factor for gradient in gradients],
            )
        changed = (scope.get_current_value(variable) for variable in self.changing)
        return [
            old if new is None else new
            for old, new in zip(values, changed, strict=True)
        ]

    def evaluate(self, batch):
        """`Totals` of a batch without dropout; the square norm is 0."""
        sums = self._evaluate(self._weights, self._arrays(batch))
        return Totals(*np.asarray(sums).tolist(), 0.0)

    def _sums(self, weights, batch):
        with self._scope(weights):
            return jnp.stack(batch_sums(self.model, batch, 0.0))

    def _sums_of_all(self, weights, batch):
        return jax.lax.psum(self._sums(weights, batch), self.axis)

    def compiled(self, function):
        """A function of the model and arrays of ids, compiled."""

        def pure(weights, *ids):
            with self._scope(weights):
                return function(*ids)

        pure = jax.jit(pure)

        def arrays(*ids):
            weights = [self._here(weight) for weight in self._weights]
            return jax.tree.map(np.asarray, pure(weights, *ids))

        return arrays

    def learning_rate(self):
        """The next step's."""
        self.sync()
        return float(self.optimizer.learning_rate)

    def sync(self):
        """Gives the model the weights as they are."""
        for variable, value in zip(self.changing, self.values, strict=True):
            variable.assign(self._here(value))

    @contextlib.contextmanager
    def averaged(self):
        """Within it, the model has the moving average of its weights, if any."""
        kept = self.values
        if self.averages:
            rest = kept[len(self._weights) :]
            self.values = [*kept[-len(self.averages) :], *rest]
        self.sync()
        try:
            yield
        finally:
            self.values = kept
            self.sync()

    def state(self):
        """All that a step changes but the weights: arrays by name."""
        self.sync()
        return {
            "optimizer": to_arrays(self.optimizer.variables),
            "averages": to_arrays(self.averages),
        }

    def restore(self, state):
        """Takes `state` back, and the weights as the model has them now."""
        from_arrays(self.optimizer.variables, state["optimizer"])
        from_arrays(self.averages, state["averages"])
        self._collect()
