"""What is said while work goes on: always to standard error."""

import logging
import time

from rich.console import Console
from rich.progress import BarColumn, TextColumn
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
        # When the first step was done, which may have had to compile.
        self.begun = None
        if console.is_terminal:
            self.bar = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=8),
                TextColumn("{task.fields[state]}", markup=False),
                console=console,
            )
            self.task = self.bar.add_task(what, total=total, completed=done, state="")

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
            values: numbers worth watching, the most important first: on a narrow
                terminal the last ones are left out.
        """
        now = time.monotonic()
        if self.begun is None:
            self.begun = done, now
        first, since = self.begun
        left = "-:--:--"
        if done > first:
            left = _duration((self.total - done) * (now - since) / (done - first))
        if self.bar:
            parts = [f"{done}/{self.total}", left, *map(_value, values.items())]
            # What is before them, and the bar, each with a space behind it.
            room = console.width - len(self.what) - 1 - 8 - 1
            while len(" ".join(parts)) > room and len(parts) > 2:
                parts.pop()
            self.bar.update(self.task, completed=done, state=" ".join(parts))
        elif now - self.said > LINE_EVERY:
            self.said = now
            parts = [f"{done:,}/{self.total:,}", f"{left} left"]
            say(f"{self.what} " + ", ".join([*parts, *map(_value, values.items())]))


# How measured values are called and written, where not by their name and two places.
_FORMATS = {
    "learning_rate": "lr {:.1e}",
    "target_tokens_per_second": "{:,.0f} tokens/s",
}


def _value(item):
    name, value = item
    if name in _FORMATS:
        return _FORMATS[name].format(value)
    places = 0 if abs(value) >= 1000 else 2
    return f"{name.removeprefix('masked_').replace('_', ' ')} {value:,.{places}f}"


def _duration(seconds):
    """Hours, minutes and seconds; from a day on without the seconds.

    Example:
        >>> _duration(3725), _duration(200_000)
        ('1:02:05', '2d 7:33')
    """
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}:{minutes:02}:{seconds:02}"
    return f"{hours // 24}d {hours % 24}:{minutes:02}"


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
