"""An OpenVINO engine for CPUs. The bundle holds its intermediate representation (IR).

Pre- and post-processing are `PrePostProcessing`, or, for pictures of the network's size, part of
OpenVINO's graph.
"""

import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoerefine.base.errors import UserError, install
from zoerefine.base.machine.device import has_bf16
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.exporting import SPREAD_UNITS
from zoerefine.depth.exporting.bundle.containers import OPENVINO, new_archive
from zoerefine.depth.exporting.engine_kinds import (
    INSTALLED,
    NOT_INSTALLED,
    BuiltEngine,
    Bundle,
    Forward,
    last_line,
)
from zoerefine.depth.exporting.precision import LARGEST_CODE, SMALLEST_CODE
from zoerefine.depth.exporting.shipped_module import PrePostProcessing
from zoerefine.depth.exporting.source import ExportSource

NAME = "openvino"
INSTALL = install("openvino")
PARALLEL_CALLS = False
CONTAINER = OPENVINO
GRAPHS = 0
TAKES_ARRAYS = False
XML, WEIGHTS = "engine.xml", "engine.bin"


def precisions() -> tuple[str, ...]:
    """The precisions that can be built here; int8 is last because it needs calibration."""
    bf16 = ("bf16",) if has_bf16(torch.device("cpu")) else ()
    return *bf16, "fp32", "int8"


def missing_requirement() -> str:
    """Why this machine cannot build the engine; "" if it can."""
    return "" if find_spec("openvino") else f"OpenVINO is {NOT_INSTALLED}: {INSTALL}"


def allowed_for_auto() -> bool:
    """Where OpenVINO is installed and there is no GPU, which would be faster."""
    return not missing_requirement() and not torch.cuda.is_available()


def machine_facts() -> dict[str, str]:
    """Whether OpenVINO is installed. Its version does not matter: newer ones read older IR."""
    return {"OpenVINO": INSTALLED if find_spec("openvino") else NOT_INSTALLED}


def build(source: ExportSource, precision: str) -> BuiltEngine:
    """Convert the core, with a dynamic batch.

    For bf16 the file holds fp16 weights; the runtime computes in bf16.
    """
    import openvino

    name = "openvino int8" if precision == "int8" else "openvino"
    if name not in source.kept:  # bf16 and fp32 share it: conversion takes most of the time
        source.kept[name] = converted(source, precision)
    with tempfile.TemporaryDirectory() as folder:
        xml = Path(folder) / XML
        openvino.save_model(source.kept[name], xml, compress_to_fp16=precision == "bf16")
        files = {XML: xml.read_bytes(), WEIGHTS: xml.with_suffix(".bin").read_bytes()}
    return BuiltEngine(
        new_archive(files),
        requirements={"OpenVINO": [INSTALLED]},
        has_confidence=source.has_confidence,
    )


def converted(source: ExportSource, precision: str) -> Any:
    """OpenVINO's model of the core, in int8 or fp32, with a dynamic batch."""
    import openvino

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about functions of its own
        program = source.program(source.core("int8" if precision == "int8" else "fp32"))
        model = openvino.convert_model(program, extension=[int8_extension()])
    size = source.height, source.width
    shapes = [openvino.PartialShape([-1, channels, *size]) for channels in (source.channels, 1)]
    model.reshape(dict(zip(model.inputs, shapes, strict=True)))
    return model


def int8_extension() -> Any:
    """How OpenVINO converts the operator of simulated quantization."""
    from openvino import opset13
    from openvino.frontend.pytorch import ConversionExtension

    def convert(node: Any) -> Any:
        values, largest = node.get_input(0), node.get_input(1)
        smallest = opset13.multiply(largest, np.float32(SMALLEST_CODE / LARGEST_CODE))
        levels = LARGEST_CODE - SMALLEST_CODE + 1
        return opset13.fake_quantize(values, smallest, largest, smallest, largest, levels).outputs()

    return ConversionExtension("zoerefine.quantize_int8.default", convert)


def load(bundle: Bundle) -> Forward:
    """The forward function of a bundle: OpenVINO between pre- and post-processing."""
    files = bundle.file(XML), bundle.file(WEIGHTS)
    [_, _, height, width] = read_model(*files).input(0).partial_shape
    height, width = height.get_length(), width.get_length()  # the network's
    with torch.device("cpu"):  # the caller's default may be a GPU
        processing = PrePostProcessing(height, width)
    options = files, bundle.manifest["precision"], torch.get_num_threads()
    on_floats, on_pictures = (
        ThreadRequests(partial(compile_model, *options, conversions=inside))
        for inside in (False, True)
    )

    def forward(rgb_u8: Tensor, zoe_u16: Tensor) -> list[Tensor]:
        if tuple(zoe_u16.shape[1:]) != (height, width):
            rgb01, zoe_m = processing.before(rgb_u8, zoe_u16)
            core_outputs = [torch.from_numpy(found) for found in on_floats.infer(rgb01, zoe_m)]
            return processing.after(zoe_u16, zoe_m, core_outputs)
        # After a call, torch's threads spin for a while on cores that OpenVINO needs. So pictures
        # that need no resizing are converted in OpenVINO's graph and by NumPy, without torch.
        found = on_pictures.infer(rgb_u8, zoe_u16.unsqueeze(1))
        return [
            rounded_u16(values[:, 0], units)
            for values, units in zip(found, (1 / ZOE_UNIT_M, SPREAD_UNITS), strict=False)
        ]

    return forward


def rounded_u16(values: np.ndarray, units: float) -> Tensor:
    """float32 values, of any shape, as the nearest uint16 in these units."""
    whole = np.clip(np.rint(values * np.float32(units)), 0, 65535)
    return torch.from_numpy(whole.astype(np.uint16))


class ThreadRequests:
    """A compiled model that all threads share, with one inference request per thread."""

    def __init__(self, compiled: Callable[[], Any]) -> None:
        self.compiled = cache(compiled)  # compiled at the first call
        self.local = threading.local()

    def infer(self, *inputs: Tensor) -> list[np.ndarray]:
        """The outputs, float32 [B, 1, h, w] each.

        They are in the request's memory: the thread's next call overwrites them.
        """
        if not hasattr(self.local, "request"):
            self.local.request = self.compiled().create_infer_request()
        arrays = [tensor.contiguous().numpy() for tensor in inputs]
        request = self.local.request
        found = request.infer(arrays, share_inputs=True, share_outputs=True)
        return list(found.values())


def compile_model(files: Sequence[bytes], precision: str, threads: int, conversions: bool) -> Any:
    """A bundle's model, compiled for this CPU.

    It takes rgb01 and zoe_m, or with `conversions` uint8 [B, h, w, 3] and uint16 [B, 1, h, w].
    Raises `UserError` if the installed OpenVINO cannot compile it for this processor.
    """
    import openvino

    hints = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
    }
    try:
        model = read_model(*files)
        model = with_conversions(model) if conversions else model
        return runtime().compile_model(model, "CPU", hints)
    except RuntimeError as error:
        raise UserError(
            f"OpenVINO {openvino.__version__} cannot compile this engine for this processor: "
            f"{last_line(error)}"
        ) from None


def read_model(xml: bytes, weights: bytes) -> Any:
    """A bundle's model. Raises `RuntimeError` if the installed OpenVINO cannot read it."""
    import openvino

    values = openvino.Tensor(np.frombuffer(weights, np.uint8))
    return runtime().read_model(xml.decode(), values)


@cache
def runtime() -> Any:
    """OpenVINO's runtime, one for all engines and kept until the process ends.

    Each runtime gives its thread a stack for signal handlers. Of two runtimes, the second one that
    is freed brings back the first one's stack, which is freed already: the next Ctrl-C then ends
    the process with SIGSEGV (seen in OpenVINO 2026.4.1).
    """
    import openvino

    return openvino.Core()


def with_conversions(model: Any) -> Any:
    """The model with the conversions of `PrePostProcessing.before`, for pictures of its size."""
    from openvino import Layout, Type
    from openvino.preprocess import PrePostProcessor

    steps = PrePostProcessor(model)
    rgb, zoe = steps.input(0), steps.input(1)
    rgb.tensor().set_element_type(Type.u8).set_layout(Layout("NHWC"))
    rgb.model().set_layout(Layout("NCHW"))
    # The layout is changed before the type: bytes are a quarter of the memory to move.
    planes = rgb.preprocess().convert_layout(Layout("NCHW"))
    planes.convert_element_type(Type.f32).scale(255.0)
    zoe.tensor().set_element_type(Type.u16)
    zoe.preprocess().convert_element_type(Type.f32).scale(1 / ZOE_UNIT_M)
    return steps.build()
