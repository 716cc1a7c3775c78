"""A refiner as an ONNX graph, for the engines that read ONNX."""

import tempfile
import warnings
from pathlib import Path

import torch

from zoerefine.exporting.engine_kinds import ExportSource
from zoerefine.model import RefinerNetwork

OPSET = 18
INPUTS, OUTPUT = ("rgb01", "zoe_m"), "depth_m"


def to_onnx(core: RefinerNetwork, source: ExportSource) -> bytes:
    """The core with a dynamic batch: rgb01 [B, 3, h, w], zoe_m [B, 1, h, w] -> depth_m.

    torch's TorchScript-based exporter is used: it writes simulated quantization as the Q and DQ
    pairs that engines look for.
    """
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.no_grad():
        path = Path(folder) / "refiner.onnx"
        warnings.simplefilter("ignore")  # both exporters give many warnings, none of them relevant
        torch.onnx.export(
            core, source.example(2), path, dynamo=False, opset_version=OPSET,
            input_names=list(INPUTS), output_names=[OUTPUT],
            dynamic_axes={name: {0: "batch"} for name in (*INPUTS, OUTPUT)},
        )  # fmt: skip
        return path.read_bytes()
