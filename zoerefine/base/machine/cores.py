"""How many cores this process may use, and how OpenMP's threads compute on them.

`choose_openmp` runs when zoerefine is imported, so before torch is loaded, in every command,
worker and launched job. What the user has set in the environment is never changed.

OpenMP's threads end a parallel section at a barrier, and spin there before they sleep. By default
libgomp spins for milliseconds: beside other busy processes a waiting thread then takes the core
from the thread it waits for, and training slows down up to thirty times. `SPINS` is enough for the
short gaps of an idle machine and far below a time slice (benchmarks/busy.py).
"""

import math
import os
from collections.abc import Mapping, MutableMapping

from zoerefine.base.machine.container import cpu_quota

THREADS = "OMP_NUM_THREADS"
RESERVED = "ZOEREFINE_CORES"  # what a cluster has reserved that does not enforce it
SPINS = "10000"
SPIN_COUNT = "GOMP_SPINCOUNT"
WAIT_SETTINGS = (SPIN_COUNT, "OMP_WAIT_POLICY")
SETTINGS = (THREADS, *WAIT_SETTINGS)
OURS = "ZOEREFINE_OPENMP"  # lists what we have set, so that a child process chooses again
Environment = MutableMapping[str, str]


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


def choose_openmp(environment: Environment = os.environ) -> None:
    """Set how OpenMP waits and, under a quota, its number of threads."""
    forget_choice(environment)
    chosen = {}
    if not any(name in environment for name in WAIT_SETTINGS):
        chosen[SPIN_COUNT] = SPINS
    if THREADS not in environment and computing_cores(environment) < visible_cores():
        chosen[THREADS] = str(computing_cores(environment))
    if chosen:
        environment.update(chosen)
        environment[OURS] = " ".join(f"{name}={value}" for name, value in chosen.items())


def forget_choice(environment: Environment) -> None:
    """Remove what `choose_openmp` has set, here or in the process that started this one."""
    for name, _, value in (word.partition("=") for word in environment.pop(OURS, "").split()):
        if environment.get(name) == value:
            del environment[name]


def share_cores(environment: Environment, processes: int) -> None:
    """Give each of several processes its share of the cores, unless the user has set threads."""
    forget_choice(environment)
    environment.setdefault(THREADS, str(max(1, computing_cores(environment) // processes)))


def use_reserved_cores(environment: Environment, cores: int) -> None:
    """Let computations use the cores that Ray has reserved.

    Ray sets OMP_NUM_THREADS to their number, unless the user has set it. Several processes of a
    job share them, so this number is taken as ours.
    """
    environment[RESERVED] = str(cores)
    if environment.get(THREADS) == str(cores):
        environment[OURS] = f"{environment.get(OURS, '')} {THREADS}={cores}".strip()
