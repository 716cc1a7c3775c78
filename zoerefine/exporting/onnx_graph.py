"""A refiner as an ONNX graph, for the engines that read ONNX."""

import tempfile
import warnings
from pathlib import Path

import torch
from torch import nn

from zoerefine.exporting.export_source import ExportSource

OPSET = 18
INPUTS, OUTPUTS = ("rgb01", "zoe_m"), ("depth_m", "spread")


def to_onnx(core: nn.Module, source: ExportSource) -> bytes:
    """A core of the source as a graph with a dynamic batch, with the inputs and outputs above.

    Without confidence there is no `spread`.

    torch's TorchScript-based exporter is used: it writes simulated quantization as the Q and DQ
    pairs that engines look for.
    """
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.no_grad():
        outputs = OUTPUTS if source.has_confidence else OUTPUTS[:1]
        path = Path(folder) / "refiner.onnx"
        warnings.simplefilter("ignore")  # both exporters give many warnings, none of them relevant
        torch.onnx.export(
            core, source.example(2), path, dynamo=False, opset_version=OPSET,
            input_names=list(INPUTS), output_names=list(outputs),
            dynamic_axes={name: {0: "batch"} for name in (*INPUTS, *outputs)},
        )  # fmt: skip
        return path.read_bytes()
