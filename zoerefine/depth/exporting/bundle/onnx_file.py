"""Bundles that are ONNX files: manifest and additional files are entries of the model's metadata.

An ONNX file is one protobuf message. Its fields may have any order, and repeated ones may be
appended, so entries are added and read here without the package onnx. The last entry's value is
the seal.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from zoerefine.depth.exporting.bundle.seal import PLACEHOLDER

# Field numbers of ModelProto, and of the entries of its metadata.
IR_VERSION, GRAPH, METADATA = 1, 7, 14
KEY, VALUE = 1, 2
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # how a field's value is stored
SEAL = "sha256"


@dataclass(frozen=True)
class Field:
    """A field of a message: its number, its bytes as stored, and the bytes of its value."""

    number: int
    stored: bytes
    value: bytes


@dataclass(frozen=True)
class OnnxFile:
    """The container; see `Container`."""

    suffix: str = ".onnx"
    is_code: bool = False

    def recognises(self, data: bytes) -> bool:
        """Whether a file is an ONNX model. Raises `ValueError` for a damaged one."""
        is_model = data.startswith(tag(IR_VERSION, VARINT))
        return is_model and any(field.number == GRAPH for field in fields(data))

    def pack(self, content: bytes, files: Mapping[str, bytes]) -> bytes:
        """The model with these additional files, which replace those of the same names."""
        replaced = {*files, SEAL}
        kept = [
            field.stored
            for field in fields(content)
            if field.number != METADATA or entry_of(field)[0] not in replaced
        ]
        added = [entry(name, data) for name, data in files.items()]
        return b"".join([*kept, *added, entry(SEAL, PLACEHOLDER)])

    def read_file(self, data: bytes, name: str) -> bytes | None:
        """An additional file, or None if there is no such file."""
        for field in fields(data):
            if field.number == METADATA:
                key, value = entry_of(field)
                if key == name:
                    return value
        return None

    def print_command(self, path: Path, name: str) -> str:
        """The command that prints an additional file."""
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
