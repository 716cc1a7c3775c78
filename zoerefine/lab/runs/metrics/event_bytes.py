"""The records of TensorBoard's event files (the TFRecord format).

A record is: length (uint64), CRC of the length (uint32), data, CRC of the data (uint32), all
little-endian. The CRC is CRC-32C, rotated and shifted ("masked"). The format is described at
https://www.tensorflow.org/tutorials/load_data/tfrecord.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

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
AT_ONCE = 12_000  # bytes whose CRCs are computed at once: temporary arrays stay in the heap


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
    is_last = len(part) < CHUNK_BYTES
    places, is_damaged = _places(part)
    heads, lengths = places[:-1], np.diff(places) - HEADER_BYTES - FOOTER_BYTES
    ends = places[1:]
    is_long, is_here = lengths > LONGEST_RECORD, ends <= len(part)
    done = ends[is_here | (is_long & (ends <= size))]
    end = int(done[-1]) if len(done) else 0
    fault = f"damaged at byte {offset + places[-1]}" if is_damaged else ""
    if is_last and not fault and end < size:
        fault = f"cut off at byte {offset + end}"
    kept, data = is_here & ~is_long, np.frombuffer(part, np.uint8)
    return Records(data, heads[kept] + HEADER_BYTES, lengths[kept], offset + end, is_last, fault)


def _places(part: bytes) -> tuple[Array, bool]:
    """Where records begin and the last one ends, which may not be whole; and whether the length
    there is damaged."""
    places, place, last = [0], 0, len(part) - HEADER_BYTES
    while place <= last:
        length = _length(part[place : place + HEADER_BYTES])
        if length < 0:
            return np.array(places, np.int64), True
        place += length + HEADER_BYTES + FOOTER_BYTES
        places.append(place)
    return np.array(places, np.int64), False


@lru_cache(2**12)
def _length(head: bytes) -> int:
    """The length that a record's header states; -1 where it does not match its CRC."""
    (length,) = struct.unpack_from("<Q", head)
    sound = masked_crc(np.frombuffer(head, np.uint8, 8)[None]).tobytes() == head[8:]
    return min(length, LONGEST_LENGTH) if sound else -1


def rows_of(data: Array, starts: Array, length: int) -> Array:
    """The bytes after each start, uint8 [starts, length]."""
    # As elements of `length` bytes each, which overlap: NumPy copies one in a step.
    texts = np.ndarray(len(data) - length + 1, f"V{length}", data, strides=(1,))
    return texts[starts].view(np.uint8).reshape(-1, length)


def are_sound(rows: Array) -> Array:
    """Whether each row matches the CRC at its end, uint8 [n, length + 4] -> bool [n]."""
    stored = rows[:, -FOOTER_BYTES:].copy().view("<u4")[:, 0]
    return masked_crc(rows[:, :-FOOTER_BYTES]) == stored


def masked_crc(rows: Array) -> Array:
    """The masked CRC of byte strings of one length, uint8 [n, length] -> uint32 [n]."""
    step = max(1, AT_ONCE // max(1, min(rows.shape[1], SLICE)))
    parts = [_crc(rows[start : start + step]) for start in range(0, len(rows), step)]
    crc = ~np.concatenate(parts) if parts else np.zeros(0, np.uint32)
    return ((crc >> 15) | (crc << 17)) + np.uint32(MASK_DELTA)


def _crc(rows: Array) -> Array:
    """The CRC before its bits are inverted.

    SLICE bytes of every string are taken at once ("slicing" in the literature on CRCs): the CRC is
    linear, so it is the sum of what each byte contributes by its distance from the end.
    """
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for start in range(0, rows.shape[1], SLICE):
        block = rows[:, start : start + SLICE]
        size = block.shape[1]
        block = block + np.arange(size - 1, -1, -1) * 256
        for number in range(min(4, size)):
            block[:, number] ^= (crc >> 8 * number) & 0xFF
        rest = crc >> 8 * size if size < 4 else np.uint32(0)
        crc = np.bitwise_xor.reduce(CONTRIBUTIONS.take(block), axis=1) ^ rest
    return crc


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
# value. So records of equal length are looked at together, as the rows of a table of bytes.

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
        if chosen.all():
            return self
        kept = chosen[self.rows]
        return Scalars(self.tag, self.rows[kept], self.steps[kept], self.values[kept])


def find_scalars(data: Array) -> Iterator[Scalars]:
    """The scalars among the data of records of one length, uint8 [records, length]."""
    if data.shape[1] < SHORTEST:
        return
    sizes = _step_sizes(data)
    for size in range(max(0, sizes.min()), sizes.max() + 1):
        rows = np.flatnonzero(sizes == size)
        if not len(rows):
            continue
        same = data if len(rows) == len(data) else data[rows]
        steps, start = _steps(same, size), TIME_BYTES + size
        values = same[:, -VALUE_BYTES:].copy().view("<f4")[:, 0]
        for key, places in _equal(same[:, start:-VALUE_BYTES]):
            tag = _tag(key)
            if tag is not None:
                yield Scalars(tag, rows[places], steps[places], values[places])


def _step_sizes(data: Array) -> Array:
    """How many bytes the step's field has, int64 [records]; 0: none; -1: not a scalar."""
    sizes = np.full(len(data), 2)
    goes_on = np.ones(len(data), bool)
    for place in range(TIME_BYTES + 1, TIME_BYTES + 1 + LONGEST_STEP):
        goes_on &= data[:, place] >= 0x80  # a varint's other bytes have the highest bit
        if not goes_on.any():
            break
        sizes += goes_on
    sizes[data[:, TIME_BYTES] != STEP_FIELD] = 0
    sizes[(data[:, 0] != TIME_FIELD) | goes_on] = -1
    return sizes


def _steps(data: Array, size: int) -> Array:
    """The varint in the step's field, int64 [records]."""
    steps = np.zeros(len(data), np.int64)
    for number, place in enumerate(range(TIME_BYTES + 1, TIME_BYTES + size)):
        steps |= (data[:, place] & np.int64(0x7F)) << np.int64(7 * number)
    return steps


def _equal(keys: Array) -> Iterator[tuple[bytes, Any]]:
    """Each different row of uint8 [rows, n], and where it stands."""
    if (keys == keys[0]).all():  # usually: one tag of this length
        yield keys[0].tobytes(), slice(None)
        return
    texts = np.ascontiguousarray(keys).view(np.dtype((np.void, keys.shape[1])))[:, 0]
    unique, which = np.unique(texts, return_inverse=True)
    for number, key in enumerate(unique):
        yield key.tobytes(), np.flatnonzero(which == number)


def _tag(key: bytes) -> str | None:
    """The tag in the bytes between step and value; None if they are not those of a scalar."""
    match = TAG.fullmatch(key)
    if not match or match[1][0] != len(match[2]):
        return None
    return match[2].decode("utf-8", "replace")
