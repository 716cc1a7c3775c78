"""How many cores this process may use, and computes with."""

import math
import os
from collections.abc import Mapping

from zoerefine.base.machine.container import cpu_quota

THREADS = "OMP_NUM_THREADS"
RESERVED = "ZOEREFINE_CORES"  # what a cluster has reserved that does not enforce it


def visible_cores() -> int:
    """Cores in this process's affinity mask."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_cores() -> int:
    """Cores that this process may use: by its affinity mask and its container's quota."""
    cores, quota = visible_cores(), cpu_quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def threads_of_a_call() -> int:
    """How many threads one computation uses: OMP_NUM_THREADS, or one for each usable core."""
    stated = os.environ.get(THREADS, "").split(",")[0]
    return int(stated) if stated.isdecimal() and int(stated) else usable_cores()


def computing_cores(environment: Mapping[str, str]) -> int:
    """Cores for computations: the usable ones, or fewer where a cluster has reserved fewer."""
    reserved = environment.get(RESERVED, "")
    return min(usable_cores(), int(reserved)) if reserved.isdecimal() else usable_cores()
