"""Training on several devices, and in several processes on several machines.

Every process reads the same batches and each device takes its share of the rows; the
sums over the devices are what one device would have found. The first process, the
chief, is the only one that writes.
"""

import atexit
import contextlib
import functools
import json
import os
import signal
import sys
import tempfile

import keras
import numpy as np

from tfxformer.console import console, say
from tfxformer.errors import Stopped, UserError


class Workers:
    """The processes that train together; often it is this one alone.

    Args:
        number: which of them this one is; 0 is the chief.
        count: how many there are.
        devices: how many devices all of them have together.
        scope: makes the context in which variables are created on all devices.
        exchange: takes a float32 vector, gives those of all processes,
            ``(count, n)``; not used where there is one.

    A process sets ``agreed`` when all of them have agreed to end.
    """

    def __init__(
        self,
        number=0,
        count=1,
        devices=1,
        scope=contextlib.nullcontext,
        exchange=None,
    ):
        self.number, self.count, self.devices = number, count, devices
        self.scope = scope
        self.exchange = exchange
        self.agreed = False

    @property
    def chief(self):
        """Whether this process writes down what they all do."""
        return self.number == 0

    def gather(self, value):
        """What each process has, in their order.

        Args:
            value: anything that JSON can hold.

        Returns:
            A list of such.
        """
        if self.count == 1:
            return [value]
        text = np.frombuffer(json.dumps(value).encode(), np.uint8)
        # All must bring as much, and single precision holds a byte exactly.
        sizes = self.exchange(np.array([len(text) >> 16, len(text) & 65535], "f4"))
        sizes = [int(high) << 16 | int(low) for high, low in sizes]
        padded = np.zeros(max(sizes), np.float32)
        padded[: len(text)] = text
        rows = self.exchange(padded).astype(np.uint8)
        return [
            json.loads(row[:size].tobytes())
            for row, size in zip(rows, sizes, strict=True)
        ]

    def chiefs(self, value):
        """What the chief has, for all."""
        return self.gather(value if self.chief else None)[0]

    def largest(self, value):
        """The largest of a small whole number that each process has."""
        if self.count == 1:
            return value
        return int(self.exchange(np.array([value], np.float32)).max())

    def together(self, do):
        """Does something here, and waits until the others have done the same.

        Args:
            do: a function without arguments.

        Returns:
            What it returns.

        Raises:
            UserError: when it does so here; and when it does elsewhere, so that all
                stop.
        """
        if self.count == 1:
            return do()
        found = failed = None
        try:
            found = do()
        except UserError as error:
            failed = error
        failures = self.gather(failed and str(failed))
        self.agreed = any(failures)
        if failed:
            raise failed
        for number, message in enumerate(failures):
            if message:
                raise UserError(f"worker {number}: {message}")
        return found

    def same(self, what, value):
        """Makes sure that all processes have the same.

        Args:
            what: how to call it.
            value: a dict that JSON can hold.

        Raises:
            UserError: in all of them, naming the first that differs and in what.
        """
        found = self.gather(value)
        for number, other in enumerate(found):
            names = [name for name in found[0] if found[0][name] != other.get(name)]
            if names:
                self.agreed = True
                raise UserError(
                    f"worker {number}: {what} is not worker 0's ({', '.join(names)}): "
                    "start all with the same command, on a run folder and on sources "
                    "that all of them see"
                )

    @contextlib.contextmanager
    def watched(self):
        """Within it, a process that is lost is an error of this one.

        All but the chief are silent within it.

        Raises:
            UserError: when another process has ended, or is not heard of any more.
        """
        if self.count == 1:
            yield
            return
        code = None
        lost = (
            f"worker {self.number} of {self.count}: another worker was lost (its own "
            "messages may say why): start all of them again, with the same commands, "
            "and they go on from the last checkpoint"
        )
        with _native_output_kept():
            was_quiet, console.quiet = console.quiet, not self.chief
            try:
                yield
            except Stopped as error:
                code = error.code
                raise
            except UserError:
                code = 1
                raise
            except Exception as error:
                code = 1
                if _is_loss(error):
                    raise UserError(lost) from None
                raise
            finally:
                console.quiet = was_quiet
                if code is not None and not self.agreed:
                    # TensorFlow waits at the end for the others, who wait for us.
                    atexit.register(_leave, code)


def _leave(code):
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


def _is_loss(error):
    """Whether an exception of TensorFlow means that another process is gone."""
    import tensorflow as tf

    gone = (tf.errors.UnavailableError, tf.errors.AbortedError)
    gone += (tf.errors.CancelledError, tf.errors.DeadlineExceededError)
    return isinstance(error, gone) or (
        isinstance(error, tf.errors.OpError) and "ollective" in str(error)
    )


@contextlib.contextmanager
def _native_output_kept():
    """Holds back what C++ writes, which what Python says on standard error goes past.

    TensorFlow writes pages when another process is lost. They are shown where it was
    something else. ``TF_CPP_MIN_LOG_LEVEL=0`` in the environment shows all as it comes.
    """
    if sys.stderr is None or os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0":
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    before, stdout, kept = sys.stderr, os.dup(1), os.dup(2)
    with tempfile.TemporaryFile() as held, os.fdopen(kept, "w", buffering=1) as stderr:
        os.dup2(held.fileno(), 1)
        os.dup2(held.fileno(), 2)
        sys.stderr = stderr
        try:
            yield
        except (UserError, Stopped):
            raise
        except BaseException:
            held.seek(0)
            stderr.write(held.read().decode(errors="replace"))
            raise
        finally:
            sys.stdout.flush()
            stderr.flush()
            os.dup2(stdout, 1)
            os.dup2(kept, 2)
            os.close(stdout)
            sys.stderr = before


def join():
    """Meets the other processes, if there are any, and finds this one's devices.

    The environment's ``TF_CONFIG`` names them. All devices that TensorFlow shows are
    used: ``CUDA_VISIBLE_DEVICES`` hides some.

    Returns:
        `Workers`.

    Raises:
        UserError: when the environment is not as it must be, or the others cannot be
            met.
    """
    cluster = _tf_config()
    if cluster is not None:
        return _join_cluster(*cluster)
    import tensorflow as tf

    devices = keras.distribution.list_devices()
    if len(devices) == 1:
        return Workers()
    strategy = tf.distribute.MirroredStrategy([name.upper() for name in devices])
    return Workers(devices=len(devices), scope=strategy.scope)


def _tf_config():
    """This process's number and the addresses of all, or None for a single one."""
    text = os.environ.get("TF_CONFIG", "")
    if not text.strip():
        return None
    example = (
        '{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, '
        '"task": {"type": "worker", "index": 0}}'
    )
    try:
        config = json.loads(text)
        jobs = config.get("cluster", {})
        addresses = [*jobs.get("chief", []), *jobs.get("worker", [])]
        if len(addresses) < 2:
            return None
        task = config["task"]
        kind, index = task["type"], int(task["index"])
        known = jobs.get(kind, []) if kind in ("chief", "worker") else []
        if not 0 <= index < len(known):
            raise UserError(
                f"TF_CONFIG: its task is {kind} {index}, which its cluster's chief and "
                "workers do not have: only those train"
            )
        if not all(isinstance(address, str) for address in addresses):
            raise TypeError
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UserError(f"TF_CONFIG: must be JSON such as {example}") from None
    number = index + (len(jobs.get("chief", [])) if kind == "worker" else 0)
    return number, tuple(addresses)


@functools.cache
def _join_cluster(number, addresses):
    import tensorflow as tf

    from tfxformer.quiet import quiet_stderr

    count = len(addresses)
    say(f"worker {number} of {count}: waiting for the others ({addresses[number]})")
    try:
        with _interruptible(), quiet_stderr():
            strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except (RuntimeError, ValueError, tf.errors.OpError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"worker {number} of {count}: could not meet the others: {reason}"
        ) from None
    devices = strategy.num_replicas_in_sync
    local = devices // count

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def everyones(vector):
        def ours(vector):
            context = tf.distribute.get_replica_context()
            replica = tf.cast(context.replica_id_in_sync_group, tf.int32)
            # A row for each process, which the first of its devices fills.
            rows = tf.one_hot(replica // local, count) * tf.cast(
                replica % local == 0, tf.float32
            )
            table = rows[:, None] * vector[None]
            return context.all_reduce(tf.distribute.ReduceOp.SUM, table)

        return strategy.run(ours, args=(vector,))

    def exchange(vector):
        found = everyones(tf.constant(vector, tf.float32))
        return strategy.experimental_local_results(found)[0].numpy()

    return Workers(number, count, devices, strategy.scope, exchange)


@contextlib.contextmanager
def _interruptible():
    """Within it Ctrl-C ends the process, though Python is not there to see it."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    except ValueError:  # not in the main thread, where signals do not come anyway
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
