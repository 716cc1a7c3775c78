"""Writes ONNX nodes as calls: `op = Nodes()`, then `op.Add(a, op.Mul(b, 2.0))`."""

from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape


class Nodes:
    """Nodes in the order in which they are called. The name of a method is an operator of ONNX.

    Inputs are values of the graph, None for one that is left out, or constants: floats become
    float32, whole numbers and lists of them int64. Attributes are named.
    """

    def __init__(self) -> None:
        self.tape = Tape()

    def __getattr__(self, operator: str) -> Any:
        def add(*inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
            values = [self.value(one) for one in inputs]
            if outputs == 1:
                return self.tape.op(operator, values, attributes)
            return self.tape.op_multi_out(operator, values, attributes, num_outputs=outputs)

        return add

    def value(self, given: Any) -> ir.Value | None:
        """An input as a value; a constant becomes a node."""
        if given is None or isinstance(given, ir.Value):
            return given
        array = np.asarray(given)
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
        return self.tape.op("Constant", [], {"value": ir.tensor(array)})
