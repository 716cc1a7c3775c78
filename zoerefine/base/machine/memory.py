"""What a process may use: memory, also within a container, and memory that is fast to copy into.

Containers are control groups, versions 1 and 2. A group's limits hold for every group inside it, so
the smallest on the way to the root counts. No torch is needed, so that packing data starts quickly.
"""

import math
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


PAGE = 4096
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # the numbers of glibc's mallopt
KEPT_BYTES = 2**26
GPU_WORKERS = "ZOEREFINE_GPU_WORKERS"  # how many workers or jobs share this process's GPU


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


NO_LIMIT = 2**60  # version 1 writes about 2^63 for "none"


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Cores' worth of time that this process may use, e.g. 0.5; None without a limit."""
    quotas = []
    for folder, version in _groups("cpu", root):
        if version == 2:
            words = _words(folder / "cpu.max")
        else:
            words = _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
        if len(words) == 2 and words[0] not in ("max", "-1"):
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def memory_left(root: Path = Path("/")) -> int | None:
    """Bytes that this process's groups may still take; None without a limit.

    The file cache of a group counts as free, since the system takes it back when needed.
    """
    found = [left for folder, _ in _groups("memory", root) if (left := _left(folder)) is not None]
    return min(found, default=None)


def _left(folder: Path) -> int | None:
    limit, used, files = (
        _number(folder / "memory.max", folder / "memory.limit_in_bytes"),
        _number(folder / "memory.current", folder / "memory.usage_in_bytes"),
        _file_cache(folder / "memory.stat"),
    )
    if limit is None or used is None or limit >= NO_LIMIT:
        return None
    return max(0, limit - max(0, used - files))


def _file_cache(stat: Path) -> int:
    values = dict(line.split() for line in _text(stat).splitlines())
    prefix = "total_" if "total_inactive_file" in values else ""  # with the groups inside
    return sum(int(values.get(f"{prefix}{kind}_file", 0)) for kind in ("active", "inactive"))


def _groups(controller: str, root: Path) -> Iterator[tuple[Path, int]]:
    """The folders of this process's group and of those around it, with cgroup's version."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, names, group = line.split(":", 2)
        version = 1 if names else 2
        if version == 1 and controller not in names.split(","):
            continue
        for start, mount in _mounts(controller, version, root):
            # In a container the mount may begin at the container's own group.
            inside = group.removeprefix(start.rstrip("/")).strip("/")
            folder = mount / inside
            around = (one for one in folder.parents if one.is_relative_to(mount))
            yield from ((one, version) for one in (folder, *around))


def _mounts(controller: str, version: int, root: Path) -> Iterator[tuple[str, Path]]:
    """The group at which a mount begins, and the mount's folder."""
    for line in _text(root / "proc/self/mountinfo").splitlines():
        first, _, last = line.partition(" - ")
        start, folder = first.split()[3:5]
        kind, _, options = last.split(" ", 2)
        names = options.split(",") if kind == "cgroup" else []
        if kind == "cgroup2" if version == 2 else controller in names:
            yield start, root / folder.lstrip("/")


def _number(*paths: Path) -> int | None:
    """The number in the first of some files that exists; None for `max`."""
    words = next(filter(None, map(_words, paths)), [])
    return int(words[0]) if words and words[0] != "max" else None


def _words(path: Path) -> list[str]:
    return _text(path).split()


def _text(path: Path) -> str:
    """The content of a file; empty where it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
