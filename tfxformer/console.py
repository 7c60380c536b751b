"""Standard error: the log, without TensorFlow's own messages."""

import contextlib
import gc
import logging
import os
import stat
import sys
import tempfile

from rich.console import Console
from rich.progress import Progress

from tfxformer.errors import UserError

console = Console(stderr=True, highlight=False, emoji=False)


def start_logging(quiet=False):
    """Sends the log to standard error; with ``quiet``, only warnings and errors."""
    log = logging.getLogger("tfxformer")
    log.setLevel(logging.WARNING if quiet else logging.INFO)
    log.propagate = False
    log.handlers = [_Handler()]


def say(line):
    """Prints a line to standard error."""
    console.print(line, markup=False, soft_wrap=True)


def watched_lines(stream):
    """Yields the lines of a binary stream, and shows on a terminal how many are read.

    If the answers go to the terminal, they show it themselves. If a person types the
    lines, a bar would be in the way.
    """
    if not console.is_terminal or sys.stdout.isatty() or stream.isatty():
        yield from stream
        return
    status = os.fstat(stream.fileno())
    size = status.st_size if stat.S_ISREG(status.st_mode) else None
    with Progress(console=console, transient=True) as progress:
        yield from progress.wrap_file(stream, total=size, description="translating")


class _Handler(logging.Handler):
    def emit(self, record):
        prefix = "" if record.levelno == logging.INFO else f"{record.levelname}: "
        say(prefix.lower() + self.format(record))


@contextlib.contextmanager
def quiet_stderr():
    """Hides output to standard error, C++'s included, unless the body raises.

    ``TF_CPP_MIN_LOG_LEVEL=0`` in the environment shows it.
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0":
        yield
        return
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
    """Imports Keras on TensorFlow, and lets TensorFlow find its devices."""
    # The environment variable overrides Keras's own settings file.
    backend = os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        raise UserError(
            f"tfxformer runs on TensorFlow: set KERAS_BACKEND=tensorflow, not {backend}"
        )
    gc.disable()  # imports leave no garbage, and collecting takes a quarter of the time
    with quiet_stderr():
        import keras  # noqa: F401
        import tensorflow as tf

        # The workers of a cluster must connect before TensorFlow's runtime starts.
        if not os.environ.get("TF_CONFIG"):
            tf.zeros(())  # starts the runtime, which prints messages of its own
    gc.enable()
    gc.freeze()  # imported modules stay: never scan them again
