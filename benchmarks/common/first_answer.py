"""A new process loads an engine's file and runs one frame: the seconds and megabytes it takes.

Prints JSON: {"load_s", "first_s", "memory_mb"}; the first call may compile. Importing torch is not
counted, since nearly every side needs it.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch

CORE = "core"  # of the names of files that ONNX Runtime runs directly: a core without a manifest


def main(path: str, height: int, width: int) -> None:
    """Load the file and run one frame."""
    before = resident_mb()
    start = time.perf_counter()
    if Path(path).name.startswith(CORE):
        import onnxruntime

        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        inputs = torch.rand(1, 3, height, width), torch.rand(1, 1, height, width) + 1
        named = dict(zip(("rgb01", "zoe_m"), (t.numpy() for t in inputs), strict=True))
        loaded = time.perf_counter()
        session.run(None, named)
    else:
        from zoerefine.depth.exporting.bundle.bundle import load_bundle

        rgb = torch.zeros(1, height, width, 3, dtype=torch.uint8)
        zoe = torch.full((1, height, width), 512).to(torch.uint16)
        engine = load_bundle(path)
        loaded = time.perf_counter()
        engine.outputs(rgb, zoe)[0].cpu()
    seconds = {"load_s": loaded - start, "first_s": time.perf_counter() - loaded}
    print(json.dumps(seconds | {"memory_mb": resident_mb() - before}))


def resident_mb() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
