"""Builds, saves, loads and runs an aoti engine while every use of TorchScript raises.

python aoti_without_torchscript.py BUNDLE
"""

import sys
from pathlib import Path

import numpy as np
import torch

from tests.depth.exporting.run_without_torchscript import raise_error
from zoerefine.depth.exporting.bundle.bundle import load_bundle, save_bundle
from zoerefine.depth.exporting.engine_kinds import engine_kind
from zoerefine.depth.exporting.shipped_module import ShippedModule, core_of
from zoerefine.depth.exporting.source import ExportSource
from zoerefine.depth.model import build_refiner

HEIGHT, WIDTH = 24, 32


def make_source() -> ExportSource:
    """A refiner with random weights, the same each time."""
    torch.manual_seed(0)
    refiner = build_refiner({"NAME": "small", "BASE": 4, "MAX_LOG": 1.0, "CONFIDENCE": True})
    refiner.trained.fill_(True)
    torch.nn.init.normal_(refiner.get_parameter("backbone.head.weight"), std=0.3)
    torch.nn.init.normal_(refiner.get_parameter("backbone.scale_head.weight"), std=1.0)
    return ExportSource(refiner.eval(), HEIGHT, WIDTH, lambda: iter(()))


def eager() -> ShippedModule:
    """The same refiner in torch."""
    source = make_source()
    return source.shipped(core_of(source.refiner)).eval()


def main(path: Path) -> None:
    for function in ("script", "trace", "save", "load", "freeze", "trace_module"):
        setattr(torch.jit, function, raise_error)
    manifest = {"engine": "aoti", "precision": "fp32", "run": "abc", "torch": torch.__version__}
    save_bundle(engine_kind("aoti").build(make_source(), "fp32"), manifest, path)
    rgb, zoe = np.zeros((1, 30, 40, 3), np.uint8), np.full((1, 30, 40), 512, np.uint16)
    assert load_bundle(path)(rgb, zoe).shape == zoe.shape


if __name__ == "__main__":
    main(Path(sys.argv[1]))
