"""From a training run to one file that runs its refiner: engines, bundles, verification."""

PRECISIONS = ("fp32", "fp16", "bf16", "int8")
