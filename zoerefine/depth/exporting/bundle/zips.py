"""Bundles that are zip archives: the manifest and additional files are members without compression.

The seal is at the end of the archive's comment, which ends the file.
"""

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from zoerefine.depth.exporting.bundle.seal import PLACEHOLDER

START = b"PK\x03\x04"
DATE = (1980, 1, 1, 0, 0, 0)  # constant, so that the same content gives the same bytes
TEXTS, MAX_TEXT_BYTES = (".json", ".md"), 2**20  # ours have a few thousand bytes
COMMENT = b"zoerefine bundle, sha256 "


@dataclass(frozen=True)
class ZipContainer:
    """A kind of archive.

    Attributes:
        suffix, is_code: as in `Container`.
        marker: the end of a member's name that only this kind of archive has.
        folder: where additional files are, inside the archive's first folder; "" for the top of
            an archive without such a folder.
    """

    suffix: str
    is_code: bool
    marker: str
    folder: str

    def recognises(self, data: bytes) -> bool:
        """Whether a file is such an archive. Raises `BadZipFile` for a damaged archive."""
        if not data.startswith(START):
            return False
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return any(name.endswith(self.marker) for name in archive.namelist())

    def pack(self, content: bytes, files: Mapping[str, bytes]) -> bytes:
        """An archive with these additional files, which replace those of the same names."""
        buffer = io.BytesIO(content)
        with zipfile.ZipFile(buffer) as archive:
            replaced = {self.member(archive, name) for name in files}
            if replaced & set(archive.namelist()):
                buffer = without(archive, replaced)
        with zipfile.ZipFile(buffer, "a") as archive:
            for name, data in files.items():
                add(archive, self.member(archive, name), data)
            archive.comment = COMMENT + PLACEHOLDER
        return buffer.getvalue()

    def read_file(self, data: bytes, name: str) -> bytes | None:
        """An additional file of the archive, or None if it has no such file."""
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            try:
                info = archive.getinfo(self.member(archive, name))
            except KeyError:
                return None
            if name.endswith(TEXTS) and info.file_size > MAX_TEXT_BYTES:
                raise zipfile.BadZipFile(f"{name} has more than {MAX_TEXT_BYTES} bytes")
            if info.compress_type != zipfile.ZIP_STORED:  # an altered file could expand endlessly
                raise zipfile.BadZipFile(f"{name} is compressed")
            return archive.read(info)

    def print_command(self, path: Path, name: str) -> str:
        """The command that prints an additional file."""
        return f"unzip -p {path} '{'*/' if self.folder else ''}{self.folder}{name}'"

    def member(self, archive: zipfile.ZipFile, name: str) -> str:
        """The name that an additional file has in the archive."""
        if not self.folder:
            return name
        root = archive.namelist()[0].split("/")[0]
        return f"{root}/{self.folder}{name}"


def without(archive: zipfile.ZipFile, names: set[str]) -> io.BytesIO:
    """A copy of an archive without some of its members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as new:
        for info in archive.infolist():
            if info.filename not in names:
                new.writestr(info, archive.read(info))
    return buffer


def add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Add a member."""
    member = zipfile.ZipInfo(name, DATE)
    member.external_attr = 0o644 << 16
    archive.writestr(member, data)


def new_archive(files: Mapping[str, bytes]) -> bytes:
    """A new archive of these members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            add(archive, name, data)
    return buffer.getvalue()
