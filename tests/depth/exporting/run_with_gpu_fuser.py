"""Runs engines of one network with the fuser of CUDA builds (NNC) switched on for the CPU.

python run_with_gpu_fuser.py NETWORK

Prints one line for each engine: how much depth and spread differ from eager's at most, as means
over a batch in units of the outputs, how much eager changes its input, and the number of fused
groups.
"""

import io
import sys
import warnings

import torch

from zoerefine.depth.exporting.engine_kinds import engine_kind
from zoerefine.depth.exporting.engines.torchscript_engine import compile_script
from zoerefine.depth.exporting.shipped_module import PrePostProcessing, core_of
from zoerefine.depth.exporting.source import ExportSource
from zoerefine.depth.model import build_refiner

HEIGHT, WIDTH = 24, 32
PRECISIONS = "fp32", "bf16", "fp16"  # those of GPUs
OWN, OTHER = (HEIGHT, WIDTH), (30, 44)
# The fuser compiles in the second call, and again for another size or batch.
CALLS = [(1, OWN), (1, OWN), (2, OWN), (2, OWN), (1, OTHER), (1, OTHER)]


def switch_on() -> None:
    torch._C._jit_set_texpr_fuser_enabled(True)
    torch._C._jit_override_can_fuse_on_cpu(True)
    torch._C._jit_set_te_must_use_llvm_cpu(False)


def make_source(network: str) -> ExportSource:
    torch.manual_seed(0)
    refiner = build_refiner({"NAME": network, "BASE": 4, "MAX_LOG": 1.0, "CONFIDENCE": True})
    for head in ("head", "scale_head"):
        torch.nn.init.normal_(refiner.get_parameter(f"backbone.{head}.weight"), std=0.3)
    refiner.trained.fill_(True)
    return ExportSource(refiner.eval(), HEIGHT, WIDTH, lambda: iter(()))


def frames(batch: int, height: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    rgb_u8 = torch.randint(0, 256, (batch, height, width, 3), dtype=torch.uint8)
    zoe = torch.randint(100, 2000, (batch, height, width))
    zoe[:, :3] = 0
    return rgb_u8, zoe.to(torch.uint16)


def compare(name: str, engine, eager) -> None:
    differences, changes, groups = [], [], []
    for batch, size in CALLS:
        rgb_u8, zoe_u16 = frames(batch, *size)
        outputs = [output.float() for output in engine(rgb_u8, zoe_u16)]
        groups.append(str(torch.jit.last_executed_optimized_graph()).count("prim::TensorExprGroup"))
        expected = [output.float() for output in eager(rgb_u8, zoe_u16)]
        for one, other in zip(outputs, expected, strict=True):
            differences.append((one - other).abs().mean().item())
        changes.append((expected[0] - zoe_u16.float()).abs().mean().item())
    worst = f"{max(differences[::2]):.3f} and {max(differences[1::2]):.3f}"
    print(f"{name}: {worst} of {min(changes):.0f}, {max(groups)} groups", flush=True)


def around(processing, core):
    """Pre- and post-processing called apart, as engines of other vendors do."""

    def forward(rgb_u8, zoe_u16):
        rgb01, zoe_m = processing.before(rgb_u8, zoe_u16)
        return processing.after(zoe_u16, zoe_m, list(core(rgb01, zoe_m)))

    return forward


def main(network: str) -> None:
    warnings.simplefilter("ignore")
    source = make_source(network)
    core = core_of(source.refiner)
    eager = source.shipped(core).eval()
    kind = engine_kind("torchscript")
    built = {
        precision: torch.jit.load(io.BytesIO(kind.build(source, precision).content)).eval()
        for precision in PRECISIONS
    }
    processing = compile_script(PrePostProcessing(HEIGHT, WIDTH))
    switch_on()
    with torch.inference_mode():
        for precision, module in built.items():
            compare(f"{network} {precision}", module, eager)
        compare(f"{network} processing", around(processing, core), eager)


if __name__ == "__main__":
    main(sys.argv[1])
