"""Standard error: logs and progress, without TensorFlow's own messages."""

import contextlib
import gc
import logging
import os
import sys
import tempfile
import time

from rich import progress
from rich.console import Console
from rich.table import Column

from tfxformer.errors import UserError

console = Console(stderr=True, highlight=False)

# Seconds between two progress lines where standard error is not a terminal.
LINE_EVERY = 15


def start_logging(quiet=False):
    """Sends the log to standard error; with ``quiet``, only warnings and errors."""
    log = logging.getLogger("tfxformer")
    log.setLevel(logging.WARNING if quiet else logging.INFO)
    log.propagate = False
    log.handlers = [_Handler()]


def say(line):
    """Prints a line to standard error, above the progress bar if there is one."""
    console.print(line, markup=False, soft_wrap=True)


class _Handler(logging.Handler):
    def emit(self, record):
        prefix = "" if record.levelno == logging.INFO else f"{record.levelname}: "
        say(prefix.lower() + self.format(record))


class Progress(progress.Progress):
    """A progress bar on a terminal; elsewhere a line every `LINE_EVERY` seconds.

    Args:
        what: the name of the task.
        total: the number of steps.
        done: the steps that are already done.
    """

    def __init__(self, what, total, done=0):
        cut = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        super().__init__(
            "{task.description}",
            progress.BarColumn(bar_width=8),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.fields[values]}", table_column=cut),
            console=console,
            speed_estimate_period=3600,
            expand=True,
            disable=not console.is_terminal,
        )
        self.add_task(what, total=total, completed=done, values="")
        self.said = time.monotonic()

    def show(self, done, values):
        """Updates the bar, or prints a line.

        Args:
            done: the steps that are done.
            values: the values to watch as text, the most important first: a narrow
                terminal cuts off the end.
        """
        (task,) = self.tasks
        self.update(task.id, completed=done, values=values)
        if self.disable and time.monotonic() - self.said > LINE_EVERY:
            self.said = time.monotonic()
            left = progress.TimeRemainingColumn().render(task)
            say(f"{task.description} {done:,}/{task.total:,}, {left} left, {values}")


@contextlib.contextmanager
def quiet_stderr():
    """Hides output to standard error, C++'s included, unless the body raises."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except Exception:
            held.seek(0)
            os.write(kept, held.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


def start_tensorflow():
    """Imports Keras on TensorFlow, and lets TensorFlow find its devices.

    ``TF_CPP_MIN_LOG_LEVEL=0`` in the environment shows TensorFlow's messages.

    Raises:
        UserError: ``KERAS_BACKEND`` names another backend.
    """
    # The environment variable overrides Keras's own settings file.
    backend = os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        raise UserError(
            f"tfxformer runs on TensorFlow: set KERAS_BACKEND=tensorflow, not {backend}"
        )
    verbose = os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0"
    gc.disable()  # imports leave no garbage, and collecting takes a quarter of the time
    with contextlib.nullcontext() if verbose else quiet_stderr():
        import keras  # noqa: F401
        import tensorflow as tf

        # The workers of a cluster must connect before TensorFlow's runtime starts.
        if not os.environ.get("TF_CONFIG"):
            tf.zeros(())  # starts the runtime, which prints messages of its own
    gc.enable()
    gc.freeze()  # imported modules stay: never scan them again
