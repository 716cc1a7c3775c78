"""From a training run to one file that runs its refiner: engines, bundles, verification."""

from typing import Any

from zoerefine.depth.data.depth_codec import ZOE_UNIT_M

PRECISIONS = ("fp32", "fp16", "bf16", "int8")
SPREAD_UNITS = 10_000.0  # of the second output: spread in log depth = value / 10000

# What the values of each output are. A manifest lists those that its engine has, in this order.
OUTPUTS: dict[str, dict[str, Any]] = {
    "depth": {
        "type": "uint16 [B, H, W]",
        "units": 1 / ZOE_UNIT_M,
        "meaning": "metres = value / 256; 0 = invalid pixel",
    },
    "spread": {
        "type": "uint16 [B, H, W]",
        "units": SPREAD_UNITS,
        "meaning": "spread = value / 10000: the truth lies within depth * exp(+-spread) at 90% of "
        "the pixels; 0 = invalid pixel",
    },
}
NO_CONFIDENCE = "its refiner was trained with MODEL.CONFIDENCE off, or its network offers none"

# What other packages import from here; the rest is this package's own.
OPEN = ("bundle", "engine", "export", "pinned", "show", "sweep", "triton")
