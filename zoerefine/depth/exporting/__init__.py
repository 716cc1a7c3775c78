"""From a training run to one file that runs its refiner: engines, bundles, verification."""

PRECISIONS = ("fp32", "fp16", "bf16", "int8")

# What other packages import from here; the rest is this package's own.
OPEN = ("bundle", "engine", "export", "outputs", "pinned", "show", "sweep", "triton")
