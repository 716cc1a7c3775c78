"""A training step by the profiler: kernels, busy time, hidden waits, and what validation costs."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from common.report import Row, row
from rows import failure
from training import WARM_UP
from world import config, packed

from zoerefine.depth.data.split import Split
from zoerefine.depth.training.point_inputs import training_transform
from zoerefine.depth.training.trainer import Trainer

LARGEST, LONGEST_NAME = 16, 150  # kernels that are listed; characters


def measure(folder: Path, small: bool) -> Iterator[Row]:
    """Of the default settings, with one batch for all."""
    cache = packed(folder, small)
    cfg = config(small)
    scenes = tuple(cache.scenes)
    trainer = Trainer(cfg, cache, Split(scenes[1:], scenes[:1], ()))
    batch = next(iter(trainer.prefetch(trainer.loader)))
    transform = training_transform(cfg, 0)
    parts: dict[str, Callable[[], object]] = {
        "training step": lambda: trainer.train_step(batch),
        "augmentation": lambda: transform(batch),
    }
    for name, work in parts.items():
        for _ in range(WARM_UP):
            work()
        try:
            yield from profiled(name, work)
        except Exception as error:
            yield failure(f"{name} by the profiler", error)
    trainer.evaluate(scenes[:1], losses=True)
    start = time.perf_counter()
    trainer.evaluate(scenes[:1], losses=True)
    ms = 1e3 * (time.perf_counter() - start) / len(cache.indices(scenes[:1]))
    yield row("validation with losses: a frame", ms, "ms")


def profiled(name: str, work: Callable[[], object]) -> Iterator[Row]:
    """Kernels, and the share of the time in which the GPU computes; then hidden waits."""
    if not torch.cuda.is_available():
        raise RuntimeError("kernels are counted on a GPU")
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        ms = (time.perf_counter() - start) * 1e3
    on_gpu = torch.autograd.DeviceType.CUDA
    kernels = [event for event in profiler.events() if event.device_type == on_gpu]
    yield row(f"{name}: kernels", len(kernels), "")
    yield row(f"{name}: GPU busy", sum(event.device_time for event in kernels) / 1e3, "ms")
    yield row(f"{name}: until the GPU has finished, profiled", ms, "ms")
    sums: Counter[str] = Counter()
    for event in kernels:
        sums[event.name[:LONGEST_NAME]] += event.device_time / 1e3
    for kernel, kernel_ms in sums.most_common(LARGEST):
        yield row(f"{name}: {kernel}", kernel_ms, "ms")
    torch.cuda.set_sync_debug_mode("error")
    try:
        work()
    except RuntimeError as error:
        yield failure(f"{name} without a hidden wait", error)
    else:
        yield row(f"{name}: no hidden wait", 1.0, "", 1.0)
    finally:
        torch.cuda.set_sync_debug_mode("default")
