"""What a search would do: its space, how many combinations that is, and about how long it takes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from zoerefine.base.config import Config, training_size
from zoerefine.base.machine.device import compute_dtype, pick_device
from zoerefine.depth.loss import Loss
from zoerefine.depth.model import build_refiner
from zoerefine.depth.study.trials import OwnTraining, read_criteria
from zoerefine.depth.training.job import find_data
from zoerefine.lab.search.plan import first_facts, first_lines, plan_facts, plan_lines
from zoerefine.lab.search.space.space import Parameter
from zoerefine.lab.search.study.ending import planned_trials

TIMED_STEPS = 4  # after one that is not timed


Space = tuple[Parameter, ...]


def plan(cfg: Config, space: Space, enqueued: Sequence[Path], earlier: Sequence[Path]) -> list[str]:
    """The plan, line by line.

    Args:
        space: the parameters of SEARCH.
        enqueued, earlier: what --enqueue and --from name.

    Raises:
        UserError: a fault of the space, of the data, or of what --enqueue and --from name.
    """
    return [
        *plan_lines(space, cfg.STUDY, read_criteria(cfg)),
        *first_lines(partial(OwnTraining, cfg, space), enqueued, earlier),
        *(time_lines(cfg, planned_trials(space, cfg.STUDY)) if cfg.DATA.ROOT else []),
    ]


def facts(
    cfg: Config, space: Space, enqueued: Sequence[Path], earlier: Sequence[Path]
) -> dict[str, Any]:
    """The plan for programs. Raises as `plan`."""
    found = plan_facts(space, cfg.STUDY, read_criteria(cfg))
    found |= first_facts(partial(OwnTraining, cfg, space), enqueued, earlier)
    found["estimate"] = vars(estimate(cfg, found["trials"])) if cfg.DATA.ROOT else None
    return found


@dataclass(frozen=True)
class Estimate:
    """How long the trials would take without pruning; start-up and checkpoints come on top."""

    epochs: int
    frames: int
    images_per_s: float
    trial_s: float
    total_s: float


def time_lines(cfg: Config, trials: int) -> list[str]:
    """How long the trials would take, in words."""
    found = estimate(cfg, trials)
    return [
        f"a trial: {found.epochs} epochs of {found.frames} frames at {found.images_per_s:.1f} "
        f"images/s (timed over {TIMED_STEPS} steps on random pictures), {duration(found.trial_s)} "
        "if not pruned",
        f"all trials: about {duration(found.total_s)} if none is pruned; start-up and checkpoints "
        "come on top",
    ]


def estimate(cfg: Config, trials: int) -> Estimate:
    """How long the trials would take, from a few timed steps of the config without SEARCH."""
    dataset, split = find_data(cfg)
    frames = sum(frame.scene in split.train for frame in dataset.frames)
    evaluated = sum(frame.scene in split.val for frame in dataset.frames)
    epochs = cfg.STUDY.EPOCHS or cfg.TRAIN.EPOCHS
    step_s = step_time(cfg)
    # An evaluation has no backward pass, about two thirds of a step's work.
    images = epochs * (frames + evaluated / 3)
    seconds = images / cfg.LOADER.BATCH * step_s
    total = seconds * -(-trials // cfg.STUDY.WORKERS)
    return Estimate(epochs, frames, cfg.LOADER.BATCH / step_s, seconds, total)


def step_time(cfg: Config) -> float:
    """Seconds of a training step of this config's refiner: the shortest of a few."""
    device = pick_device()
    dtype = compute_dtype(cfg.TRAIN.PRECISION, device)
    height, width = training_size(cfg)
    shape = (cfg.LOADER.BATCH, 1, height, width)
    refiner = build_refiner(cfg.MODEL).to(device)
    refiner.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    loss = Loss(cfg.LOSS.TERMS, cfg.LOSS.OBJECT_WEIGHT)
    rgb01 = torch.rand(shape[0], 3, height, width, device=device)
    depth_m = torch.rand(shape, device=device) + 1
    objects = torch.zeros(shape, dtype=torch.uint8, device=device)
    times = []
    for _ in range(TIMED_STEPS + 1):
        start = time.perf_counter()
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            refined_m = refiner(rgb01, depth_m)
        total, _ = loss(refined_m, depth_m, depth_m, objects, rgb01)
        total.backward()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def duration(seconds: float) -> str:
    """A duration in seconds, minutes or hours, e.g. `12 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
