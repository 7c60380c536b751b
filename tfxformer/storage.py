"""Files and folders on a disk, or on a cluster's storage that Apache Beam reaches.

A path with ``://`` in it is of such a storage; any other is on a disk.
"""

import contextlib
import fcntl
import importlib.util
import logging
import os
import shutil

from tfxformer.errors import UserError

log = logging.getLogger("tfxformer")

# The folder, in the one to write, for what is gone in the end.
WORK = ".part"

# What Beam needs for a storage: an extra of its package.
_PARTS = {"gs": "gcp", "s3": "aws", "hdfs": "hadoop", "azfs": "azure"}


def is_remote(path):
    """Whether a path is of a cluster's storage.

    Example:
        >>> is_remote("gs://bucket/a.tsv"), is_remote("a.tsv")
        (True, False)
    """
    return "://" in path


def check_storage(path):
    """Refuses a path of storage that Beam does not reach.

    Raises:
        UserError: with what to install, or what Beam wants to know.
    """
    if not is_remote(path):
        return
    from apache_beam.io.filesystems import FileSystems

    scheme = path.partition("://")[0]
    try:
        FileSystems.get_filesystem(path)
        # Of this one Beam finds out when it reads.
        reached = scheme != "s3" or importlib.util.find_spec("boto3")
    except (OSError, ValueError) as error:
        if "hdfs_" in str(error):  # an option that is missing
            raise UserError(f"{path}: {error}: give it after --") from None
        reached = False
    if not reached:
        part = _PARTS.get(scheme)
        what = "there is gs://, s3://, hdfs:// and azfs://"
        if part:
            what = f"install its part: pip install 'apache-beam[{part}]'"
        raise UserError(f"{path}: Apache Beam does not reach such storage; {what}")


def join(folder, *names):
    """A path in a folder."""
    return "/".join([folder, *names])


def read(path):
    """The bytes of a file."""
    from apache_beam.io.filesystems import FileSystems

    with FileSystems.open(path) as file:
        return file.read()


def write(path, content):
    """Writes a file, and the folders that it is in."""
    from apache_beam.io.filesystems import FileSystems

    with FileSystems.create(path) as file:
        file.write(content)


def rename(part, path):
    """Gives a finished file its name, in one step; over another one, too."""
    if not is_remote(path):
        os.replace(part, path)
        return
    from apache_beam.io.filesystem import BeamIOError
    from apache_beam.io.filesystems import FileSystems

    try:
        FileSystems.rename([part], [path])
    except BeamIOError:
        # Not every storage renames over a file.
        if not (FileSystems.exists(part) and FileSystems.exists(path)):
            raise
        FileSystems.delete([path])
        FileSystems.rename([part], [path])


def identity(file):
    """What tells that a file is no longer the same.

    Returns:
        Its path, its size in bytes, and when it was changed, in seconds.
    """
    if is_remote(file):
        from apache_beam.io.filesystems import FileSystems

        metadata = FileSystems.match([file])[0].metadata_list[0]
        size, changed = metadata.size_in_bytes, metadata.last_updated_in_seconds
    else:
        status = os.stat(file)
        size, changed = status.st_size, status.st_mtime
    return {"path": file, "bytes": size, "changed": changed}


class Folder:
    """A folder to write.

    Args:
        path: where it is.

    Raises:
        UserError: when it is on storage that Beam does not reach.
    """

    def __init__(self, path):
        path = os.fspath(path)
        check_storage(path)
        self.path = path.rstrip("/") if is_remote(path) else os.path.abspath(path)
        self._lock = None

    def lock(self, does):
        """Makes the folder where it is not there, and keeps others from it.

        Args:
            does: what this process does with it, such as "prepares".

        Raises:
            UserError: when another process has it.
        """
        if is_remote(self.path):
            return
        os.makedirs(self.path, exist_ok=True)
        self._lock = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{self.path}: another process {does} it") from None
        except OSError as error:  # no locks on this file system
            log.warning(
                "%s: cannot be locked (%s): let one process at a time write it",
                self.path,
                error.strerror,
            )

    def release(self):
        """Lets others have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def work(self, name):
        """The path of a file that is gone in the end."""
        return join(self.path, WORK, name)

    def write(self, name, content):
        """Writes a file in it."""
        write(join(self.path, name), content)

    def write_whole(self, name, content):
        """Writes a file in it that is there wholly or not at all."""
        part, path = (join(self.path, n) for n in (f".{name}", name))
        write(part, content)
        rename(part, path)

    def names(self):
        """What is in the folder; of what is deeper, the first part."""
        if not is_remote(self.path):
            return set(os.listdir(self.path)) if os.path.isdir(self.path) else set()
        return {path.partition("/")[0] for path in self._files()}

    def delete(self, name):
        """Deletes a file or a folder in it, where it is there."""
        path = join(self.path, name)
        if is_remote(path):
            from apache_beam.io.filesystems import FileSystems

            inside = [x for x in self._files() if x == name or x.startswith(f"{name}/")]
            FileSystems.delete([join(self.path, file) for file in inside])
        elif os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)

    def remove_if_empty(self):
        """Deletes the folder itself, unless there is something in it."""
        if not is_remote(self.path):
            with contextlib.suppress(OSError):
                os.rmdir(self.path)

    def _files(self):
        from apache_beam.io.filesystems import FileSystems

        found = FileSystems.match([f"{self.path}/**"])[0].metadata_list
        return [metadata.path.removeprefix(f"{self.path}/") for metadata in found]
