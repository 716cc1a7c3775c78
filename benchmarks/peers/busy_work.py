"""Work of one kind: for each number of seconds on stdin, prints JSON {"per_s"}.

Arguments: the kind (`WORKS`); `ours` or `torch` (torch is loaded first, so OpenMP is as torch
comes); a folder with `world/` and bundles named by their engine; and a control group's folder to
enter first, or an empty word.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

HEIGHT, WIDTH, BATCH = 192, 256, 4
Work = Callable[[], int]  # returns how many images or frames it has done


def training(folder: Path) -> Work:
    """Steps of a small refiner."""
    import torch

    from zoerefine.base.config import defaults, merge
    from zoerefine.depth.model import build_refiner

    cfg = defaults()
    merge(cfg, {"MODEL": {"NAME": "guided", "BASE": 24}}, "benchmark")
    torch.manual_seed(0)
    refiner = build_refiner(cfg.MODEL).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(refiner.parameters(), 1e-3)
    rgb01 = torch.rand(BATCH, 3, 96, 128)
    zoe_m, depth_m = torch.rand(2, BATCH, 1, 96, 128) + 1

    def step() -> int:
        optimizer.zero_grad(set_to_none=True)
        (refiner(rgb01, zoe_m) - depth_m).abs().mean().backward()
        optimizer.step()
        return BATCH

    return step


def packing(folder: Path) -> Work:
    """A whole packed cache."""
    from zoerefine.depth.data.cache.pack import build_cache
    from zoerefine.depth.data.layouts.readers import open_dataset

    dataset, root = open_dataset(folder / "world"), folder / f"caches-{os.getpid()}"

    def step() -> int:
        shutil.rmtree(root, ignore_errors=True)
        return len(build_cache(dataset, HEIGHT, WIDTH, root))

    return step


def inference(folder: Path) -> Work:
    """Refine a folder of pictures as `zoerefine infer` does, once the bundle is loaded."""
    from zoerefine.depth.data.layouts import habitatdyn
    from zoerefine.depth.exporting.bundle.bundle import load_bundle
    from zoerefine.depth.infer.inference import Inference
    from zoerefine.depth.infer.pipeline import refine
    from zoerefine.depth.infer.results import ResultFolder
    from zoerefine.depth.infer.sources import DepthFiles, open_source

    engine, out = load_bundle(folder / "torchscript.ts"), folder / f"out-{os.getpid()}"
    source = open_source(str(folder / "world" / habitatdyn.RGB))
    job = Inference(
        engine,
        source,
        DepthFiles(folder / "world" / habitatdyn.ZOE, source),
        ResultFolder(out, engine.digest, engine.manifest["commit"]),
    )

    def step() -> int:
        shutil.rmtree(out, ignore_errors=True)
        return len(refine(job, BATCH).written)

    return step


def one_engine(folder: Path, name: str) -> Work:
    """One frame at a time through an engine."""
    from zoerefine.base.files.images import read_rgb, read_values
    from zoerefine.depth.data.layouts.readers import open_dataset
    from zoerefine.depth.exporting.bundle.bundle import load_bundle

    [bundle] = folder.glob(f"{name}.*")
    engine, frame = load_bundle(bundle), open_dataset(folder / "world").frames[0]
    assert frame.zoe is not None
    rgb, zoe = read_rgb(frame.rgb)[None], read_values(frame.zoe)[None]

    def step() -> int:
        engine(rgb, zoe)
        return 1

    return step


WORKS: dict[str, Callable[[Path], Work]] = {
    "training": training,
    "packing": packing,
    "infer": inference,
    **{
        f"engine {name}": partial(one_engine, name=name)
        for name in ("torchscript", "openvino", "onnx")
    },
}


def main(kind: str, side: str, folder: str, group: str) -> None:
    """Answer until stdin ends."""
    if group:
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    if side == "torch":
        import torch  # noqa: F401

    import zoerefine  # noqa: F401  # chooses how OpenMP waits

    work = WORKS[kind](Path(folder))
    for _ in range(3):
        work()
    print("ready", flush=True)
    for line in sys.stdin:
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < float(line):
            count += work()
        print(json.dumps({"per_s": count / (time.perf_counter() - start)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
