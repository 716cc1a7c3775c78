"""Containers: the file formats of bundles.

A container stores an engine's content, additional files and the manifest, which is one of them, in
one file. The file ends with a seal (`seal.py`). Its format is recognised by its
content, not by its name.

To add a container, add an object with the face of `Container` to `CONTAINERS`, and its file name
to `run_dir.BUNDLE_NAMES`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from zoerefine.depth.exporting.bundle.onnx_file import OnnxFile
from zoerefine.depth.exporting.bundle.zips import ZipContainer


class Container(Protocol):
    """A file format.

    Attributes:
        suffix: of its files, with the dot.
        is_code: whether loading such a file runs code from it. False: it is only data.
    """

    @property
    def suffix(self) -> str: ...

    @property
    def is_code(self) -> bool: ...

    def recognises(self, data: bytes) -> bool:
        """Whether a file has this format. Raises `BadZipFile` or `ValueError` if damaged."""

    def pack(self, content: bytes, files: Mapping[str, bytes]) -> bytes:
        """A file with an engine's content and additional files; it ends in the seal's placeholder.

        Args:
            content: an engine, as its kind builds it, or a whole bundle. Additional files of a
                bundle stay, unless `files` has others of the same names.
        """

    def read_file(self, data: bytes, name: str) -> bytes | None:
        """An additional file by its name, or None if there is no such file."""

    def print_command(self, path: Path, name: str) -> str:
        """The command that prints an additional file, for people without zoerefine."""


# TorchScript's archives have a folder with any name, and additional files in `extra/` inside it.
TORCHSCRIPT = ZipContainer(".ts", is_code=True, marker="/constants.pkl", folder="extra/")
# OpenVINO's intermediate representation (IR): two files in a zip archive.
OPENVINO = ZipContainer(".openvino", is_code=False, marker="engine.xml", folder="")
ONNX = OnnxFile()
# Packages of AOTInductor, with additional files where torch.export keeps them.
PT2 = ZipContainer(".pt2", is_code=True, marker="/archive_format", folder="extra/")

CONTAINERS: tuple[Container, ...] = (TORCHSCRIPT, OPENVINO, ONNX, PT2)


def container_of(data: bytes) -> Container | None:
    """The container of a file by its bytes; None if it has none of these formats.

    Raises `BadZipFile` or `ValueError` for a damaged file.
    """
    return next((one for one in CONTAINERS if one.recognises(data)), None)
