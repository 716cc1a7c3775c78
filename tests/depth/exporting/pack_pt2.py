"""Bundles of the kind `tensorrt-pt2`, made by Torch-TensorRT's own Python code, without a GPU.

    python pack_pt2.py FOLDER BUNDLES

FOLDER is as for lower_on_rtx.py, with a substitute engine class as Torch-TensorRT's runtime. So the
conversion, the shapes that the exporter assumes, and all of AOTInductor are real, for the CPU.
"""

import logging
import sys
from dataclasses import replace
from pathlib import Path

import lower_on_rtx

from zoerefine.depth.exporting.bundle.bundle import save_bundle
from zoerefine.depth.exporting.source import ExportSource
from zoerefine.depth.model import build_refiner


def main(folder, bundles):
    lower_on_rtx.replace_tensorrt_and_gpu(folder, "torch-tensorrt")
    logging.disable(logging.CRITICAL)
    lower_on_rtx.record_networks([], [])
    import torch_tensorrt

    from zoerefine.depth.exporting.engines import aoti_engine, tensorrt_engine, tensorrt_pt2_engine

    assert torch_tensorrt.ENABLED_FEATURES.torch_tensorrt_runtime
    tensorrt_engine.missing_requirement = lambda: ""
    aoti_engine.ON_GPU = aoti_engine.ON_CPU | {"freezing": False}
    for outputs in (1, 2):
        model = {"NAME": "small", "BASE": 4, "MAX_LOG": 1.0, "CONFIDENCE": outputs == 2}
        source = ExportSource(build_refiner(model).eval(), 24, 32, lambda: iter(()))
        built = tensorrt_pt2_engine.build(source, "fp16")
        # Without the GPU and the TensorRT that this machine lacks.
        kept = {name: built.requirements[name] for name in ("torch", "Torch-TensorRT's engine ABI")}
        manifest = {"engine": "tensorrt-pt2", "precision": "fp16", "torch": "2", "run": "abc"}
        save_bundle(
            replace(built, device="cpu", requirements=kept), manifest, bundles / f"{outputs}.pt2"
        )
        facts = tensorrt_pt2_engine.machine_facts()
        assert built.requirements == {
            name: [facts[name]]
            for name in ("GPU architecture", "torch", "TensorRT", "Torch-TensorRT's engine ABI")
        }


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
