"""A refiner as an ONNX graph: the core, for engines that read ONNX, or the whole shipped module."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from torch import nn

from zoerefine.depth.exporting.onnx.processing import add_processing
from zoerefine.depth.exporting.precision import LARGEST_CODE, SMALLEST_CODE
from zoerefine.depth.exporting.source import ExportSource

OPSET = 18
INPUTS, OUTPUTS = ("rgb01", "zoe_m"), ("depth_m", "spread")  # of a core's graph


def to_onnx(core: nn.Module, source: ExportSource) -> bytes:
    """A core of the source as a graph with a dynamic batch, with the inputs and outputs above.

    Without confidence there is no `spread`.
    """
    return serialized(core_graph(core, source))


def shipped_to_onnx(core: nn.Module, source: ExportSource) -> bytes:
    """A core with pre- and post-processing, for any batch, height and width."""
    model = core_graph(core, source)
    add_processing(model, source.height, source.width)
    return serialized(model)


def serialized(model: ir.Model) -> bytes:
    """A graph as the bytes of an ONNX file."""
    data: bytes = ir.to_proto(model).SerializeToString()
    return data


def core_graph(core: nn.Module, source: ExportSource) -> ir.Model:
    """A core as a graph. int8 is Q and DQ pairs, with the weights stored as int8."""
    outputs = OUTPUTS if source.has_confidence else OUTPUTS[:1]
    with exporter_is_quiet():
        exported = torch.onnx.export(
            source.program(core), opset_version=OPSET, verbose=False,
            input_names=list(INPUTS), output_names=list(outputs),
            custom_translation_table={torch.ops.zoerefine.quantize_int8.default: quantize},
        )  # fmt: skip
    assert exported is not None
    model: ir.Model = exported.model
    ClearMetadataAndDocStringPass()(model)  # lines of code, with paths of this machine
    name_batch(model.graph)
    store_weights_as_int8(model.graph)
    return model


@contextmanager
def exporter_is_quiet() -> Iterator[None]:
    """Without the exporter's warnings: none is about what we export."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def quantize(values: Any, largest: Any) -> Any:
    """The operator of simulated quantization as ONNX nodes."""
    from onnxscript import opset18

    op: Any = opset18  # its types are too narrow for values of any type
    step = op.Div(largest, op.Constant(value_float=float(LARGEST_CODE)))
    axis = {}
    if len(largest.shape) > 1:  # one for each of the first dimension
        step, axis = op.Reshape(step, op.Constant(value_ints=[-1])), {"axis": 0}
    zero = op.Cast(op.Sub(step, step), to=int(ir.DataType.INT8))
    return op.DequantizeLinear(op.QuantizeLinear(values, step, zero, **axis), step, zero, **axis)


def name_batch(graph: ir.Graph) -> None:
    """Call the batch B everywhere: it is the only size of a core that is not fixed."""
    values = [*graph.inputs, *(output for node in graph for output in node.outputs)]
    for value in values:
        if value.shape is not None:
            value.shape = ir.Shape([size if isinstance(size, int) else "B" for size in value.shape])


def store_weights_as_int8(graph: ir.Graph) -> None:
    """Quantize constants now, so that the file holds them as int8."""
    for node in list(graph):
        if node.op_type != "QuantizeLinear":
            continue
        values: Any = node.inputs[0]
        if values.const_value is None:  # no constant, but the input of a convolution
            continue
        stored = initializer(f"{values.name}_int8", codes(values, node.inputs[1]))
        graph.register_initializer(stored)
        ir.convenience.replace_all_uses_with(node.outputs[0], stored)
        graph.remove(node, safe=True)
        if not values.uses():
            del graph.initializers[values.name]


def codes(values: Any, step: Any) -> np.ndarray:
    """What QuantizeLinear makes of a constant, int8, with one step for each of its first axis."""
    array = values.const_value.numpy()
    steps = ir.convenience.get_const_tensor(step).numpy()
    steps = steps.reshape(-1, *[1] * (array.ndim - 1)) if steps.ndim else steps
    found: np.ndarray = np.clip(np.rint(array / steps), SMALLEST_CODE, LARGEST_CODE)
    return found.astype(np.int8)


def initializer(name: str, array: np.ndarray) -> ir.Value:
    """A constant of a graph."""
    tensor = ir.tensor(array, name=name)
    return ir.Value(
        name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor
    )
