"""What a search would do: its space, how many combinations that is, and about how long it takes."""

import time
from collections.abc import Sequence
from pathlib import Path

import torch

from zoerefine.config import Config, training_size
from zoerefine.device import compute_dtype, pick_device
from zoerefine.loss import Loss
from zoerefine.model import build_refiner
from zoerefine.searching.budget import planned_trials
from zoerefine.searching.own_training import OwnTraining, read_criteria
from zoerefine.searching.plan_lines import budget_line, first_lines, space_lines
from zoerefine.searching.space_reader import read_space
from zoerefine.training.job import configured_data, configured_split

TIMED_STEPS = 4  # after one that is not timed


def plan(cfg: Config, enqueued: Sequence[Path], earlier: Sequence[Path]) -> list[str]:
    """The plan, line by line.

    Args:
        enqueued, earlier: what --enqueue and --from name.

    Raises:
        UserError: a fault of the space, of the data, or of what --enqueue and --from name.
    """
    space, criteria = read_space(cfg.SEARCH), read_criteria(cfg)
    lines = space_lines(space)
    lines += [f"{direction}: {name}" for name, direction in criteria.directions.items()]
    lines += [f"limit: {limit.name} at most {limit.at_most:g}" for limit in criteria.limits]
    lines.append(budget_line(space, cfg.STUDY))
    if enqueued or earlier:
        lines += first_lines(OwnTraining(cfg), enqueued, earlier)
    if cfg.DATA.ROOT:
        lines += time_lines(cfg, planned_trials(space, cfg.STUDY))
    return lines


def time_lines(cfg: Config, trials: int) -> list[str]:
    """How long the trials would take, from a few timed steps of the config without SEARCH."""
    dataset = configured_data(cfg)
    split = configured_split(cfg, dataset)
    frames = sum(frame.scene in split.train for frame in dataset.frames)
    evaluated = sum(frame.scene in split.val for frame in dataset.frames)
    epochs = cfg.STUDY.EPOCHS or cfg.TRAIN.EPOCHS
    step_s = step_time(cfg)
    # An evaluation has no backward pass, about two thirds of a step's work.
    images = epochs * (frames + evaluated / 3)
    seconds = images / cfg.LOADER.BATCH * step_s
    total = seconds * -(-trials // cfg.STUDY.WORKERS)
    return [
        f"a trial: {epochs} epochs of {frames} frames at {cfg.LOADER.BATCH / step_s:.1f} images/s "
        f"(timed over {TIMED_STEPS} steps on random pictures), {duration(seconds)} if not pruned",
        f"all trials: about {duration(total)} if none is pruned; start-up and checkpoints come on "
        "top",
    ]


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
