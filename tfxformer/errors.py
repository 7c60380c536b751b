"""Errors shown to the user, and outputs that no error leaves half written."""

import os
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
    path, folder = Path(path), Path(path).resolve().parent
    wrong = None
    if path.is_dir():
        wrong = "is a folder; name a file"
    elif not path.exists() and not folder.is_dir():
        wrong = f"there is no folder {folder}"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        wrong = "you may not write to it"
    elif path.exists() and any(path.samefile(file) for file in inputs):
        wrong = "is an input, too; name another file"
    if wrong:
        raise UserError(f"{option} {path}: {wrong}")


def write_file(path, data):
    """Writes a file: a reader sees all of it, or what was there before.

    A symbolic link stays, and the file that it names is replaced. What is no regular
    file, such as ``/dev/stdout``, is written to.

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
