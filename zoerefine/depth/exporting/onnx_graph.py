"""A refiner as an ONNX graph: the core, for engines that read ONNX, or the whole shipped module.

Its pre- and post-processing are nodes around the core's graph, for pictures of any size. The
arithmetic is that of `PrePostProcessing`, without a branch on the picture's size: the area means of
a picture of the network's size, and `Resize` to an equal size, change nothing.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from onnx_ir.tape import Tape
from torch import nn

from zoerefine.depth.data.depth_codec import VALID_SHARE, ZOE_UNIT_M
from zoerefine.depth.exporting import SPREAD_UNITS
from zoerefine.depth.exporting.precision import LARGEST_CODE, SMALLEST_CODE
from zoerefine.depth.exporting.shipped_module import UNKNOWN_SPREAD
from zoerefine.depth.exporting.source import ExportSource

OPSET = 18
INPUTS, OUTPUTS = ("rgb01", "zoe_m"), ("depth_m", "spread")  # of a core's graph
SHIPPED_OUTPUTS = "depth", "spread"
LARGEST = 65535.0  # of uint16
FLOAT, UINT16 = ir.DataType.FLOAT, ir.DataType.UINT16


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


def add_processing(core: ir.Model, height: int, width: int) -> None:
    """Put the nodes around a core, a graph with the inputs and outputs of a `ShippedModule`'s core.

    Afterwards the model takes rgb, uint8 [B, H, W, channels], and zoe, uint16 [B, H, W], and gives
    depth and, if the core has a second output, spread, uint16 [B, H, W].
    """
    graph = core.graph
    channels = graph.inputs[0].shape[1]
    rgb = picture("rgb", ir.DataType.UINT8, "B", "H", "W", channels)
    zoe = picture("zoe", UINT16, "B", "H", "W")
    before, after = Nodes(), Nodes()
    zoe_u16 = before.Unsqueeze(before.Cast(zoe, to=FLOAT), [1])  # [B, 1, H, W]
    size = before.Shape(zoe, start=1)  # of the picture
    core_inputs = resized_inputs(before, rgb, zoe_u16, size, (height, width))
    for old, new in zip(list(graph.inputs), core_inputs, strict=True):
        ir.convenience.replace_all_uses_with(old, new)
    core_outputs = list(graph.outputs)
    for output in core_outputs:
        output.name = f"core_{output.name}"
    found = processed_outputs(after, zoe_u16, core_inputs[1], core_outputs, size)
    for output, name in zip(found, SHIPPED_OUTPUTS, strict=False):
        output.name, output.type = name, ir.TensorType(UINT16)
        output.shape = ir.Shape(["B", "H", "W"])
    graph.insert_before(graph[0], before.tape.nodes)
    graph.extend(after.tape.nodes)
    graph.inputs[:] = [rgb, zoe]
    graph.outputs[:] = found


def picture(name: str, dtype: ir.DataType, *shape: int | str) -> ir.Value:
    """An input of the graph."""
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))


def resized_inputs(
    op: Nodes, rgb: ir.Value, zoe_u16: ir.Value, size: ir.Value, new_size: tuple[int, int]
) -> tuple[ir.Value, ir.Value]:
    """`PrePostProcessing.before`: rgb01 [B, channels, h, w] and zoe_m [B, 1, h, w].

    Both are sums over the pixels of each new pixel, divided by numbers of pixels. So sums of bytes
    are exact.
    """
    planes = op.Transpose(op.Cast(rgb, to=FLOAT), perm=[0, 3, 1, 2])
    measured = op.Cast(op.Greater(zoe_u16, 0.0), to=FLOAT)
    planes = op.Concat(planes, zoe_u16, measured, axis=1)  # [B, channels + 2, H, W]
    rows, columns = (area_weights(op, size, axis, new_size[axis]) for axis in (0, 1))
    sums = op.MatMul(
        op.MatMul(rows[0], planes), op.Transpose(columns[0])
    )  # [B, channels + 2, h, w]
    pixels = op.Mul(rows[1], op.Transpose(columns[1]))  # [h, w]
    rgb_sum, zoe_sum, count = op.Split(sums, [rgb.shape[3], 1, 1], axis=1, outputs=3)
    rgb01 = op.Div(op.Div(rgb_sum, pixels), 255.0)
    zoe_m = op.Mul(op.Div(zoe_sum, op.Max(count, 1.0)), ZOE_UNIT_M)
    enough = op.GreaterOrEqual(op.Div(count, pixels), VALID_SHARE)
    return rgb01, op.Where(enough, zoe_m, 0.0)


def area_weights(op: Nodes, size: ir.Value, axis: int, new: int) -> tuple[ir.Value, ir.Value]:
    """For one axis, which old pixels each new pixel covers: 0 or 1, float32 [new, old].

    New pixel i covers the old pixels from floor(i old / new) to ceil((i + 1) old / new), as in
    torch's `interpolate(mode="area")`. The second value is how many, float32 [new, 1].
    """
    old = op.Gather(size, axis)
    index = np.arange(new)[:, None]
    start = op.Div(op.Mul(index, old), new)
    end_of = op.Add(op.Mul(op.Add(index, 1), old), new - 1)
    end = op.Div(end_of, new)
    pixel = op.Range(0, old, 1)  # [old]
    inside = op.And(op.GreaterOrEqual(pixel, start), op.Less(pixel, end))
    return op.Cast(inside, to=FLOAT), op.Cast(op.Sub(end, start), to=FLOAT)


def processed_outputs(
    op: Nodes,
    zoe_u16: ir.Value,
    core_zoe_m: ir.Value,
    core_outputs: list[ir.Value],
    size: ir.Value,
) -> list[ir.Value]:
    """`PrePostProcessing.after`: depth and, if the core has it, spread, uint16 [B, H, W]."""
    zero = 0.0
    valid = op.Greater(core_zoe_m, zero)
    maps = [op.Div(core_outputs[0], op.Max(core_zoe_m, 1e-3)), *core_outputs[1:]]
    maps = [op.Where(valid, one, zero) for one in maps]
    together = op.Concat(op.Cast(valid, to=FLOAT), *maps, axis=1)  # [B, 2 or 3, h, w]
    batch_and_maps = op.Shape(together, start=0, end=2)
    together = op.Resize(
        together, None, None, op.Concat(batch_and_maps, size, axis=0),
        mode="linear", coordinate_transformation_mode="half_pixel",
    )  # fmt: skip
    weight, *means = op.Split(together, [1] * (1 + len(maps)), axis=1, outputs=1 + len(maps))
    any_valid = op.Greater(weight, zero)
    divisor = op.Max(weight, 1e-6)
    factor = op.Where(any_valid, op.Div(means[0], divisor), 1.0)
    outputs = [op.Mul(zoe_u16, factor)]
    if len(maps) > 1:
        units = op.Mul(op.Div(means[1], divisor), SPREAD_UNITS)
        units = op.Where(any_valid, units, UNKNOWN_SPREAD)
        outputs.append(op.Where(op.Greater(zoe_u16, zero), units, zero))
    return [rounded_u16(op, output) for output in outputs]


def rounded_u16(op: Nodes, values: ir.Value) -> ir.Value:
    """float32 [B, 1, H, W] to the nearest uint16 [B, H, W]."""
    whole = op.Clip(op.Round(values), 0.0, LARGEST)
    return op.Cast(op.Squeeze(whole, [1]), to=UINT16)
