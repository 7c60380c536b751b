"""Errors shown to the user, and outputs that no error leaves half written."""

import contextlib
import os
import shutil
import sys
from pathlib import Path


class UserError(Exception):
    """Input that cannot be used as it is.

    The message is one line that names the file, line, option or value and says
    what to do. The command line prints it without a traceback and exits with 1.

    Example:
        >>> str(UserError("pairs.tsv, line 3: one column; put a tab between the two"))
        'pairs.tsv, line 3: one column; put a tab between the two'
    """


# Exit codes: after SIGTERM "try again", for a scheduler that takes machines away.
PREEMPTED, INTERRUPTED = 75, 130


class Stopped(BaseException):
    """Training was told to stop and has saved its state; the same command resumes it.

    It is no `Exception`, so that nothing on the way takes it for a failure.

    Args:
        message: one line.
        code: the exit code: 75 after SIGTERM, 130 after Ctrl-C.

    Example:
        >>> Stopped("stopped at step 300", INTERRUPTED).code
        130
    """

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


def check_output(option, path, inputs=()):
    """Refuses an output that cannot be written, or that is an input, before the work.

    Args:
        option: what the command line calls it, such as "--out".
        path: the file to write.
        inputs: paths of the files that are read.

    Raises:
        UserError: with the reason.

    Example:
        >>> check_output("--out", "/")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: --out /: is a folder; name a file
    """
    exists, folder = os.path.exists(path), os.path.dirname(os.path.realpath(path))
    wrong = None
    if os.path.isdir(path):
        wrong = "is a folder; name a file"
    elif exists and not os.access(path, os.W_OK):
        wrong = "you may not write to it"
    elif (exists and not os.path.isfile(path)) or _stream(path) is not None:
        return  # a FIFO, a device, or one of our own streams
    elif not os.path.isdir(folder):
        wrong = f"there is no folder {folder}"
    elif not os.access(folder, os.W_OK):
        wrong = f"you may not write to {folder}"
    elif exists and any(os.path.samefile(path, file) for file in inputs):
        wrong = "is an input, too; name another file"
    if wrong:
        raise UserError(f"{option} {path}: {wrong}")


def write_file(path, data):
    """Writes a file: a reader sees all of it, or what was there before.

    A symbolic link stays, and the file that it names is replaced. What exists and is
    no regular file, such as a FIFO or ``/dev/stdout``, is written to as it is.

    Args:
        path: the file.
        data: its bytes.

    Returns:
        The path.

    Raises:
        UserError: when it cannot be written.

    Example:
        >>> import tempfile
        >>> path = write_file(Path(tempfile.mkdtemp(), "new.txt"), b"new")
        >>> path.read_bytes()
        b'new'
    """
    path = Path(path)
    try:
        stream = _stream(path)
        if stream is not None:
            with open(stream, "wb", closefd=False) as file:
                file.write(data)
        elif path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            _replace(Path(os.path.realpath(path)), data)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    return path


def _stream(path):
    """Which of our own streams, 1 or 2, a path names: its file is not replaced."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if os.path.samestat(os.stat(path), os.fstat(stream.fileno())):
                stream.flush()
                return stream.fileno()
    return None


def _replace(target, data):
    existed = target.exists()
    if existed:
        open(target, "r+b").close()  # one that is protected is not replaced
    part = target.with_name(f".{target.name}.part")
    try:
        part.write_bytes(data)
        if existed:
            shutil.copymode(target, part)
        os.replace(part, target)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
