"""What goes to standard error: logs and progress, and not TensorFlow's own notes."""

import contextlib
import gc
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from datetime import timedelta

from rich import progress
from rich.console import Console

from tfxformer.errors import UserError

console = Console(stderr=True, highlight=False)

# Seconds between two lines where standard error is no terminal.
LINE_EVERY = 15


def start_logging(quiet=False):
    """Sends the package's log to standard error, as plain lines.

    Args:
        quiet: warnings and errors only.
    """
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


class Progress:
    """A progress bar on a terminal; elsewhere a line now and then.

    Args:
        what: what is going on.
        total: how many steps there are.
        done: how many were done before.
    """

    def __init__(self, what, total, done=0):
        self.what, self.total = what, total
        self.said = time.monotonic()
        self.bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=8),
            progress.TextColumn("{task.fields[state]}", markup=False),
            console=console,
            get_time=time.monotonic,
            speed_estimate_period=3600,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task(what, total=total, completed=done, state="")

    def __enter__(self):
        self.bar.start()
        return self

    def __exit__(self, *_):
        self.bar.stop()

    def update(self, done, **values):
        """Shows how far it is.

        Args:
            done: how many steps are done.
            values: numbers worth watching, the most important first: on a narrow
                terminal the last ones are left out.
        """
        self.bar.update(self.task, completed=done)
        left = _clock(self.bar.tasks[0].time_remaining)
        values = [_value(*item) for item in values.items()]
        if console.is_terminal:
            parts = [f"{done}/{self.total}", left, *values]
            # What is before them, and the bar, each with a space behind it.
            room = console.width - len(self.what) - 1 - 8 - 1
            while len(" ".join(parts)) > room and len(parts) > 2:
                parts.pop()
            self.bar.update(self.task, state=" ".join(parts))
        elif time.monotonic() - self.said > LINE_EVERY:
            self.said = time.monotonic()
            parts = [f"{done:,}/{self.total:,}", f"{left} left", *values]
            say(f"{self.what} {', '.join(parts)}")


def _clock(seconds):
    """Hours, minutes and seconds; from a day on without the seconds.

    Example:
        >>> _clock(3725), _clock(200_000), _clock(None)
        ('1:02:05', '2d 7:33', '-:--:--')
    """
    if seconds is None:
        return "-:--:--"
    days, seconds = divmod(int(seconds), 24 * 3600)
    clock = str(timedelta(seconds=seconds))
    return f"{days}d {clock[:-3]}" if days else clock


# How measured values are called and written, where not by their name and two places.
_FORMATS = {
    "learning_rate": "lr {:.1e}",
    "target_tokens_per_second": "{:,.0f} tokens/s",
}


def _value(name, value):
    if name in _FORMATS:
        return _FORMATS[name].format(value)
    places = 0 if abs(value) >= 1000 else 2
    return f"{name.removeprefix('masked_').replace('_', ' ')} {value:,.{places}f}"


def printable(text):
    r"""Text on one line, without tabs or what would change a terminal's state.

    Example:
        >>> print(printable("one\ttwo\x1b[2J"))
        one\ttwo\x1b[2J
    """
    return "".join(
        character if character.isprintable() else repr(character)[1:-1]
        for character in text
    )


@contextlib.contextmanager
def quiet_stderr():
    """Holds back what is written to standard error, from C++ too.

    It is shown after all if the body raises, unless Ctrl-C ended it.
    """
    try:
        sys.stderr.flush()
        kept = os.dup(2)
    except (AttributeError, OSError):  # standard error is closed
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException:
            os.dup2(kept, 2)
            held.seek(0)
            sys.stderr.write(held.read().decode(errors="replace"))
            raise
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


@contextlib.contextmanager
def _interrupts_kept():
    """Raises Ctrl-C again in the end: TensorFlow's import loses one in seven."""
    if threading.current_thread() is not threading.main_thread():
        yield  # where Python handles no signals
        return
    caught = []

    def interrupt(*_):
        caught.append(True)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if caught:
        raise KeyboardInterrupt


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
    with _interrupts_kept(), contextlib.nullcontext() if wordy else quiet_stderr():
        # Nothing made here is garbage: collecting takes a quarter of the time.
        gc.disable()
        try:
            import keras  # noqa: F401
            import tensorflow as tf

            # Workers of one cluster must meet before TensorFlow begins.
            if not os.environ.get("TF_CONFIG"):
                tf.zeros(())  # starts the runtime, which has notes of its own
        finally:
            gc.enable()
    gc.freeze()  # what has been imported stays: no need to look at it ever again
