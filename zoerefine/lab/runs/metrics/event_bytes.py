"""The records of TensorBoard's event files (the TFRecord format).

A record is: length (uint64), CRC of the length (uint32), data, CRC of the data (uint32), all
little-endian. The CRC is CRC-32C, rotated and shifted ("masked"). The format is described at
https://www.tensorflow.org/tutorials/load_data/tfrecord.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Array = np.ndarray

HEADER_BYTES, FOOTER_BYTES = 12, 4
CHUNK_BYTES = 16 * 2**20  # read at once
# Longer records are skipped: pictures, histograms and graphs, never scalars.
LONGEST_RECORD = 64 * 2**10
LONGEST_LENGTH = 2**62  # no file is longer; a larger number would not fit into int64
POLYNOMIAL = 0x82F63B78  # CRC-32C with its bits reversed
MASK_DELTA = 0xA282EAD8
SLICE = 64  # bytes


@dataclass(frozen=True)
class Records:
    """Whole records of a part of a file.

    Attributes:
        data: the bytes of the part, uint8 [n].
        starts, lengths: where in `data` each record's data begin, and how long they are, int64
            [records]. The data's CRC is not checked yet, see `are_sound`.
        offset: where in the file the next part begins.
        is_last: the part ends where the file ends.
        fault: why the rest of the file cannot be read; empty where it can.
    """

    data: Array
    starts: Array
    lengths: Array
    offset: int
    is_last: bool
    fault: str

    def by_length(self) -> list[tuple[int, Array]]:
        """The starts of the records of each length, in the order of the file."""
        if not len(self.lengths):
            return []
        order = np.argsort(self.lengths, kind="stable")
        lengths, first = np.unique(self.lengths[order], return_index=True)
        return list(zip(lengths.tolist(), np.split(self.starts[order], first[1:]), strict=True))


def read_records(path: Path, offset: int) -> Records:
    """The records of the next CHUNK_BYTES of a file, without those longer than LONGEST_RECORD.

    A damaged length ends the reading, since no later record can be found.
    """
    with open(path, "rb") as file:
        size = file.seek(0, 2) - offset
        file.seek(offset)
        part = file.read(CHUNK_BYTES)
    data, is_last = np.frombuffer(part, np.uint8), len(part) < CHUNK_BYTES
    heads, lengths = _headers(part)
    sound = are_sound(data, heads, columns_of(data, heads, 8))
    count = len(heads) if sound.all() else int(np.argmin(sound))
    fault = f"damaged at byte {offset + heads[count]}" if count < len(heads) else ""
    heads, lengths = heads[:count], lengths[:count]
    ends = heads + HEADER_BYTES + lengths + FOOTER_BYTES
    is_long, is_here = lengths > LONGEST_RECORD, ends <= len(part)
    done = ends[is_here | (is_long & (ends <= size))]
    end = int(done[-1]) if len(done) else 0
    if is_last and not fault and end < size:
        fault = f"cut off at byte {offset + end}"
    kept = is_here & ~is_long
    return Records(data, heads[kept] + HEADER_BYTES, lengths[kept], offset + end, is_last, fault)


def _headers(part: bytes) -> tuple[Array, Array]:
    """Where records begin, and their lengths; the last record may not be whole."""
    unpack, last = struct.Struct("<Q").unpack_from, len(part) - HEADER_BYTES
    lengths, place = [], 0
    while place <= last:
        (length,) = unpack(part, place)
        lengths.append(length)
        place += length + HEADER_BYTES + FOOTER_BYTES
    if lengths:
        lengths[-1] = min(lengths[-1], LONGEST_LENGTH)
    sizes = np.array(lengths, np.int64) + HEADER_BYTES + FOOTER_BYTES
    return np.cumsum(sizes) - sizes, np.array(lengths, np.int64)


def columns_of(data: Array, starts: Array, length: int) -> Array:
    """The bytes after each start as columns, uint8 [length, starts]."""
    return data[starts + np.arange(length)[:, None]]


def are_sound(data: Array, starts: Array, columns: Array) -> Array:
    """Whether `columns`, the bytes after each start, match the CRC that follows them, bool [n]."""
    stored = columns_of(data, starts + len(columns), FOOTER_BYTES).T.copy().view("<u4")[:, 0]
    return masked_crc(columns) == stored


def masked_crc(columns: Array) -> Array:
    """The masked CRC of byte strings of one length, uint8 [length, n] -> uint32 [n].

    SLICE bytes of every string are taken at once ("slicing" in the literature on CRCs): the CRC is
    linear, so it is the sum of what each byte contributes by its distance from the end.
    """
    crc = np.full(columns.shape[1], 0xFFFFFFFF, np.uint32)
    for start in range(0, len(columns), SLICE):
        block = columns[start : start + SLICE].astype(np.intp)
        for number in range(min(4, len(block))):
            block[number] ^= (crc >> 8 * number) & 0xFF
        rest = crc >> 8 * len(block) if len(block) < 4 else np.uint32(0)
        block += np.arange(len(block) - 1, -1, -1)[:, None] * 256
        crc = np.bitwise_xor.reduce(CONTRIBUTIONS.take(block), axis=0) ^ rest
    crc = ~crc
    return ((crc >> 15) | (crc << 17)) + np.uint32(MASK_DELTA)


def _contributions() -> Array:
    """What each byte contributes to the CRC, uint32 [SLICE * 256], by its distance from the end."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(POLYNOMIAL), table >> 1)
    tables = [table]
    for _ in range(SLICE - 1):
        tables.append(table[tables[-1] & 0xFF] ^ (tables[-1] >> 8))
    return np.concatenate(tables)


CONTRIBUTIONS = _contributions()


# Scalars in the records of event files, found many at once.
#
# Almost all records of a log are scalars, and those of one tag differ only in time, step and
# value. So records of equal length are looked at together, as the columns of a table of bytes.

# The data of a scalar: time (1 + 8 bytes), step (a byte and a varint; absent for step 0), lengths
# and tag, value (4 bytes). The numbers are those of TensorBoard's event.proto and summary.proto.
TIME_FIELD, STEP_FIELD = 0x09, 0x10
TIME_BYTES, VALUE_BYTES = 9, 4
LONGEST_STEP = 9  # bytes; only negative steps take more
SHORTEST = 21
TAG = re.compile(rb"\x2a[\x80-\xff]*.\x0a[\x80-\xff]*.\x0a([\x00-\x7f])(.*)\x15", re.DOTALL)


@dataclass(frozen=True)
class Scalars:
    """Values of one tag.

    Attributes:
        rows: the records that hold them, int64 [n].
        steps: int64 [n].
        values: float32 [n].
    """

    tag: str
    rows: Array
    steps: Array
    values: Array

    def where(self, chosen: Array) -> "Scalars":
        """Only the records that are chosen, bool [all records]."""
        kept = chosen[self.rows]
        return Scalars(self.tag, self.rows[kept], self.steps[kept], self.values[kept])


def find_scalars(columns: Array) -> Iterator[Scalars]:
    """The scalars among records of one length.

    Args:
        columns: the data of the records, uint8 [length, records].
    """
    if len(columns) < SHORTEST:
        return
    sizes = _step_sizes(columns)
    for size in np.unique(sizes[sizes >= 0]).tolist():
        rows = np.flatnonzero(sizes == size)
        same = columns[:, rows]
        steps, start = _steps(same, size), TIME_BYTES + size
        keys = np.ascontiguousarray(same[start:-VALUE_BYTES].T)  # [rows, bytes before the value]
        values = np.ascontiguousarray(same[-VALUE_BYTES:].T).view("<f4")[:, 0]
        for key, places in _equal(keys):
            tag = _tag(key)
            if tag is not None:
                yield Scalars(tag, rows[places], steps[places], values[places])


def _step_sizes(columns: Array) -> Array:
    """How many bytes the step's field has, int64 [records]; 0: none; -1: not a scalar."""
    digits = columns[TIME_BYTES + 1 : TIME_BYTES + 1 + LONGEST_STEP]
    last = np.argmax(digits < 0x80, axis=0)  # a varint's other bytes have the highest bit
    sizes = np.where(columns[TIME_BYTES] == STEP_FIELD, last + 2, 0)
    return np.where(columns[0] == TIME_FIELD, sizes, -1)


def _steps(columns: Array, size: int) -> Array:
    """The varint in the step's field, int64 [records]."""
    steps = np.zeros(columns.shape[1], np.int64)
    for number, column in enumerate(columns[TIME_BYTES + 1 : TIME_BYTES + size]):
        steps |= (column & np.int64(0x7F)) << np.int64(7 * number)
    return steps


def _equal(keys: Array) -> Iterator[tuple[bytes, Array]]:
    """Each different row of uint8 [rows, n], and where it stands."""
    texts = keys.view(np.dtype((np.void, keys.shape[1])))[:, 0]
    if (keys == keys[0]).all():  # usually: one tag of this length
        yield keys[0].tobytes(), np.arange(len(keys))
        return
    unique, which = np.unique(texts, return_inverse=True)
    for number, key in enumerate(unique):
        yield key.tobytes(), np.flatnonzero(which == number)


def _tag(key: bytes) -> str | None:
    """The tag in the bytes between step and value; None if they are not those of a scalar."""
    match = TAG.fullmatch(key)
    if not match or match[1][0] != len(match[2]):
        return None
    return match[2].decode("utf-8", "replace")
