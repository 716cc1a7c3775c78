"""fsspec's own tests of putting and getting files, over the face that archives have for a place."""

import os

import pytest

pytest.importorskip("fsspec", reason="pip install -r requirements-archive.lock")
from fsspec import AbstractFileSystem
from fsspec.tests import abstract

from zoerefine.lab.archive.remote import NotThereError, Remote, file_blocks


class RemoteSystem(AbstractFileSystem):
    """A `Remote` as a file system of fsspec.

    Attributes:
        folder: on a disk, where folders are made and removed; an object store has none.
    """

    cachable = False

    def __init__(self, remote, folder=None):
        super().__init__()
        self.remote, self.folder = remote, folder

    def _place(self, path):
        above, _, name = self._strip_protocol(path).rpartition("/")
        return self.remote.inside(above) if above else self.remote, name

    def ls(self, path, detail=True, **_):
        path = self._strip_protocol(path)
        above, name = self._place(path)
        sizes = above.sizes()
        if name in sizes:
            found = {path: sizes[name]}
        else:
            here = self.remote.inside(path)
            try:
                folders = here.folders()
            except NotThereError:
                raise FileNotFoundError(path) from None
            files = {f"{path}/{name}": size for name, size in here.sizes().items()}
            found = files | {f"{path}/{name}": None for name in folders}
        rows = [
            {"name": name, "size": size, "type": "directory" if size is None else "file"}
            for name, size in found.items()
        ]
        return rows if detail else list(found)

    def put_file(self, lpath, rpath, *_, **__):
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        remote, name = self._place(rpath)
        remote.write(name, file_blocks(lpath))

    def pipe_file(self, path, value, **_):
        remote, name = self._place(path)
        remote.write(name, [value])

    def touch(self, path, **_):
        self.pipe_file(path, b"")

    def get_file(self, rpath, lpath, **_):
        if self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        remote, name = self._place(rpath)
        os.makedirs(os.path.dirname(lpath), exist_ok=True)
        with open(lpath, "wb") as file:
            file.writelines(remote.blocks(name))

    def cat_file(self, path, **_):
        remote, name = self._place(path)
        return b"".join(remote.blocks(name))

    def makedirs(self, path, exist_ok=False):
        if self.folder:
            os.makedirs(self.folder / self._strip_protocol(path), exist_ok=exist_ok)

    def mkdir(self, path, **_):
        self.makedirs(path)

    def rm_file(self, path):
        if self.folder and self.isdir(path):
            os.rmdir(self.folder / self._strip_protocol(path))
        elif not self.isdir(path):
            remote, name = self._place(path)
            remote.remove(name)


class Fixtures(abstract.AbstractFixtures):
    """Each kind of place; see this folder's conftest.py."""

    @pytest.fixture
    def fs(self, place):
        folder = getattr(place, "path", None)
        if folder:
            folder.mkdir()
        return RemoteSystem(Remote(place.url), folder)

    @pytest.fixture
    def fs_path(self):
        return "files"

    @pytest.fixture
    def supports_empty_directories(self, fs):
        return fs.folder is not None


class TestPut(abstract.AbstractPutTests, Fixtures):
    """Of a push."""


class TestGet(abstract.AbstractGetTests, Fixtures):
    """Of a pull."""
