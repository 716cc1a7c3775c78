"""One side of the loader benchmark as a process: it runs an epoch for every line of its input.

A side is a function that yields the batches of an epoch. After each epoch it prints one JSON line:
samples, seconds, CPU seconds (with those of its children), and its own memory in the middle of the
first epoch, in MB (anonymous and shared memory, without pages of files that the system may drop).
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

BATCH, HEIGHT, WIDTH = 64, 192, 256
# A packed record: zoe and depth uint16, rgb and objects uint8, as zoerefine packs them.
STRIDE = 96 * 4096


def serve(epoch: Callable[[], Iterable[object]], samples: int) -> None:
    """Run an epoch for each line, until the input ends."""
    memory = 0.0
    for _ in sys.stdin:
        start, cpu = time.perf_counter(), cpu_s()
        for number, _batch in enumerate(epoch()):
            if not memory and number == samples // BATCH // 2:
                memory = own_mb()
        wall = time.perf_counter() - start
        answer = {"samples": samples, "wall_s": wall, "cpu_s": cpu_s() - cpu, "own_mb": memory}
        print(json.dumps(answer), flush=True)


def cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def own_mb() -> float:
    """Memory of this process and its children in MB, without pages of files."""
    total = 0
    for process in [os.getpid(), *children(os.getpid())]:
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:  # it has just ended
            continue
        for line in lines:
            if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                total += int(line.split()[1])
    return total / 1024


def children(process: int) -> list[int]:
    """The children of a process, and theirs."""
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *children(int(child))]
    return found
