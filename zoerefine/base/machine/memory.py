"""The memory that this process has left, and memory that is fast to copy into.

Needs no torch, so that packing data starts quickly.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from zoerefine.base.machine.cgroups import memory_left

PAGE = 4096


def free_memory() -> int:
    """Bytes that can be had without swapping, within the limit of a container.

    On Linux; elsewhere a large number: no known limit.
    """
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 2**62
    values = dict(line.split(":", 1) for line in lines)
    free = int(values["MemAvailable"].split()[0]) * 1024
    limited = memory_left()
    return free if limited is None else min(free, limited)


def aligned_empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
    """An array that begins at a page, with any content, for rows that are copied.

    Large arrays of `np.empty` begin 16 bytes after a page. Some AMD processors (Zen 3) copy whole
    rows to there with a fraction of their speed. NumPy asks the system for huge pages from 4 MiB
    on. Pinned memory of torch begins at a page, other memory of torch at 64 bytes.
    """
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(nbytes + PAGE, np.uint8)
    begin = -memory.ctypes.data % PAGE
    return memory[begin : begin + nbytes].view(dtype).reshape(shape)


def aligned_stack(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """`np.stack` of arrays of one shape and dtype, in aligned memory."""
    stacked = aligned_empty((len(arrays), *arrays[0].shape), arrays[0].dtype)
    return np.stack(arrays, out=stacked)
