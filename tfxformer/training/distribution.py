"""Training on several devices, and in several processes on several machines.

Every process reads the same batches, and `tf.distribute` gives each device its share
of the rows. The first process, the chief, is the only one that writes.
"""

import contextlib
import json
import os
from typing import Any, NamedTuple

import tensorflow as tf

from tfxformer.console import console, quiet_stderr, say
from tfxformer.errors import UserError


class Cluster(NamedTuple):
    """The processes that train together; often it is this one alone."""

    strategy: Any  # a `tf.distribute.Strategy`
    number: int = 0  # of this process; 0 is the chief
    count: int = 1  # of processes

    @property
    def chief(self):
        """Whether this process writes down what all do."""
        return self.number == 0

    def describe(self):
        """The devices of all processes, in words."""
        count = self.strategy.num_replicas_in_sync
        kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        where = f"{count} {kind}" + ("s" if count > 1 else "")
        return where + (f" of {self.count} processes" if self.count > 1 else "")

    def in_turn(self, do):
        """Calls a function in the chief, then in the others; all end if one fails."""
        found = failure = None
        for turn in (True, False)[: self.count]:
            if self.chief == turn:
                try:
                    found = do()
                except UserError as error:
                    failure = error
            failed = self._sum(0.0 if failure is None else 1.0)
            if failure is not None:
                raise failure
            if failed:
                raise UserError(
                    f"worker {self.number} of {self.count}: another worker cannot "
                    "train; its own message says why"
                )
        return found

    def _sum(self, number):
        """What all processes have, added up; it waits for them."""
        if self.count == 1:
            return number
        everyone = tf.function(lambda: self.strategy.run(lambda: tf.constant(number)))
        return float(self.strategy.reduce("SUM", everyone(), axis=None))

    @contextlib.contextmanager
    def watched(self):
        """Within it, only the chief speaks, and the loss of a process is one error."""
        was_quiet, console.quiet = console.quiet, not self.chief
        try:
            yield
        except tf.errors.OpError as error:
            if self.count == 1:
                raise
            reason = (error.message.splitlines() or [""])[0]
            raise UserError(
                f"worker {self.number} of {self.count}: another worker was lost "
                f"({reason}): start all of them again, with the same commands, and "
                "they resume from the last checkpoint"
            ) from None
        finally:
            console.quiet = was_quiet


def join():
    """Meets the other processes, if there are any, and finds this one's devices.

    The environment's ``TF_CONFIG`` names the processes. All devices that TensorFlow
    shows are used: ``CUDA_VISIBLE_DEVICES`` hides some.

    Returns:
        A `Cluster`.

    Raises:
        UserError: ``TF_CONFIG`` is wrong, or the others cannot be met.
    """
    try:
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
        jobs = config.get("cluster", {})
        count = len(jobs.get("chief", [])) + len(jobs.get("worker", []))
        if count > 1:
            resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
            number = int(resolver.task_id)
            if resolver.task_type == "worker":
                number += len(jobs.get("chief", []))
            elif resolver.task_type != "chief":
                raise ValueError("only its chief and its workers train")
            say(f"worker {number} of {count}: waiting for the others")
            with quiet_stderr():
                strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
            return Cluster(strategy, number, count)
    except (ValueError, TypeError, AttributeError, tf.errors.OpError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise UserError(f"TF_CONFIG: the workers cannot meet: {reason}") from None
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    devices = tf.config.list_logical_devices(kind)
    if len(devices) > 1:
        return Cluster(tf.distribute.MirroredStrategy([each.name for each in devices]))
    return Cluster(tf.distribute.get_strategy())
