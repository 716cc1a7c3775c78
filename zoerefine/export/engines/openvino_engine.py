"""An OpenVINO engine for CPUs: its intermediate representation (IR) travels in the bundle.

The pictures' conversions around it are the bundle's TorchScript.
"""

import tempfile
import threading
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoerefine.data.depth_codec import ZOE_UNIT_M
from zoerefine.device import has_bf16
from zoerefine.errors import UserError
from zoerefine.export.engine_kinds import NOT_INSTALLED, Built, ExportSource, Run
from zoerefine.export.engines.torchscript_engine import quiet, script
from zoerefine.export.precision import in_precision
from zoerefine.export.shipped_module import PrePostProcessing

NAME = "openvino"
INSTALL = "pip install 'zoerefine[openvino]' -c requirements.lock"
XML, WEIGHTS = "engine.xml", "engine.bin"


def precisions() -> tuple[str, ...]:
    """What it can be built in here, the fastest first; int8 needs calibration, so it comes last."""
    bf16 = ("bf16",) if has_bf16(torch.device("cpu")) else ()
    return *bf16, "fp32", "int8"


def lacking() -> str:
    """Why it cannot be built here; empty where it can."""
    return "" if find_spec("openvino") else f"OpenVINO is {NOT_INSTALLED}: {INSTALL}"


def usable() -> bool:
    """Whether `auto` may take it: not where a GPU waits."""
    return not lacking() and not torch.cuda.is_available()


def here() -> dict[str, str]:
    """What its bundles need, as it is on this machine. Newer versions read older ones' IR."""
    return {"OpenVINO": "installed" if find_spec("openvino") else NOT_INSTALLED}


def build(source: ExportSource, precision: str) -> Built:
    """Convert the core, with a dynamic batch. bf16 is the CPU's to compute in, not the file's."""
    import openvino

    core = in_precision(
        source.refiner, "int8" if precision == "int8" else "fp32", source.calibration
    )
    example = source.example(2)
    shapes = [openvino.PartialShape([-1, *tensor.shape[1:]]) for tensor in example]
    with quiet(), torch.no_grad():
        traced = torch.jit.trace(core, example, check_trace=False)
        model = openvino.convert_model(traced, example_input=example, input=shapes)
    with tempfile.TemporaryDirectory() as folder:
        xml = Path(folder) / XML
        openvino.save_model(model, xml, compress_to_fp16=precision == "bf16")
        files = {XML: xml.read_bytes(), WEIGHTS: xml.with_suffix(".bin").read_bytes()}
    return Built(
        script(PrePostProcessing(source.height, source.width)),
        files=files,
        needs={"OpenVINO": ["installed"]},
    )


def attach(module: torch.jit.ScriptModule, read: Callable[[str], bytes], precision: str) -> Run:
    """The engine of a loaded bundle: ends, and OpenVINO between them."""
    height, width = module.height, module.width
    options = read, precision, torch.get_num_threads()
    resized, own_size = (
        Requests(partial(compiled, *options, conversions=inside)) for inside in (False, True)
    )

    def run(rgb_u8: Tensor, zoe_u16: Tensor) -> Tensor:
        if tuple(zoe_u16.shape[1:]) != (height, width):
            rgb01, zoe_m = module.before(rgb_u8, zoe_u16)
            core_m = torch.from_numpy(resized.infer(rgb01, zoe_m))
            refined: Tensor = module.after(zoe_u16, zoe_m, core_m)
            return refined
        # Torch's threads spin for a while after they worked, on cores that OpenVINO wants: so
        # where nothing is resized the conversions are in OpenVINO's graph, and here NumPy's.
        depth_m = own_size.infer(rgb_u8, zoe_u16.unsqueeze(1))[:, 0]
        units = np.clip(np.rint(depth_m / np.float32(ZOE_UNIT_M)), 0, 65535)
        return torch.from_numpy(units.astype(np.uint16))

    return run


class Requests:
    """A compiled model, which all threads share, and a request of each thread's own."""

    def __init__(self, compiled: Callable[[], Any]) -> None:
        self.compiled = cache(compiled)  # when it is first asked for
        self.own = threading.local()

    def infer(self, *inputs: Tensor) -> np.ndarray:
        """float32 [B, 1, h, w], in the request's own memory: to be used before the next call."""
        if not hasattr(self.own, "request"):
            self.own.request = self.compiled().create_infer_request()
        arrays = [tensor.contiguous().numpy() for tensor in inputs]
        found: np.ndarray = self.own.request.infer(arrays, share_inputs=True, share_outputs=True)[0]
        return found


def compiled(read: Callable[[str], bytes], precision: str, threads: int, conversions: bool) -> Any:
    """A bundle's engine for this CPU, which takes rgb01 and zoe_m, or with `conversions` uint8
    [B, h, w, 3] and uint16 [B, 1, h, w]. Raises `UserError` where this OpenVINO cannot read it."""
    import openvino

    core = openvino.Core()
    hints = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
    }
    try:
        weights = openvino.Tensor(np.frombuffer(read(WEIGHTS), np.uint8))
        model = core.read_model(read(XML).decode(), weights)
        return core.compile_model(with_conversions(model) if conversions else model, "CPU", hints)
    except RuntimeError as error:
        first = str(error).strip().splitlines()[-1]
        raise UserError(
            f"OpenVINO {openvino.__version__} cannot read the bundle's engine: {first}"
        ) from None


def with_conversions(model: Any) -> Any:
    """The model behind the conversions of `before`, for pictures of its own size."""
    from openvino import Layout, Type
    from openvino.preprocess import PrePostProcessor

    steps = PrePostProcessor(model)
    rgb, zoe = steps.input(0), steps.input(1)
    rgb.tensor().set_element_type(Type.u8).set_layout(Layout("NHWC"))
    rgb.model().set_layout(Layout("NCHW"))
    # Bytes are put in order before they become floats: a quarter of the memory to move.
    ordered = rgb.preprocess().convert_layout(Layout("NCHW"))
    ordered.convert_element_type(Type.f32).scale(255.0)
    zoe.tensor().set_element_type(Type.u16)
    zoe.preprocess().convert_element_type(Type.f32).scale(1 / ZOE_UNIT_M)
    return steps.build()
