"""Several devices, and several processes on several machines."""

import contextlib
from typing import Any, NamedTuple

import tensorflow as tf

from tfxformer.console import console, quiet_stderr, say
from tfxformer.errors import UserError


class Cluster(NamedTuple):
    """The processes that train together; usually one.

    Every process reads the same batches, and `tf.distribute` gives each device its
    share of the rows. Only the first process, the chief, writes files.
    """

    strategy: Any  # a `tf.distribute.Strategy`
    number: int = 0  # this process's number
    count: int = 1  # the number of processes

    chief = property(lambda self: self.number == 0)

    def describe(self):
        """The devices of all processes, as text."""
        count = self.strategy.num_replicas_in_sync
        kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        where = f"{count} {kind}" + ("s" if count > 1 else "")
        return where + (f" of {self.count} processes" if self.count > 1 else "")

    def wait(self):
        """Waits for the other processes."""
        if self.count > 1:
            everyone = tf.function(lambda: self.strategy.run(tf.ones, args=([],)))
            self.strategy.reduce("SUM", everyone(), axis=None)

    @contextlib.contextmanager
    def watched(self):
        """Lets only the chief log, and reports a lost process as one error."""
        was_quiet, console.quiet = console.quiet, not self.chief
        try:
            yield
        except tf.errors.OpError as error:
            if self.count == 1:
                raise
            raise UserError(
                f"worker {self.number} of {self.count}: another worker was lost "
                f"({error.message.splitlines()[0]}): see its error, or start all "
                "workers again to resume from the last checkpoint"
            ) from None
        finally:
            console.quiet = was_quiet


def join():
    """Connects to the other processes, if any, and finds the devices: a `Cluster`.

    Raises:
        UserError: ``TF_CONFIG`` is wrong, or the other processes cannot be reached.
    """
    try:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        jobs = resolver.cluster_spec().as_dict()
        chiefs, workers = jobs.get("chief", []), jobs.get("worker", [])
        count = len(chiefs) + len(workers)
        if count > 1:
            number = int(resolver.task_id)
            number += len(chiefs) if resolver.task_type == "worker" else 0
            say(f"worker {number} of {count}: waiting for the others")
            with quiet_stderr():
                strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
            return Cluster(strategy, number, count)
    except (ValueError, TypeError, AttributeError, tf.errors.OpError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"TF_CONFIG: the workers cannot connect: {reason}") from None
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    devices = tf.config.list_logical_devices(kind)
    if len(devices) > 1:
        return Cluster(tf.distribute.MirroredStrategy([each.name for each in devices]))
    return Cluster(tf.distribute.get_strategy())
