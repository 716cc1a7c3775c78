"""An OpenVINO engine for CPUs: its intermediate representation (IR) travels in the bundle.

The pictures' conversions around it are the bundle's TorchScript.
"""

import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from zoerefine.device import has_bf16
from zoerefine.errors import UserError
from zoerefine.export.kinds import NOT_INSTALLED, Built, Run, Source
from zoerefine.export.module import Ends
from zoerefine.export.precision import in_precision
from zoerefine.export.torchscript import quiet, script

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


def build(source: Source, precision: str) -> Built:
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
        script(Ends(source.height, source.width)),
        files=files,
        needs={"OpenVINO": ["installed"]},
    )


def attach(module: torch.jit.ScriptModule, read: Callable[[str], bytes], precision: str) -> Run:
    """The engine of a loaded bundle: ends, and OpenVINO's request between them."""
    import openvino

    core = openvino.Core()
    hints = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
    }
    try:
        weights = openvino.Tensor(np.frombuffer(read(WEIGHTS), np.uint8))
        model = core.read_model(read(XML).decode(), weights)
        request = core.compile_model(model, "CPU", hints).create_infer_request()
    except RuntimeError as error:
        first = str(error).strip().splitlines()[-1]
        raise UserError(
            f"OpenVINO {openvino.__version__} cannot read the bundle's engine: {first}"
        ) from None

    def run(rgb_u8: Tensor, zoe_u16: Tensor) -> Tensor:
        rgb01, zoe_m = module.before(rgb_u8, zoe_u16)
        found = request.infer([rgb01.numpy(), zoe_m.numpy()], share_inputs=True, share_outputs=True)
        refined: Tensor = module.after(zoe_u16, zoe_m, torch.from_numpy(found[0]))
        return refined

    return run
