"""Checks of a configuration before hours of training.

After Karpathy, "A recipe for training neural networks" (2019), for this task. Each check starts
from the same initial state, and nothing of it is kept. They train in the configured precision, but
without torch.compile.
"""

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from zoerefine.base.config import Config
from zoerefine.base.files.atomic import replacing
from zoerefine.base.messages import first_few
from zoerefine.depth.data.loading.prefetch import DeviceBatch
from zoerefine.depth.training.job import prepare
from zoerefine.depth.training.point_inputs import training_transform
from zoerefine.depth.training.schedule import GeometricSchedule, Schedule
from zoerefine.depth.training.trainer import Trainer
from zoerefine.depth.training.usage import StepTimer, kept_for_gradients, largest_batch
from zoerefine.lab.analysis.pictures.style import plain_style

MIN_STEPS, MAX_STEPS = 24, 40  # of a short training
MIN_SAMPLES = 4  # of a step of a short training
SHORT_TRAININGS = 8  # their number, and that of the other checks, in all
DRAWN = 4  # samples of a batch


@dataclass(frozen=True)
class Pace:
    """The size of short trainings.

    Attributes:
        parts: a step takes the first of this many parts of a batch.
        steps: of a short training.
        step_s: seconds of such a step.
    """

    parts: int
    steps: int
    step_s: float


def measure_pace(trainer: Trainer, batch: DeviceBatch, limit_s: float) -> Pace:
    """Time a step of a few samples, and choose the largest short trainings within the limit."""
    samples = len(batch.index)
    few = batch.split(max(1, samples // MIN_SAMPLES))[0]
    for _ in range(2):  # the first step prepares kernels
        start = time.perf_counter()
        trainer.train_step(few)[0].item()
        sample_s = (time.perf_counter() - start) / len(few.index)
    return choose_pace(sample_s, samples, limit_s)


def choose_pace(sample_s: float, samples: int, limit_s: float) -> Pace:
    """As many samples a step as allow MIN_STEPS, at least MIN_SAMPLES; then as many steps."""
    parts = 1
    while samples // (2 * parts) >= MIN_SAMPLES:
        if fitting_steps(sample_s * samples / parts, limit_s) >= MIN_STEPS:
            break
        parts *= 2
    step_s = sample_s * math.ceil(samples / parts)
    steps = fitting_steps(step_s, limit_s)
    return Pace(parts, max(MIN_STEPS, min(MAX_STEPS, steps)), step_s)


def fitting_steps(step_s: float, limit_s: float) -> int:
    """Steps of a short training if all of them together take the time limit."""
    return int(limit_s / step_s / SHORT_TRAININGS)


RATES = 1e-6, 10.0  # range of the rate test
RISE_SHARE = 1.3  # of its minimum, above which the loss of the rate test has risen
OVERFIT_SHARE = 0.6  # of its first value, to which the loss of a single batch must fall
MIN_EFFECT = 0.005  # of the loss; a smaller difference is noise
WAIT_SHARE = 0.05  # of the time, which steps may wait for data

GOOD, LOOK, UNCLEAR = "good", "look", "unclear"
Result = tuple[str, str]  # a verdict and a sentence


def verdict(good: bool) -> str:
    return GOOD if good else LOOK


@dataclass(frozen=True)
class TrainingCheck:
    """A check: a function, and its duration in steps of a short training."""

    name: str
    run: Callable[[], Result]
    steps: int


class TrainingChecks:
    """The checks of one configuration.

    Args:
        cfg: the configuration.
        out: folder for the pictures.
        limit_s: seconds that all checks together should take; it decides the size of short
            trainings.
    """

    def __init__(self, cfg: Config, out: Path, limit_s: float) -> None:
        self.cfg, self.out = cfg.clone(), out
        self.cfg.defrost()
        self.cfg.TRAIN.COMPILE = ""
        cache, split = prepare(self.cfg)
        self.trainer = Trainer(self.cfg, cache, split)
        self.full_batch = next(self.trainer.sample_training_batches())
        self.initial_state = copy.deepcopy(self.trainer.state())
        self.pace = measure_pace(self.fresh_trainer(), self.full_batch, limit_s)
        self.batch = self.part_of(self.full_batch)

    def checks(self) -> list[TrainingCheck]:
        """All checks, cheap ones first."""
        steps, parts = self.pace.steps, self.pace.parts
        return [
            TrainingCheck("a batch, drawn", self.draw, 0),
            TrainingCheck("loss before training", self.first_loss, 1),
            TrainingCheck("samples do not mix", self.samples_do_not_mix, 2),
            TrainingCheck("gradients", self.gradients, 3),
            TrainingCheck("memory", self.memory, parts),
            TrainingCheck("overfits one batch", self.overfits_one_batch, steps),
            TrainingCheck("learning rate", self.learning_rate, 2 * steps),
            TrainingCheck("waits for data", self.waits_for_data, steps + 2 * parts),
            TrainingCheck("pseudo depth matters", self.pseudo_depth_matters, 2 * steps),
            TrainingCheck("pictures matter", self.pictures_matter, steps),
        ]

    def fresh_trainer(self, schedule: Schedule | GeometricSchedule | None = None) -> Trainer:
        """The trainer in its initial state, at a constant TRAIN.LR or with another schedule."""
        self.trainer.restore(self.initial_state)
        self.trainer.refiner.train()
        constant = self.cfg.TRAIN.clone()
        constant.SCHEDULE, constant.WARMUP = "constant", 0.0
        self.trainer.schedule = schedule or Schedule(constant, 1)  # type: ignore[assignment]
        return self.trainer

    def part_of(self, batch: DeviceBatch) -> DeviceBatch:
        """The samples of a batch that a step of a short training takes."""
        return batch.split(self.pace.parts)[0]

    def loss_of(self, depth_m: Tensor) -> float:
        """The loss of some depth for `self.batch`."""
        batch = self.batch
        inputs = batch.zoe_m, batch.depth_m, batch.objects, batch.rgb01
        return self.trainer.loss(depth_m, *inputs)[0].item()

    def draw(self) -> Result:
        """Draw a batch as the refiner sees it, augmented."""
        path = self.out / "batch.png"
        draw_batch(training_transform(self.cfg, 0)(self.full_batch), path)
        return GOOD, f"look at {path}: do the three rows show the same scene?"

    @torch.no_grad()
    def first_loss(self) -> Result:
        """An untrained refiner returns its input, and random weights have a finite loss."""
        refiner = self.fresh_trainer().refiner.eval()
        untrained = self.loss_of(refiner(self.batch.rgb01, self.batch.zoe_m))
        pseudo = self.loss_of(self.batch.zoe_m)
        if not math.isfinite(pseudo):
            return LOOK, f"the loss of the pseudo depth is {pseudo}: look at the data"
        random = self.loss_of(refiner.train()(self.batch.rgb01, self.batch.zoe_m))
        good = math.isclose(untrained, pseudo, rel_tol=1e-3) and math.isfinite(random)
        return verdict(good), (
            f"{untrained:.4f} untrained, {pseudo:.4f} of the pseudo depth, {random:.4f} with "
            "random weights"
        )

    def samples_do_not_mix(self) -> Result:
        """The depth of a sample must depend on its own picture, and on no other's."""
        if len(self.batch.index) < 2:
            return GOOD, "a batch has one sample"
        trainer = self.fresh_trainer()
        trainer.train_step(self.batch)  # an untrained refiner returns its input
        refiner = trainer.refiner.eval()
        rgb01 = self.batch.rgb01.clone().requires_grad_()
        refiner(rgb01, self.batch.zoe_m)[0].sum().backward()
        assert rgb01.grad is not None
        if rgb01.grad[1:].any():
            return LOOK, "a sample's depth depends on other samples' pictures"
        if not rgb01.grad[0].any():
            return LOOK, "a sample's depth depends on no picture: raise MODEL.MAX_LOG"
        return GOOD, "a sample's depth depends on its own picture only"

    def gradients(self) -> Result:
        """Every parameter receives a finite gradient."""
        trainer = self.fresh_trainer()
        for _ in range(3):
            trainer.train_step(self.batch)
        named = list(trainer.refiner.named_parameters())
        without = [n for n, p in named if p.grad is None or not p.grad.isfinite().all()
                   or not p.grad.any()]  # fmt: skip
        if without:
            return LOOK, f"missing or not finite in {first_few(without, 3)}"
        return GOOD, f"reach all {len(named)} tensors"

    def memory(self) -> Result:
        """The memory of a step, and the largest batch that fits."""
        trainer = self.fresh_trainer()
        parts = trainer.part_count(self.full_batch)
        part = self.full_batch.split(parts)[0]
        kept = kept_for_gradients(trainer.refiner, lambda: trainer.loss_of(part))
        size = self.cfg.LOADER.BATCH
        sample_bytes, device = kept / len(part.index), trainer.device
        most, needed, free = largest_batch(trainer.refiner, sample_bytes, parts, size, device)
        return verdict(size <= most), (
            f"about {needed / 2**30:.2f} GiB at LOADER.BATCH {size}; "
            f"{free / 2**30:.1f} GiB are free, for batches of up to about {most}"
        )

    def overfits_one_batch(self) -> Result:
        """The loss of a single batch, repeated, must fall."""
        trainer = self.fresh_trainer()
        losses = [trainer.train_step(self.batch)[0].item() for _ in range(self.pace.steps)]
        first, last = losses[0], float(np.mean(losses[-3:]))
        good = last <= OVERFIT_SHARE * first
        text = f"its loss falls from {first:.4f} to {last:.4f} in {len(losses)} steps"
        return verdict(good), text + ("" if good else ": change TRAIN.LR, or look at the batch")

    def learning_rate(self) -> Result:
        """Raise the learning rate until the loss rises (Smith 2017), and draw the curve."""
        count = 2 * self.pace.steps
        trainer = self.fresh_trainer(GeometricSchedule(*RATES, count))
        rates: list[float] = []
        losses: list[float] = []
        for batch in islice(trainer.endless_batches(), count):
            loss = trainer.train_step(self.part_of(batch))[0].item()
            if not math.isfinite(loss):
                break
            rates.append(trainer.schedule.rate(trainer.step - 1))
            losses.append(loss)
        smooth = smoothed(losses)
        path, configured = self.out / "learning_rate.png", self.cfg.TRAIN.LR
        draw_rates(rates, losses, smooth, configured, path)
        best = rates[int(np.argmin(smooth))]
        at_configured = float(np.interp(math.log(max(configured, RATES[0])), np.log(rates), smooth))
        good = configured <= best or at_configured <= RISE_SHARE * min(smooth)
        text = f"TRAIN.LR is {configured:.1g}; the loss falls up to {best:.1g} ({path})"
        return verdict(good), text + ("" if good else f": try {best / 3:.1g}")

    def waits_for_data(self) -> Result:
        """The share of the time in which steps wait for data."""
        trainer, timer = self.fresh_trainer(), StepTimer(self.trainer.device)
        batches = trainer.prefetch(trainer.loader)
        for number, batch in enumerate(islice(batches, 2 + self.pace.steps // self.pace.parts)):
            trainer.train_step(batch)
            if number:
                timer.step(len(batch.index), batches.wait_s, batches.copy_s)
            else:  # nothing is loaded ahead of the first step
                timer.restart()
        found = timer.totals()
        good = found["wait_share"] <= WAIT_SHARE
        text = f"{found['wait_share']:.1%} of the time, at {found['images_per_s']:.0f} images/s"
        return verdict(good), text + ("" if good else ": see zoerefine profile")

    def pseudo_depth_matters(self) -> Result:
        """Another frame's pseudo depth must raise the loss."""
        if len(self.batch.index) < 2:
            return UNCLEAR, "a batch has one sample"
        losses = self.losses(lambda batch: replace(batch, zoe_m=batch.zoe_m.roll(1, 0)))
        return self.compared(losses, "with another frame's pseudo depth")

    def pictures_matter(self) -> Result:
        """Grey pictures must raise the loss."""
        losses = self.losses(lambda batch: replace(batch, rgb01=torch.full_like(batch.rgb01, 0.5)))
        return self.compared(losses, "with grey pictures")

    def compared(self, others: np.ndarray, what: str) -> Result:
        """Whether losses are above those of unchanged batches by more than their noise."""
        own = self.unchanged_losses
        text = f"after {self.pace.steps} steps the loss is {own.mean():.4f}, {what} "
        text += f"{others.mean():.4f}"
        difference = others - own
        noise = 2 * difference.std(ddof=1) / math.sqrt(len(difference))
        noise = max(noise, MIN_EFFECT * own.mean())
        if abs(difference.mean()) <= noise:
            return UNCLEAR, f"{text}; this is within the noise: raise --limit for longer trainings"
        return verdict(bool(difference.mean() > 0)), text

    @cached_property
    def unchanged_losses(self) -> np.ndarray:
        return self.losses(lambda batch: batch)

    def losses(self, change: Callable[[DeviceBatch], DeviceBatch]) -> np.ndarray:
        """The losses in the second half of a short training on changed batches."""
        trainer, losses = self.fresh_trainer(), []
        for batch in islice(trainer.endless_batches(), self.pace.steps):
            losses.append(trainer.train_step(change(self.part_of(batch)))[0].item())
        return np.array(losses[len(losses) // 2 :])


def smoothed(losses: list[float], share: float = 0.8) -> list[float]:
    """An exponential mean, without its bias towards the first value."""
    mean, found = 0.0, []
    for number, loss in enumerate(losses, 1):
        mean = share * mean + (1 - share) * loss
        found.append(mean / (1 - share**number))
    return found


@plain_style()
def draw_batch(batch: DeviceBatch, path: Path) -> None:
    """RGB, pseudo depth and true depth of some samples, after augmentation."""
    from matplotlib.figure import Figure

    count = min(DRAWN, len(batch.index))
    figure = Figure(figsize=(3.2 * count, 7.4), layout="constrained")
    axes = figure.subplots(3, count, squeeze=False)
    for k in range(count):
        farthest = float(batch.depth_m[k].max())
        pictures = (
            ("RGB", batch.rgb01[k].permute(1, 2, 0), None),
            ("pseudo depth", batch.zoe_m[k, 0], "viridis"),
            ("true depth", batch.depth_m[k, 0], "viridis"),
        )
        for axis, (name, picture, colors) in zip(axes[:, k], pictures, strict=True):
            values = picture.cpu().numpy()
            if colors:
                values = np.ma.masked_less_equal(values, 0)
            axis.imshow(values, cmap=colors, vmin=0, vmax=farthest if colors else 1)
            axis.set_title(f"{name} of record {int(batch.index[k])}", fontsize=9)
            axis.set_axis_off()
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=100)


@plain_style()
def draw_rates(
    rates: Sequence[float],
    losses: Sequence[float],
    smooth: Sequence[float],
    configured: float,
    path: Path,
) -> None:
    """The loss against the learning rate of the rate test, and the configured rate."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(rates, losses, color="0.8", label="each step")
    axes.plot(rates, smooth, color="#1d4e89", label="smoothed")
    axes.axvline(configured, color="#c2410c", linestyle="--", label="TRAIN.LR")
    axes.set_xscale("log")
    axes.set_xlabel("learning rate")
    axes.set_ylabel("loss")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
