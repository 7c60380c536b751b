"""What is said while work goes on: always to standard error."""

import logging
import time
from datetime import timedelta

from rich import progress
from rich.console import Console

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
