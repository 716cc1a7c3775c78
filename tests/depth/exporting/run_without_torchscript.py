"""Builds, saves, loads and runs engine kinds while every use of TorchScript raises.

python run_without_torchscript.py KIND...

Prints the name of each kind that worked.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from zoerefine.depth.exporting.bundle.bundle import load_bundle, save_bundle
from zoerefine.depth.exporting.engine_kinds import engine_kind
from zoerefine.depth.exporting.source import ExportSource
from zoerefine.depth.model import build_refiner


def raise_error(*args, **options):
    raise RuntimeError("TorchScript is used")


def noise():
    yield torch.rand(1, 3, 24, 32), torch.rand(1, 1, 24, 32) + 1


def main(kinds: list[str]) -> None:
    refiner = build_refiner({"NAME": "small", "BASE": 4, "MAX_LOG": 1.0, "CONFIDENCE": True})
    source = ExportSource(refiner.eval(), 24, 32, noise)
    for function in ("script", "trace", "save", "load", "freeze", "trace_module"):
        setattr(torch.jit, function, raise_error)
    rgb, zoe = np.zeros((1, 30, 40, 3), np.uint8), np.full((1, 30, 40), 512, np.uint16)
    for name in kinds:
        kind = engine_kind(name)
        for precision in {"fp32", "int8"} & set(kind.precisions()):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "bundle"
                manifest = {"engine": name, "precision": precision, "torch": torch.__version__}
                save_bundle(kind.build(source, precision), manifest, path)
                assert (load_bundle(path)(rgb, zoe) == 512).all()  # an untrained refiner's result
        print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
