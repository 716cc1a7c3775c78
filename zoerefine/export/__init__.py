"""From a run to one file that runs the refiner: engines, bundles, verification."""

# In the order in which `--engine auto` prefers them; a GPU's come first.
KINDS = ("tensorrt", "tensorrt-rtx", "openvino", "torchscript")
PRECISIONS = ("fp32", "fp16", "bf16", "int8")
