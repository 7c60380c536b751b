"""What is said while work goes on: always to standard error."""

import logging
import time

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress

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
        self.bar = None
        self.said = time.monotonic()
        if console.is_terminal:
            self.bar = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=10),  # all of it fits 80 columns
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[values]}"),
                console=console,
            )
            self.task = self.bar.add_task(what, total=total, completed=done, values="")

    def __enter__(self):
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *_):
        if self.bar:
            self.bar.stop()

    def update(self, done, **values):
        """Shows how far it is.

        Args:
            done: how many steps are done.
            values: numbers worth watching.
        """
        if self.bar:
            self.bar.update(self.task, completed=done, values=_text(values))
        elif time.monotonic() - self.said > LINE_EVERY:
            self.said = time.monotonic()
            say(f"{self.what} {done:,}/{self.total:,}: {_text(values)}")


def _text(values):
    return "  ".join(
        f"{name.removeprefix('masked_')} {value:.2f}" for name, value in values.items()
    )
