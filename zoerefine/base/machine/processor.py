"""The processor: its name, and which instructions torch and oneDNN compute with on it."""

import os
from functools import cache
from pathlib import Path
from typing import Any

# Choose the instructions that torch and its libraries compute with, and so the bits of a result.
INSTRUCTIONS = (
    *("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR"),
    *("OPENBLAS_CORETYPE", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
)
CPU_INFO = Path("/proc/cpuinfo")
# What torch needs for its kernels of each name, the fastest first.
VECTOR_SETS = {
    "AVX512": {"avx512f", "avx512vl", "avx512bw", "avx512dq", "fma"},
    "AVX2": {"avx2", "fma"},
}


def cpu_name() -> str:
    """The processor's model name; empty where it is not known."""
    return described("model name")


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
