"""The processor that an engine was measured on, and chosen for."""

from typing import Any

from zoerefine.cpu_features import cpu_name, has_amx, has_bf16, vector_set


def describe_processor() -> str:
    """The CPU's name and the instructions that decide which precision is fastest on it.

    For example "Intel(R) Xeon(R) Processor (AVX512, bf16, AMX)".
    """
    extensions = {
        vector_set(): True,
        "bf16": has_bf16(),
        "AMX": has_amx(),
    }
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
