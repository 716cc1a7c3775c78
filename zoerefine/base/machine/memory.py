"""Free memory, how many workers share a GPU's, and memory that is fast to copy into.

No torch is needed, so that packing data starts quickly.
"""

import math
import os
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from zoerefine.base.machine.container import memory_left

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


PAGE = 4096
MEMORY_INFO = Path("/proc/meminfo")
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # the numbers of glibc's mallopt
KEPT_BYTES = 2**26
GPU_WORKERS = "ZOEREFINE_GPU_WORKERS"  # how many workers or jobs share this process's GPU


def free_memory() -> int:
    """Bytes that can be had without swapping, within the limit of a container."""
    try:
        values = dict(line.split(":", 1) for line in MEMORY_INFO.read_text().splitlines())
        free = int(values["MemAvailable"].split()[0]) * 1024
    except OSError:  # a system without /proc: what caches hold does not count as free there
        free = os.sysconf("SC_AVPHYS_PAGES") * PAGE
    limited = memory_left()
    return free if limited is None else min(free, limited)


def workers_on_gpu(environment: Mapping[str, str]) -> int:
    """How many workers share this process's GPU, and so its memory."""
    stated = environment.get(GPU_WORKERS, "")
    return max(1, int(stated)) if stated.isdecimal() else 1


def use_reserved_gpus(environment: MutableMapping[str, str], gpus: float) -> None:
    """Let a job divide the memory of a GPU of which Ray has reserved a part: with 0.5, by two."""
    environment[GPU_WORKERS] = str(int(1 / gpus) if 0 < gpus < 1 else 1)


def aligned_empty(shape: tuple[int, ...], dtype: "npt.DTypeLike") -> "np.ndarray":
    """An array that begins at a page, with any content, for rows that are copied.

    Large arrays of `np.empty` begin 16 bytes after a page. Some AMD processors (Zen 3) copy whole
    rows to there with a fraction of their speed. NumPy asks the system for huge pages from 4 MiB
    on. Pinned memory of torch begins at a page, other memory of torch at 64 bytes.
    """
    import numpy as np  # late: a launch asks for cores and memory, and needs no arrays

    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(nbytes + PAGE, np.uint8)
    begin = -memory.ctypes.data % PAGE
    return memory[begin : begin + nbytes].view(dtype).reshape(shape)


def keep_freed_memory() -> None:
    """Let this process keep memory that it frees, up to KEPT_BYTES a thread, for its next arrays.

    By default glibc gives back what a thread frees beyond a few MB, and the system clears each page
    again when it is needed: a tenth of the time of packing. These are the limits that glibc sets
    itself when a process frees its largest arrays. Without glibc nothing happens.
    """
    import ctypes

    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        mallopt(MMAP_THRESHOLD, KEPT_BYTES // 2)
        mallopt(TRIM_THRESHOLD, KEPT_BYTES)


def aligned_stack(arrays: "Sequence[np.ndarray]") -> "np.ndarray":
    """`np.stack` of arrays of one shape and dtype, in aligned memory."""
    import numpy as np

    stacked = aligned_empty((len(arrays), *arrays[0].shape), arrays[0].dtype)
    return np.stack(arrays, out=stacked)
