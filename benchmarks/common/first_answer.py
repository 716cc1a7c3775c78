"""A new process loads an engine's file and runs one frame: the seconds and megabytes it takes.

Prints JSON: {"load_s", "memory_mb"}; importing torch is not counted, since every side needs it.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch


def main(path: str, height: int, width: int) -> None:
    """Load the file and run one frame."""
    before = resident_mb()
    start = time.perf_counter()
    if path.endswith(".onnx"):
        import onnxruntime

        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        inputs = torch.rand(1, 3, height, width), torch.rand(1, 1, height, width) + 1
        session.run(None, dict(zip(("rgb01", "zoe_m"), (t.numpy() for t in inputs), strict=True)))
    else:
        from zoerefine.exporting.bundle import load_bundle

        rgb = torch.zeros(1, height, width, 3, dtype=torch.uint8)
        zoe = torch.full((1, height, width), 512).to(torch.uint16)
        load_bundle(path).refine(rgb, zoe)
    took = time.perf_counter() - start
    print(json.dumps({"load_s": took, "memory_mb": resident_mb() - before}))


def resident_mb() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
