"""How many cores this process uses, and how OpenMP's threads wait for one another.

`choose_openmp` runs when zoerefine is imported, so before torch is loaded, in every command,
worker and launched job. What the user has set in the environment is never changed.

OpenMP's threads end a parallel section at a barrier, and spin there before they sleep. By default
libgomp spins for milliseconds: beside other busy processes a waiting thread then takes the core
from the thread it waits for, and training slows down up to thirty times. `SPINS` is enough for the
short gaps of an idle machine and far below a time slice (benchmarks/busy.py).
"""

import math
import os
import platform
from collections.abc import Mapping, MutableMapping
from functools import cache
from pathlib import Path
from typing import Any

from zoerefine.base.machine.memory import cpu_quota

SPINS = "10000"
THREADS, SPIN_COUNT = "OMP_NUM_THREADS", "GOMP_SPINCOUNT"
WAIT_SETTINGS = (SPIN_COUNT, "OMP_WAIT_POLICY")
SETTINGS = (THREADS, *WAIT_SETTINGS)
# Choose the instructions that torch and its libraries compute with, and so the bits of a result.
INSTRUCTIONS = (
    *("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR"),
    *("OPENBLAS_CORETYPE", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
)
OURS = "ZOEREFINE_OPENMP"  # lists what we have set, so that a child process chooses again
RESERVED = "ZOEREFINE_CORES"  # what a cluster has reserved that does not enforce it

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


CPU_INFO = Path("/proc/cpuinfo")
# What torch needs for its kernels of each name, the fastest first.
VECTOR_SETS = {
    "AVX512": {"avx512f", "avx512vl", "avx512bw", "avx512dq", "fma"},
    "AVX2": {"avx2", "fma"},
}


def cpu_name() -> str:
    """The processor's model name; empty where it is not known."""
    return described("model name") if CPU_INFO.exists() else platform.processor()


@cache
def flags() -> frozenset[str]:
    """The instruction sets that Linux lists."""
    return frozenset(described("flags").split())


def described(field: str) -> str:
    """What Linux says of the first processor; empty where it says nothing."""
    try:
        lines = CPU_INFO.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((x.partition(":")[2].strip() for x in lines if x.startswith(field)), "")


def vector_set() -> str:
    """AVX512, AVX2 or DEFAULT: the kernels that torch takes. ATEN_CPU_CAPABILITY may limit them."""
    limit = os.environ.get("ATEN_CPU_CAPABILITY", "").upper()
    allowed = {"AVX2": ["AVX2"], "DEFAULT": []}.get(limit, list(VECTOR_SETS))
    return next((name for name in allowed if VECTOR_SETS[name] <= flags()), "DEFAULT")


def has_amx() -> bool:
    """Whether the processor has AMX tiles and oneDNN may use them."""
    return "amx_tile" in flags() and onednn_may_use()


def has_bf16() -> bool:
    """Whether the processor has bfloat16 arithmetic and oneDNN may use it."""
    avx512 = "avx512_bf16" in flags() and onednn_may_use("BF16", "FP16", "AVX10")
    return avx512 or has_amx()


def onednn_may_use(*extensions: str) -> bool:
    """Whether ONEDNN_MAX_CPU_ISA, if set, allows AMX or one of some lesser extensions.

    Its values are names such as AVX2, AVX512_CORE, AVX512_CORE_BF16 and AVX512_CORE_AMX.
    """
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    return limit in ("", "ALL", "DEFAULT") or any(name in limit for name in ("AMX", *extensions))


def describe_processor() -> str:
    """The CPU's name and the instructions that decide which precision is fastest on it.

    For example "Intel(R) Xeon(R) Processor (AVX512, bf16, AMX)".
    """
    extensions = {vector_set(): True, "bf16": has_bf16(), "AMX": has_amx()}
    names = ", ".join(name for name, present in extensions.items() if present)
    return f"{cpu_name() or 'unknown processor'} ({names})"


def other_processor(manifest: dict[str, Any]) -> str:
    """A note if a bundle was chosen as the fastest one on another kind of processor, else ""."""
    chosen_on = manifest.get("choice", {}).get("processor")
    if chosen_on in (None, describe_processor()) or manifest["device"] != "cpu":
        return ""
    return (
        f"{manifest['engine']} {manifest['precision']} was chosen as the fastest engine on "
        f"{chosen_on}; this machine has {describe_processor()}, where another may be faster: "
        "`zoerefine export RUN` measures it"
    )
