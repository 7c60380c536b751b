"""Errors for the user, and files that are written whole or not at all."""

import os
import reprlib
import signal
from pathlib import Path


class UserError(Exception):
    """An input error, shown to the user without a traceback.

    The message is one line that names the file, line, option or value and says
    what to do. The command line prints it and exits with 1.
    """


class SettingError(UserError):
    """A setting that does not exist, has a wrong value, or contradicts another.

    Args:
        section: the section of the YAML file, such as "training"; None if the setting
            has none.
        name: the setting's name.
        reason: what is wrong; it has ``{}`` in the place of the other setting's name.
        value: the setting's value; ``UNKNOWN`` if there is no such setting.
        other: the name of another setting that it contradicts; or None.
        origin: the file that has the setting; or None.

    Example:
        >>> print(SettingError("training", "steps", "must be positive", value=0))
        training.steps = 0: must be positive
    """

    UNKNOWN = object()

    def __init__(self, section, name, reason, *, value, other=None, origin=None):
        super().__init__()
        self.section = section
        self.name = name
        self.reason = reason
        self.value = value
        self.other = other
        self.origin = origin

    def explain(self, spell=str):
        """The reason, with the other setting's name as the user writes it."""
        if self.other is None:
            return self.reason
        return self.reason.format(spell(self.other))

    def __str__(self):
        text = self.name if self.section is None else f"{self.section}.{self.name}"
        if self.value is not self.UNKNOWN:
            text += f" = {reprlib.repr(self.value)}"
        text += f": {self.explain()}"
        return text if self.origin is None else f"{self.origin}: {text}"


class Stopped(BaseException):
    """A signal stopped the command; ``what`` says what is saved.

    It is not an `Exception`, so that no handler treats it as a failure. Its ``code`` is
    the exit code: 130 after Ctrl-C, and 75 after SIGTERM, which asks a scheduler to run
    the command again.
    """

    def __init__(self, number, what=""):
        said, self.code = "interrupted", 130
        if number == signal.SIGTERM:
            said, self.code = "stopped by SIGTERM", 75
        super().__init__(f"{said}: {what}" if what else said)


def check_output(option, path, inputs=()):
    """Checks, before any work, that a file can be written and is not an input.

    Raises:
        UserError: otherwise; the message has the option, such as "--out".
    """
    path, folder = Path(path), Path(path).resolve().parent
    if path.is_dir():
        wrong = "is a folder; name a file"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        wrong = f"cannot be written; is there a folder {folder}?"
    elif path.exists() and any(path.samefile(file) for file in inputs):
        wrong = "is also an input; name another file"
    else:
        return
    raise UserError(f"{option} {path}: {wrong}")


def write_file(path, data):
    """Writes a file in one step: readers see the old content or all of the new.

    A symbolic link stays, and its target is replaced. A device such as
    ``/dev/stdout`` is written to directly. Returns the path.

    Raises:
        UserError: it cannot be written.

    Example:
        >>> import tempfile
        >>> path = write_file(Path(tempfile.mkdtemp(), "new.txt"), b"new")
        >>> path.read_bytes()
        b'new'
    """
    path = Path(path)
    target = path.resolve()
    part = target.with_name(f".{target.name}.part")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return path
        try:
            part.write_bytes(data)
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    return path
