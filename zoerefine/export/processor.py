"""The processor that an engine was measured on."""

import torch

from zoerefine.launch.provenance import cpu_name


def describe_processor() -> str:
    """The CPU's name and the instructions that decide which precision is fastest on it.

    For example "Intel(R) Xeon(R) Processor (AVX512, AVX512_BF16)".
    """
    extensions = {
        torch.backends.cpu.get_cpu_capability(): True,
        "AVX512_BF16": torch.cpu._is_avx512_bf16_supported(),
        "AMX": torch.cpu._is_amx_tile_supported(),
    }
    names = ", ".join(name for name, present in extensions.items() if present)
    return f"{cpu_name() or 'unknown processor'} ({names})"
