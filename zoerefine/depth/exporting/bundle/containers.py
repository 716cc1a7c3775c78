"""Containers: the file formats of bundles.

A container stores an engine's content, additional files and the manifest, which is one of them, in
one file. Its format is recognised by its content, not by its name. The file ends with a seal: its
last 64 bytes are the SHA-256 of all the bytes before. So one check covers every byte of every
format, also those between the members of an archive, and it is made before any of them is parsed.

To add a container, add an object with the face of these two classes to `CONTAINERS`, and its file
name to `run_dir.BUNDLE_NAMES`.
"""

import hashlib
import io
import shlex
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

LENGTH = 64  # of the seal, hexadecimal digits
PLACEHOLDER = b"0" * LENGTH  # what a container leaves at the end of a file, for the seal
# Of zip archives.
START = b"PK\x03\x04"
DATE = (1980, 1, 1, 0, 0, 0)  # constant, so that the same content gives the same bytes
TEXTS, MAX_TEXT_BYTES = (".json", ".md"), 2**20  # ours have a few thousand bytes
COMMENT = b"zoerefine bundle, sha256 "
# Of ONNX files: field numbers of ModelProto, and of the entries of its metadata.
IR_VERSION, GRAPH, METADATA = 1, 7, 14
KEY, VALUE = 1, 2
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # how a field's value is stored
SEAL = "sha256"


def seal(data: bytes) -> bytes:
    """A file's bytes, which end in the placeholder, with the seal in its place."""
    assert data.endswith(PLACEHOLDER)
    content = data[:-LENGTH]
    return content + hashlib.sha256(content).hexdigest().encode()


def intact_digest(data: bytes) -> str | None:
    """The digest that a file's bytes are sealed with; None if it is not theirs."""
    digest = hashlib.sha256(memoryview(data)[:-LENGTH]).hexdigest()
    return digest if data[-LENGTH:] == digest.encode() else None


@dataclass(frozen=True)
class ZipContainer:
    """A kind of zip archive: manifest and additional files are members without compression.

    The seal is at the end of the archive's comment, which ends the file.

    Attributes:
        suffix: of its files, with the dot.
        is_code: whether loading such a file runs code from it. False: it is only data.
        marker: the end of a member's name that only this kind of archive has.
        folder: where additional files are, inside the archive's first folder; "" for the top of
            an archive without such a folder.
    """

    suffix: str
    is_code: bool
    marker: str
    folder: str

    def recognises(self, data: bytes) -> bool:
        """Whether a file has this format. Raises `BadZipFile` or `ValueError` if damaged."""
        if not data.startswith(START):
            return False
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return any(name.endswith(self.marker) for name in archive.namelist())

    def pack(self, content: bytes, files: Mapping[str, bytes]) -> bytes:
        """A file with an engine's content and additional files; it ends in the seal's placeholder.

        Args:
            content: an engine, as its kind builds it, or a whole bundle. Additional files of a
                bundle stay, unless `files` has others of the same names.
        """
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
        """An additional file by its name, or None if there is no such file."""
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
        """The command that prints an additional file, for people without zoerefine."""
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
    member = zipfile.ZipInfo(name, DATE)
    member.external_attr = 0o644 << 16
    archive.writestr(member, data)


def new_archive(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            add(archive, name, data)
    return buffer.getvalue()


@dataclass(frozen=True)
class Field:
    """A field of a message: its number, its bytes as stored, and the bytes of its value."""

    number: int
    stored: bytes
    value: bytes


@dataclass(frozen=True)
class OnnxFile:
    """ONNX models: manifest and additional files are entries of the model's metadata.

    An ONNX file is one protobuf message. Its fields may have any order, and repeated ones may be
    appended, so entries are added and read here without the package onnx. The last entry's value
    is the seal. The methods are those of `ZipContainer`.
    """

    suffix: str = ".onnx"
    is_code: bool = False

    def recognises(self, data: bytes) -> bool:
        is_model = data.startswith(tag(IR_VERSION, VARINT))
        return is_model and any(field.number == GRAPH for field in fields(data))

    def pack(self, content: bytes, files: Mapping[str, bytes]) -> bytes:
        replaced = {*files, SEAL}
        kept = [
            field.stored
            for field in fields(content)
            if field.number != METADATA or entry_of(field)[0] not in replaced
        ]
        added = [entry(name, data) for name, data in files.items()]
        return b"".join([*kept, *added, entry(SEAL, PLACEHOLDER)])

    def read_file(self, data: bytes, name: str) -> bytes | None:
        for field in fields(data):
            if field.number == METADATA:
                key, value = entry_of(field)
                if key == name:
                    return value
        return None

    def print_command(self, path: Path, name: str) -> str:
        entries = f"onnx.load({str(path)!r}).metadata_props"
        code = f"import onnx; print(*(e.value for e in {entries} if e.key == {name!r}))"
        return f"python -c {shlex.quote(code)}"


def entry(name: str, data: bytes) -> bytes:
    """An entry of the metadata, as stored in a model. Text only: ONNX allows nothing else.

    Raises `UnicodeDecodeError` for other data.
    """
    data.decode()
    return with_length(METADATA, with_length(KEY, name.encode()) + with_length(VALUE, data))


def entry_of(field: Field) -> tuple[str, bytes]:
    """Key and value of an entry of the metadata."""
    parts = {part.number: part.value for part in fields(field.value)}
    return parts.get(KEY, b"").decode(errors="replace"), parts.get(VALUE, b"")


def with_length(number: int, value: bytes) -> bytes:
    """A field of bytes."""
    return tag(number, BYTES) + varint(len(value)) + value


def tag(number: int, kind: int) -> bytes:
    """What begins a field."""
    return varint(number << 3 | kind)


def varint(number: int) -> bytes:
    """A whole number in protobuf's form: seven bits a byte, the lowest first."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def fields(message: bytes) -> Iterator[Field]:
    """The fields of a message. Raises `ValueError` if it is damaged."""
    place = 0
    while place < len(message):
        start = place
        head, place = read_varint(message, place)
        kind, length = head & 7, 0
        if kind == VARINT:
            _, end = read_varint(message, place)
        elif kind == BYTES:
            length, place = read_varint(message, place)
            end = place + length
        elif kind in (FIXED64, FIXED32):
            end = place + (8 if kind == FIXED64 else 4)
        else:
            raise ValueError(f"byte {start} begins no field of ONNX")
        if end > len(message):
            raise ValueError("it ends within a field")
        yield Field(head >> 3, message[start:end], message[place:end])
        place = end


def read_varint(message: bytes, place: int) -> tuple[int, int]:
    """A number that begins at a place, and the place after it."""
    number = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            raise ValueError("it ends within a number")
        byte = message[place]
        place += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, place
    raise ValueError(f"byte {place} is in a number without an end")


# TorchScript's archives have a folder with any name, and additional files in `extra/` inside it.
TORCHSCRIPT = ZipContainer(".ts", is_code=True, marker="/constants.pkl", folder="extra/")
# OpenVINO's intermediate representation (IR): two files in a zip archive.
OPENVINO = ZipContainer(".openvino", is_code=False, marker="engine.xml", folder="")
ONNX = OnnxFile()
# Packages of AOTInductor, with additional files where torch.export keeps them.
PT2 = ZipContainer(".pt2", is_code=True, marker="/archive_format", folder="extra/")

Container = ZipContainer | OnnxFile
CONTAINERS: tuple[Container, ...] = (TORCHSCRIPT, OPENVINO, ONNX, PT2)


def container_of(data: bytes) -> Container | None:
    """The container of a file by its bytes; None if it has none of these formats.

    Raises `BadZipFile` or `ValueError` for a damaged file.
    """
    return next((one for one in CONTAINERS if one.recognises(data)), None)
