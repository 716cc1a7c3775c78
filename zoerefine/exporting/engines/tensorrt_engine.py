"""A TensorRT engine inside one TorchScript module, built by Torch-TensorRT on this machine's GPU.

The whole refiner becomes one serialized engine with float32 inputs and output and a dynamic
batch. TensorRT 11 takes precision from the types in the model, and so does TensorRT 10 as it is
called here. Written from the sources of torch-tensorrt 2.11 (TensorRT 10.15, engine ABI 8) and
2.13 (TensorRT 11.0, ABI 9). Loading needs only torch and Torch-TensorRT's runtime.
"""

from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from zoerefine.errors import UserError
from zoerefine.exporting.engine_kinds import (
    NOT_INSTALLED,
    BuiltEngine,
    ExportSource,
    Forward,
    gpu_architecture,
)
from zoerefine.exporting.engines.torchscript_engine import compile_script
from zoerefine.exporting.precision import Int8Conv
from zoerefine.exporting.shipped_module import ShippedModule
from zoerefine.exporting.verify import check_size

NAME = "tensorrt"
INSTALL = "pip install 'zoerefine[tensorrt]'"
PARALLEL_CALLS = False
BATCHES = (1, 4, 16)  # smallest, best and largest batch of the optimization profile
INPUTS, OUTPUTS = ["rgb01", "zoe_m"], ["output0"]  # as Torch-TensorRT names the bindings


class TensorRTInt8Conv(Int8Conv):
    """Quantizes with the operator that Torch-TensorRT converts to Q and DQ layers."""

    def __init__(self, conv: nn.Conv2d, largest: float) -> None:
        super().__init__(conv, largest)
        self.register_buffer("peak", torch.tensor(self.largest))

    def quantized_input(self, x: Tensor) -> Tensor:
        return quantize(x, self.get_buffer("peak"))

    def quantized_weight(self) -> Tensor:
        return quantize(self.conv.weight, self.get_buffer("peaks")[:, None, None, None])


def quantize(values: Tensor, largest: Tensor) -> Tensor:
    """Simulated 8-bit quantization; the operator is ModelOpt's."""
    quantized: Tensor = torch.ops.tensorrt.quantize_op(values, largest, 8, 0, False, True)
    return quantized


def precisions() -> tuple[str, ...]:
    """The precisions, the fastest first; int8 is last because it needs calibration."""
    return "fp16", "bf16", "fp32", "int8"


def missing_requirement() -> str:
    """Why this machine cannot build the engine; "" if it can."""
    if not torch.cuda.is_available():
        return (
            "a TensorRT engine needs an NVIDIA GPU and this machine has none: export on the "
            "machine that will run it, or use --engine torchscript"
        )
    try:
        import torch_tensorrt  # noqa: F401
    except Exception as error:  # missing TensorRT libraries raise other errors, too
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        return f"Torch-TensorRT cannot be imported ({first}): {INSTALL}"
    return ""


def allowed_for_auto() -> bool:
    """Wherever it can be built."""
    return not missing_requirement()


def machine_facts() -> dict[str, str]:
    """This machine's value of every fact that a bundle may require."""
    return {
        "GPU architecture": gpu_architecture(),
        "torch": torch.__version__.split("+")[0],
        "TensorRT": version("tensorrt"),
        "Torch-TensorRT's engine ABI": runtime_abi(),
    }


def runtime_abi() -> str:
    """The version of serialized engines that Torch-TensorRT's runtime reads.

    Imports the runtime if this process has not yet: without it torch's error for such a file is
    "Unknown type name".
    """
    try:
        torch.classes.tensorrt.Engine  # noqa: B018 (it raises where no runtime is loaded)
    except RuntimeError:
        if missing_requirement():
            return NOT_INSTALLED
    return str(torch.ops.tensorrt.ABI_VERSION())


def version(package: str) -> str:
    """The version of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return NOT_INSTALLED


def build(source: ExportSource, precision: str) -> BuiltEngine:
    """Build the core on this machine's GPU and embed it in a TorchScript module.

    Raises `UserError` if that fails, or if the builder silently used another precision.
    """
    if missing_requirement():
        raise UserError(missing_requirement())
    import torch_tensorrt

    engine = build_engine(source, precision)
    check_size("tensorrt", precision, len(engine), source.parameters)
    core = torch_tensorrt.ts.embed_engine_in_new_module(
        engine,
        input_binding_names=INPUTS,
        output_binding_names=OUTPUTS,
        device=torch_tensorrt.Device("cuda:0"),
    )
    facts = {fact: [value] for fact, value in machine_facts().items()}
    module = compile_script(ShippedModule(core, source.height, source.width))
    return BuiltEngine(module, device="cuda", requirements=facts, batches=BATCHES)


def build_engine(source: ExportSource, precision: str) -> bytes:
    """The core as a serialized TensorRT engine."""
    if precision == "int8":
        import_quantization()
    import torch_tensorrt

    core = source.core(precision, TensorRTInt8Conv).cuda()
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
    """The core as a graph with a dynamic batch, on the core's device."""
    device = next(core.parameters()).device
    # torch.export would take a batch of 1 for a constant.
    example = tuple(tensor.to(device) for tensor in source.example(BATCHES[1]))
    batch = torch.export.Dim("batch", min=BATCHES[0], max=BATCHES[2])
    return torch.export.export(core, example, dynamic_shapes=({0: batch}, {0: batch}))


def import_quantization() -> None:
    """Load ModelOpt's operators. Raises `UserError` if it is not installed."""
    if not find_spec("modelopt"):
        raise UserError(
            "an int8 TensorRT engine needs NVIDIA's ModelOpt: pip install nvidia-modelopt, "
            "or use --precision fp16"
        )
    import modelopt.torch.quantization  # noqa: F401


def load(
    module: torch.jit.ScriptModule, read_file: Callable[[str], bytes], precision: str
) -> Forward:
    """The forward function of a loaded bundle: the module itself."""
    forward: Forward = module
    return forward
