"""A model repository: `name/version/`, as servers watch it."""

import errno
import logging
import os
import re
import shutil
import tempfile
from pathlib import Path

from tfxformer.errors import UserError

log = logging.getLogger("tfxformer")

# The model that comes with the package, in its repository.
SHIPPED = "pt_en"


def shipped_model():
    """The model to use where none is named: its newest version.

    Returns:
        ``export/pt_en/VERSION`` in the working folder, or else in the installed
        package or in the checkout that it is imported from.

    Raises:
        UserError: where there is none.

    Example:
        >>> shipped_model().parent.name
        'pt_en'
    """
    package = Path(__file__).parents[1]
    for place in (Path(), package, package.parent):
        version = newest_version(place / "export" / SHIPPED)
        if version is not None:
            return version
    raise UserError(
        f"no model came with this installation ({package}): name one with --model"
    )


def find_model(path=None):
    """Finds the model that a path names.

    Args:
        path: a run folder, a version of an exported model, or the folder of its
            versions, whose newest is taken; None for `shipped_model`.

    Returns:
        The path of a run folder or of a version.

    Raises:
        UserError: as `shipped_model`.

    Example:
        >>> find_model("runs/mine").as_posix()
        'runs/mine'
    """
    return shipped_model() if path is None else newest_version(path) or Path(path)


def find_saved_model(path=None):
    """Finds the SavedModel that a path names.

    Args:
        path: as `find_model` takes it.

    Returns:
        The path of a folder with a ``saved_model.pb``.

    Raises:
        UserError: when there is none.

    Example:
        >>> find_saved_model("nowhere")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere: there is no such folder
    """
    path = find_model(path)
    if path.is_file():
        hint = "give the SavedModel's folder"
        if path.suffix in (".keras", ".h5"):
            hint = 'load it, call model.export("FOLDER"), and give that folder'
        raise UserError(f"{path}: is a file: {hint}")
    if not path.is_dir():
        raise UserError(f"{path}: there is no such folder")
    if (path / "config.yaml").exists():
        raise UserError(f"{path}: is a run folder: tfxformer export --run {path}")
    if not (path / "saved_model.pb").is_file():
        raise UserError(f"{path}: is not a SavedModel: it holds no saved_model.pb")
    return path


def chosen_model(path=None):
    """`find_model` for a command: a line of the log names what it finds.

    Args:
        path: as `find_model` takes it.

    Returns:
        What `find_model` gives.
    """
    path = find_model(path)
    log.info("model: %s (loading)", path)
    return path


def newest_version(folder):
    """The newest version of an exported model.

    Args:
        folder: the model's folder in its repository.

    Returns:
        ``folder/VERSION``; None where there is none.

    Example:
        >>> newest_version("nowhere")
    """
    versions = [
        int(file.parent.name)
        for file in Path(folder).glob("*/saved_model.pb")
        if file.parent.name.isdecimal()
    ]
    return Path(folder) / str(max(versions)) if versions else None


def model_folder(to, name):
    """A model's folder in a repository, ``to/name``.

    Args:
        to: the repository.
        name: the model's name in it.

    Returns:
        The path of a folder, which may not exist yet.

    Raises:
        UserError: when the name cannot be one.

    Example:
        >>> model_folder("export", "pt_en").as_posix()
        'export/pt_en'
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise UserError(
            f"model name {name!r}: use letters, digits, '_', '-' and '.' only, since "
            "it is a folder and a part of a server's addresses"
        )
    return Path(to) / name


def next_version(to, name, write):
    """Writes the next version of a model, so that nobody sees half of it.

    Args:
        to: the repository.
        name: the model's name in it.
        write: makes the folder that it is given, and fills it. If it raises, the
            repository stays as it was.

    Returns:
        The new folder, ``to/name/version``, and what ``write`` returned.

    Raises:
        UserError: when the name cannot be one, or the repository not be written.

    Example:
        >>> to = Path(tempfile.mkdtemp())
        >>> path, _ = next_version(to, "pt_en", lambda part: part.mkdir())
        >>> path.relative_to(to).as_posix()
        'pt_en/1'
    """
    folder, scratch = model_folder(to, name), None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Beside the versions, so that renaming is one step; a name that is no
        # number is no version to a server.
        scratch = Path(tempfile.mkdtemp(prefix=".part-", dir=folder))
        written = write(scratch / "1")
        return _publish(scratch / "1", folder), written
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}") from None
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def _publish(part, folder):
    """Renames the finished folder to the next version; never over another one."""
    while True:
        versions = [int(p.name) for p in folder.iterdir() if p.name.isdecimal()]
        path = folder / str(max(versions, default=0) + 1)
        try:
            os.rename(part, path)
            return path
        except OSError as error:
            # Another export took the number meanwhile: a folder that holds
            # something is not replaced by a rename.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
