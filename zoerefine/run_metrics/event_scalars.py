"""Scalars in the records of event files, found many at once.

Almost all records of a log are scalars, and those of one tag differ only in time, step and value.
So records of equal length are looked at together, as the columns of a table of bytes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

Array = np.ndarray

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
