"""A storage that Apache Beam knows and Python's open does not."""

import os

from apache_beam.io.filesystem import BeamIOError, FileMetadata
from apache_beam.io.localfilesystem import LocalFileSystem


def make_storage(root, scheme, renames_over=True):
    """Lets Beam reach a local folder as ``scheme://``, while the result lives.

    Args:
        root: the folder.
        scheme: letters that no other storage has; an old one may live on.
        renames_over: whether a file can be renamed to the name of another one.

    Returns:
        Beam's file system: keep it.
    """

    name = scheme

    def here(path):
        return path.replace(f"{name}://", f"{root}/")

    class Far(LocalFileSystem):
        @classmethod
        def scheme(cls):
            return name

        def open(self, path, *args, **kwargs):
            return super().open(here(path), *args, **kwargs)

        def create(self, path, *args, **kwargs):
            return super().create(here(path), *args, **kwargs)

        def exists(self, path):
            return super().exists(here(path))

        def metadata(self, path):
            found = super().metadata(here(path))
            return FileMetadata(
                path, found.size_in_bytes, found.last_updated_in_seconds
            )

        def rename(self, sources, targets):
            if not renames_over and any(map(self.exists, targets)):
                raise BeamIOError("there is one of that name")
            super().rename([*map(here, sources)], [*map(here, targets)])

        def _list(self, path):
            for found in super()._list(here(path)):
                yield self.metadata(found.path.replace(f"{root}/", f"{name}://"))

        def split(self, path):
            return path.rsplit("/", 1)

        def delete(self, paths):
            for path in paths:
                os.remove(here(path))

    return Far
