"""A training step: eager float32 and the trainer's own step in turns, then alternatives.

The alternatives are built and timed one after the other: whether operations must be deterministic
is one setting for the whole process, and the trainer that was built last decides.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from common.report import Row, row
from common.timing import in_turns
from rows import each
from world import config, packed

from zoerefine.depth.data.cache.cache import Cache
from zoerefine.depth.data.loading.prefetch import DeviceBatch
from zoerefine.depth.data.split import Split
from zoerefine.depth.training.trainer import Trainer

PLAIN, DEFAULT = "plain eager fp32", "default settings"
AGAINST_PLAIN = 2.0
WARM_UP = 3
SECONDS, SECONDS_SMALL = 3, 0.2


def measure(folder: Path, small: bool) -> Iterator[Row]:
    """Milliseconds and images/s of a step in each variant."""
    cache = packed(folder, small)
    both = {
        PLAIN: lambda: plain_step(cache, small),
        DEFAULT: lambda: trainer_step(cache, small, {}),
    }
    times = yield from timed_steps(both, small)
    if len(times) == 2:
        share = float(np.median(times[PLAIN] / times[DEFAULT]))
        yield row(f"training step, {DEFAULT}: against {PLAIN}", share, "x", AGAINST_PLAIN)
    graph = "CUDA graph of the whole step, bf16"
    yield from timed_steps({graph: lambda: cuda_graph_step(cache, small)}, small)
    # Those that compile last: the time limit may end them.
    for name, train in alternatives(small).items():
        yield from timed_steps({name: lambda t=train: trainer_step(cache, small, t)}, small)
    if torch.cuda.is_available():
        yield row("training: peak memory", torch.cuda.max_memory_allocated() / 2**30, "GiB")


def alternatives(small: bool) -> dict[str, dict[str, object]]:
    """The TRAIN keys of each alternative, by its name."""
    found: dict[str, dict[str, object]] = {
        "fp32": {"PRECISION": "fp32"},
        "fp16": {"PRECISION": "fp16"},
        "bf16": {"PRECISION": "bf16"},
    }
    if not small:
        free = {"DETERMINISTIC": False}
        found["torch.compile"] = {"COMPILE": "default", **free}
        found["torch.compile, CUDA graphs"] = {"COMPILE": "reduce-overhead", **free}
    return found


def timed_steps(
    builders: Mapping[str, Callable[[], Callable[[], object]]], small: bool
) -> Generator[Row, None, dict[str, np.ndarray]]:
    """Build steps and time them in turns: their rows, and milliseconds of each by name."""
    failures: list[Row] = []
    steps = each(builders, failures)
    yield from failures
    times = in_turns(steps, SECONDS_SMALL if small else SECONDS) if steps else {}
    batch = config(small).LOADER.BATCH
    for name, ms in times.items():
        half = float(np.median(ms))
        yield row(f"training step, {name}: p50", half, "ms")
        yield row(f"training step, {name}: throughput", 1000 * batch / half, "images/s")
    return times


def make(cache: Cache, small: bool, train: dict[str, object]) -> tuple[Trainer, DeviceBatch]:
    """A trainer, and one batch for all steps: loading is measured elsewhere."""
    cfg = config(small, **train)
    trainer = Trainer(cfg, cache, Split(cache.scenes, (), ()))
    return trainer, next(iter(trainer.prefetch(trainer.loader)))


def trainer_step(cache: Cache, small: bool, train: dict[str, object]) -> Callable[[], object]:
    """The trainer's step, after a warm-up: compilers compile, or fail, in the first calls."""
    trainer, batch = make(cache, small, train)
    for _ in range(WARM_UP):
        trainer.train_step(batch)
    return lambda: trainer.train_step(batch)


def plain_step(cache: Cache, small: bool) -> Callable[[], object]:
    """The simplest step: float32, default memory layout, no average of the weights."""
    trainer, batch = make(cache, small, {"PRECISION": "fp32"})
    refiner = trainer.refiner.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(refiner.parameters(), lr=1e-4)
    rgb01 = batch.rgb01.contiguous()

    def step() -> None:
        refined_m = refiner(rgb01, batch.zoe_m)
        loss, _ = trainer.loss(refined_m, batch.zoe_m, batch.depth_m, batch.objects, rgb01)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(refiner.parameters(), 1.0)
        optimizer.step()

    step()
    return step


def cuda_graph_step(cache: Cache, small: bool) -> Callable[[], object]:
    """Forward, loss, backward and optimizer step as one CUDA graph."""
    if not torch.cuda.is_available():
        raise RuntimeError("CUDA graphs need a GPU")
    trainer, batch = make(cache, small, {"PRECISION": "bf16", "DETERMINISTIC": False})
    parameters = list(trainer.refiner.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, capturable=True)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            refined_m = trainer.refiner(batch.rgb01, batch.zoe_m)
        loss, _ = trainer.loss(refined_m, batch.zoe_m, batch.depth_m, batch.objects, batch.rgb01)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
