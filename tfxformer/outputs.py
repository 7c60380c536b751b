"""Files that a command writes: whole or not there, and never over an input."""

import contextlib
import os
import shutil
import sys
from pathlib import Path

from tfxformer.errors import UserError


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
    if _stream(path) is not None:
        return
    if os.path.isdir(path):
        raise UserError(f"{option} {path}: is a folder; name a file")
    exists = os.path.exists(path)
    if exists and not os.access(path, os.W_OK):
        raise UserError(f"{option} {path}: you may not write to it")
    if exists and not os.path.isfile(path):
        return  # a FIFO or a device
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise UserError(f"{option} {path}: there is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise UserError(f"{option} {path}: you may not write to {folder}")
    if exists and any(os.path.samefile(path, file) for file in inputs):
        raise UserError(f"{option} {path}: is an input, too; name another file")


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


def make_folder(path):
    """Makes a folder and those that it is in.

    Args:
        path: the folder.

    Returns:
        The folders that were not there before, the innermost first.
    """
    path = Path(path)
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    return made


def remove_folder(made):
    """Removes a folder that `make_folder` made, and those around it, if now empty.

    Args:
        made: what `make_folder` returned.
    """
    if made:
        shutil.rmtree(made[0], ignore_errors=True)
    for folder in made[1:]:
        with contextlib.suppress(OSError):
            folder.rmdir()
