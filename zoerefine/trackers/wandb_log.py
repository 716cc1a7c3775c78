"""The records in a `.wandb` file, which W&B writes in the format of LevelDB's logs.

The file is a sequence of blocks. A block holds fragments: CRC-32 of type and data (uint32), length
of the data (uint16), type (uint8), data; all little-endian. A record is one fragment, or several
in a row. The first block begins with seven bytes of W&B's own.
https://github.com/google/leveldb/blob/main/doc/log_format.md describes the format.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

BLOCK_BYTES = 32 * 2**10
FILE_HEADER = struct.Struct("<4sHB")  # text, magic number, version
TEXT, MAGIC, VERSION = b":W&B", 0xBEE1, 0
HEADER = struct.Struct("<IHB")
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4


@dataclass
class WandbLog:
    """A `.wandb` file.

    Attributes:
        fault: what could not be read, as a sentence; complete after all records were read.
    """

    path: Path
    fault: str = ""

    def records(self) -> Iterator[bytes]:
        """The whole records. After damage, reading goes on in the next block."""
        parts: list[bytes] = []
        with open(self.path, "rb") as file:
            for kind, data in self._fragments(file):
                if kind in (WHOLE, FIRST):
                    parts = []
                elif not parts:  # its beginning is damaged
                    continue
                parts.append(data)
                if kind in (WHOLE, LAST):
                    yield b"".join(parts)
                    parts = []
        if parts:
            self.fault = self.fault or "its last record is cut off"

    def _fragments(self, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """Type and data of each fragment that matches its CRC."""
        start = FILE_HEADER.size
        head = file.read(start)
        if len(head) < start or FILE_HEADER.unpack(head) != (TEXT, MAGIC, VERSION):
            self.fault = "it is not a file of W&B in a known version"
            return
        file.seek(0)
        for number, block in enumerate(iter(lambda: file.read(BLOCK_BYTES), b"")):
            place = start if number == 0 else 0
            while place + HEADER.size <= len(block):
                crc, length, kind = HEADER.unpack_from(block, place)
                data = block[place + HEADER.size : place + HEADER.size + length]
                if kind == length == 0:  # the rest of the block is not used
                    break
                if not WHOLE <= kind <= LAST or len(data) < length or crc != crc_of(kind, data):
                    self.fault = f"damaged at byte {number * BLOCK_BYTES + place}"
                    break
                yield kind, data
                place += HEADER.size + length


def crc_of(kind: int, data: bytes) -> int:
    """The CRC of a fragment."""
    return zlib.crc32(data, zlib.crc32(bytes([kind])))
