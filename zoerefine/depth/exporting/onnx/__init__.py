"""The refiner as an ONNX graph, with its processing before and after."""

# What other packages import from here; the rest is this package's own.
OPEN = ("graph",)
