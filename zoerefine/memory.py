"""How much memory this machine has left. Needs no torch, so that packing data starts quickly."""

from pathlib import Path


def free_memory() -> int:
    """Bytes that can be had without swapping (Linux); elsewhere a large number: no known limit."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 2**62
    values = dict(line.split(":", 1) for line in lines)
    return int(values["MemAvailable"].split()[0]) * 1024
