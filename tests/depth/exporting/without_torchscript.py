"""Builds, saves, loads and runs engine kinds while every use of TorchScript raises.

python -m tests.depth.exporting.without_torchscript FOLDER KIND...

Prints the name of each kind that worked. FOLDER gets its bundle, in int8 if
it has that.
"""

import sys
from pathlib import Path

import numpy as np
import torch

from tests.depth.exporting.sources import untrained_source
from zoerefine.depth.exporting.bundle.bundle import load_bundle, save_bundle
from zoerefine.depth.exporting.engine_kinds import engine_kind
from zoerefine.depth.exporting.source import ExportSource

HEIGHT, WIDTH = 24, 32


def make_source() -> ExportSource:
    """A refiner with random weights, the same each time."""
    torch.manual_seed(0)
    source = untrained_source("small", HEIGHT, WIDTH)
    source.refiner.trained.fill_(True)
    for head, std in (("head", 0.3), ("scale_head", 1.0)):
        torch.nn.init.normal_(source.refiner.get_parameter(f"backbone.{head}.weight"), std=std)
    return source


def raise_error(*args, **options):
    raise RuntimeError("TorchScript is used")


def main(folder: Path, *kinds: str) -> None:
    for function in ("script", "trace", "save", "load", "freeze", "trace_module"):
        setattr(torch.jit, function, raise_error)
    rgb, zoe = np.zeros((1, 30, 40, 3), np.uint8), np.full((1, 30, 40), 512, np.uint16)
    for name in kinds:
        kind = engine_kind(name)
        precision = "int8" if "int8" in kind.precisions() else "fp32"
        manifest = {"engine": name, "precision": precision, "run": "a", "torch": torch.__version__}
        save_bundle(kind.build(make_source(), precision), manifest, folder / name)
        assert load_bundle(folder / name)(rgb, zoe).shape == zoe.shape
        print(name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
