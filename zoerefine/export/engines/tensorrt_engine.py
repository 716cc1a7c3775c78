"""A TensorRT engine inside one TorchScript module, built by Torch-TensorRT on the GPU at hand.

The whole refiner becomes one serialized engine with float32 ends and a dynamic batch; TensorRT 11
takes precision from the model's own types, and so does TensorRT 10 as it is called here. Written
from the sources of torch-tensorrt 2.11 (TensorRT 10.15, engine ABI 8) and 2.13 (TensorRT 11.0,
ABI 9); loading needs torch and Torch-TensorRT's runtime alone.
"""

from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from zoerefine.errors import UserError
from zoerefine.export.engine_kinds import NOT_INSTALLED, Built, ExportSource, Run, architecture
from zoerefine.export.engines.torchscript_engine import script
from zoerefine.export.precision import Int8Conv, in_precision
from zoerefine.export.shipped_module import Shipped
from zoerefine.export.verify import check_size

NAME = "tensorrt"
INSTALL = "pip install 'zoerefine[tensorrt]'"
BATCHES = (1, 4, 16)  # smallest, best and largest batch of the optimisation profile
INPUTS, OUTPUTS = ["rgb01", "zoe_m"], ["output0"]  # as Torch-TensorRT names the bindings


class TensorRTConv(Int8Conv):
    """8-bit rounding in the operator that Torch-TensorRT turns into Q and DQ layers."""

    def __init__(self, conv: nn.Conv2d, largest: float) -> None:
        super().__init__(conv, largest)
        self.register_buffer("peak", torch.tensor(self.largest))

    def rounded_input(self, x: Tensor) -> Tensor:
        return quantize(x, self.get_buffer("peak"))

    def rounded_weight(self) -> Tensor:
        return quantize(self.conv.weight, self.get_buffer("peaks")[:, None, None, None])


def quantize(values: Tensor, largest: Tensor) -> Tensor:
    """Round to 8 bits; the operator is ModelOpt's."""
    rounded: Tensor = torch.ops.tensorrt.quantize_op(values, largest, 8, 0, False, True)
    return rounded


def precisions() -> tuple[str, ...]:
    """What it can be built in, the fastest first but int8 last, which needs calibration."""
    return "fp16", "bf16", "fp32", "int8"


def lacking() -> str:
    """Why it cannot be built here; empty where it can."""
    if not torch.cuda.is_available():
        return (
            "a TensorRT engine needs an NVIDIA GPU and none is here: export on the machine that "
            "will run it, or give --engine torchscript"
        )
    try:
        import torch_tensorrt  # noqa: F401
    except Exception as error:  # without TensorRT's libraries it is not always an ImportError
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        return f"Torch-TensorRT cannot be imported ({first}): {INSTALL}"
    return ""


def usable() -> bool:
    """Whether `auto` may take it."""
    return not lacking()


def here() -> dict[str, str]:
    """What its bundles need, as it is on this machine."""
    return {
        "GPU architecture": architecture(),
        "torch": torch.__version__.split("+")[0],
        "TensorRT": version("tensorrt"),
        "Torch-TensorRT's engine ABI": runtime_abi(),
    }


def runtime_abi() -> str:
    """The version of serialized engines that the runtime reads, once it is in this process.

    Without the runtime torch's own words for such a file are "Unknown type name".
    """
    try:
        torch.classes.tensorrt.Engine  # noqa: B018 (it raises where no runtime is loaded)
    except RuntimeError:
        if lacking():
            return NOT_INSTALLED
    return str(torch.ops.tensorrt.ABI_VERSION())


def version(package: str) -> str:
    """An installed package's."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return NOT_INSTALLED


def build(source: ExportSource, precision: str) -> Built:
    """Build the core on this machine's GPU and put it into a TorchScript module.

    Raises `UserError` where it cannot be built, or was built in another precision in silence.
    """
    if lacking():
        raise UserError(lacking())
    import torch_tensorrt

    engine = build_engine(source, precision)
    check_size("tensorrt", precision, len(engine), source.parameters)
    core = torch_tensorrt.ts.embed_engine_in_new_module(
        engine,
        input_binding_names=INPUTS,
        output_binding_names=OUTPUTS,
        device=torch_tensorrt.Device("cuda:0"),
    )
    facts = {fact: [value] for fact, value in here().items()}
    module = script(Shipped(core, source.height, source.width))
    return Built(module, device="cuda", needs=facts, batches=BATCHES)


def build_engine(source: ExportSource, precision: str) -> bytes:
    """The core as a serialized TensorRT engine."""
    if precision == "int8":
        import_quantization()
    import torch_tensorrt

    core = in_precision(source.refiner, precision, source.calibration, TensorRTConv).cuda()
    program = export_program(core, source)
    shapes = [
        torch_tensorrt.Input(
            **{f"{which}_shape": (batch, *tensor.shape[1:])
               for which, batch in zip(("min", "opt", "max"), BATCHES, strict=True)},
            dtype=torch.float32,
        )
        for tensor in source.example(1)
    ]  # fmt: skip
    try:
        engine: bytes = torch_tensorrt.dynamo.convert_exported_program_to_serialized_trt_engine(
            program, arg_inputs=shapes, require_full_compilation=True
        )
    except (RuntimeError, AssertionError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise UserError(f"Torch-TensorRT could not build the {precision} engine: {first}") from None
    return engine


def export_program(core: nn.Module, source: ExportSource) -> torch.export.ExportedProgram:
    """The core as a graph with a dynamic batch, on the core's own device."""
    device = next(core.parameters()).device
    # A batch of 1 would be taken for a constant.
    example = tuple(tensor.to(device) for tensor in source.example(BATCHES[1]))
    batch = torch.export.Dim("batch", min=BATCHES[0], max=BATCHES[2])
    return torch.export.export(core, example, dynamic_shapes=({0: batch}, {0: batch}))


def import_quantization() -> None:
    """ModelOpt's operators. Raises `UserError` where it is not installed."""
    if not find_spec("modelopt"):
        raise UserError(
            "an int8 TensorRT engine needs NVIDIA's ModelOpt: pip install nvidia-modelopt, "
            "or give --precision fp16"
        )
    import modelopt.torch.quantization  # noqa: F401


def attach(module: torch.jit.ScriptModule, read: Callable[[str], bytes], precision: str) -> Run:
    """The engine of a loaded bundle: the module itself."""
    run: Run | Any = module
    return run
