"""A TensorRT engine inside one TorchScript module, built by Torch-TensorRT on the GPU at hand.

The whole refiner becomes one serialized engine, typed float16 inside and float32 at its ends
(TensorRT 11 takes precision from the model's own types), with a dynamic batch. Written against
torch-tensorrt 2.11 to 2.13.
"""

import copy
from typing import Any

import torch
from torch import nn

from zoerefine.errors import UserError
from zoerefine.export.module import Typed
from zoerefine.model import Refiner

BATCHES = (1, 4, 16)  # smallest, best and largest batch of the optimisation profile


def available() -> bool:
    """Whether a TensorRT engine can be built and run here."""
    if not torch.cuda.is_available():
        return False
    try:
        import torch_tensorrt  # noqa: F401
    except ImportError:
        return False
    return True


def import_runtime() -> Any:
    """Torch-TensorRT. Raises `UserError` where it, or a GPU, is missing."""
    if not torch.cuda.is_available():
        raise UserError(
            "a TensorRT engine needs an NVIDIA GPU and none is here: export on the machine that "
            "will run it, or give --engine torchscript"
        )
    try:
        import torch_tensorrt
    except ImportError as error:
        raise UserError(
            f"a TensorRT engine needs Torch-TensorRT ({error}): pip install 'zoerefine[tensorrt]' "
            "or give --engine torchscript"
        ) from None
    return torch_tensorrt


def build_core(refiner: Refiner, height: int, width: int, precision: str) -> nn.Module:
    """The refiner as one engine on the GPU: rgb01 [B, 3, h, w], zoe_m [B, 1, h, w] -> depth_m."""
    torch_tensorrt = import_runtime()
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    core = copy.deepcopy(refiner).eval().cuda()
    if dtype != torch.float32:
        core.backbone = Typed(core.backbone, core.stride, dtype)
    best = BATCHES[1]  # a batch of 1 would be taken for a constant
    example = (
        torch.rand(best, 3, height, width, device="cuda"),
        torch.rand(best, 1, height, width, device="cuda") + 1,
    )
    batch = torch.export.Dim("batch", min=BATCHES[0], max=BATCHES[2])
    program = torch.export.export(core, example, dynamic_shapes=({0: batch}, {0: batch}))
    shapes = [
        torch_tensorrt.Input(
            min_shape=(BATCHES[0], *tensor.shape[1:]),
            opt_shape=(BATCHES[1], *tensor.shape[1:]),
            max_shape=(BATCHES[2], *tensor.shape[1:]),
            dtype=torch.float32,
        )
        for tensor in example
    ]
    engine = torch_tensorrt.dynamo.convert_exported_program_to_serialized_trt_engine(
        program, arg_inputs=shapes
    )
    return torch_tensorrt.ts.embed_engine_in_new_module(
        engine,
        input_binding_names=["rgb01", "zoe_m"],
        output_binding_names=["output0"],
        device=torch_tensorrt.Device("cuda:0"),
    )
