"""How much memory this process has left. Needs no torch, so that packing data starts quickly."""

from pathlib import Path

from zoerefine.cgroup_limits import memory_left


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
