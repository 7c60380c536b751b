"""What goes to standard error: logs and progress, and not TensorFlow's own notes."""

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

# Seconds between two lines where standard error is no terminal.
LINE_EVERY = 15


def start_logging(quiet=False):
    """Sends the log, or its warnings and errors only, to standard error."""
    log = logging.getLogger("tfxformer")
    log.setLevel(logging.WARNING if quiet else logging.INFO)
    log.propagate = False
    log.handlers = [_Handler()]


def say(line):
    """Prints a line to standard error, above a progress bar if one is there."""
    console.print(line, markup=False, soft_wrap=True)


class _Handler(logging.Handler):
    def emit(self, record):
        prefix = "" if record.levelno == logging.INFO else f"{record.levelname}: "
        say(prefix.lower() + self.format(record))


class Progress(progress.Progress):
    """A progress bar on a terminal; elsewhere a line now and then.

    Args:
        what: what is going on.
        total: how many steps there are.
        done: how many were done before.
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
        """Shows how far it is.

        Args:
            done: how many steps are done.
            values: a text of what is worth watching, the most important first: a
                narrow terminal cuts off its end.
        """
        (task,) = self.tasks
        self.update(task.id, completed=done, values=values)
        if self.disable and time.monotonic() - self.said > LINE_EVERY:
            self.said = time.monotonic()
            left = progress.TimeRemainingColumn().render(task)
            say(f"{task.description} {done:,}/{task.total:,}, {left} left, {values}")


@contextlib.contextmanager
def quiet_stderr():
    """Holds back what is written to standard error, from C++ too, unless it fails."""
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

    ``TF_CPP_MIN_LOG_LEVEL=0`` in the environment shows TensorFlow's notes.

    Raises:
        UserError: when ``KERAS_BACKEND`` names another backend.
    """
    # What the environment says goes before what Keras's own settings file says.
    backend = os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        raise UserError(
            f"tfxformer runs on TensorFlow: set KERAS_BACKEND=tensorflow, not {backend}"
        )
    wordy = os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0"
    gc.disable()  # nothing made here is garbage: collecting takes a quarter of the time
    with contextlib.nullcontext() if wordy else quiet_stderr():
        import keras  # noqa: F401
        import tensorflow as tf

        # Workers of one cluster must meet before TensorFlow begins.
        if not os.environ.get("TF_CONFIG"):
            tf.zeros(())  # starts the runtime, which has notes of its own
    gc.enable()
    gc.freeze()  # what has been imported stays: no need to look at it ever again
