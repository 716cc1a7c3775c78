"""The checks that people skip before they spend hours: each is good, or a sentence says why not.

After Karpathy, "A recipe for training neural networks" (2019), for this task.
"""

import copy
import math
from collections.abc import Callable, Container
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from zoerefine.config import Config
from zoerefine.data.augment import Augmentation
from zoerefine.data.prefetch import DeviceBatch
from zoerefine.device import free_memory_on
from zoerefine.files import replacing
from zoerefine.training.job import prepare
from zoerefine.training.schedule import Schedule
from zoerefine.training.step_timer import StepTimer
from zoerefine.training.trainer import Trainer

STEPS = 40  # of a short training
RATES = 1e-6, 1.0  # between which the range test raises the learning rate
OVERFIT_SHARE = 0.6  # of the pseudo depth's loss, below which one batch must be learned
WAIT_SHARE = 0.01
MEMORY_SHARE = 0.8  # of the free memory, which a batch may take
DRAWN = 4  # samples of the picture


@dataclass(frozen=True)
class Finding:
    """What a check has found; `good` or not, and in a sentence."""

    name: str
    good: bool
    text: str


@dataclass(frozen=True)
class Geometric:
    """A learning rate that is multiplied by the same factor at every step."""

    low: float
    high: float
    steps: int

    def rate(self, step: int) -> float:
        return float(self.low * (self.high / self.low) ** (step / max(1, self.steps - 1)))


class TrainingChecks:
    """A configuration's training, begun anew for each check; nothing of it is kept."""

    def __init__(self, cfg: Config, out: Path) -> None:
        self.cfg, self.out = cfg, out
        cache, split = prepare(cfg)
        self.trainer = Trainer(cfg, cache, split)
        self.batch = next(self.trainer.sample_training_batches())
        self.start = copy.deepcopy(self.trainer.state())

    def checks(self) -> list[Callable[[], Finding]]:
        """All checks, cheap ones first."""
        return [
            self.picture, self.first_loss, self.samples_apart, self.one_batch, self.gradients,
            self.without_input, self.waiting, self.memory, self.rates,
        ]  # fmt: skip

    def anew(self, schedule: Schedule | Geometric | None = None) -> Trainer:
        """The trainer as it began, with another schedule if wanted."""
        self.trainer.restore(self.start)
        self.trainer.refiner.train()
        self.trainer.schedule = schedule or Schedule(  # type: ignore[assignment]
            "constant", self.cfg.TRAIN.LR, STEPS, 0.0
        )
        return self.trainer

    def loss_of(self, depth_m: Tensor) -> float:
        """The loss of some depth of the batch."""
        batch = self.batch
        inputs = batch.zoe_m, batch.depth_m, batch.objects, batch.rgb01
        return self.trainer.loss(depth_m, *inputs)[0].item()

    def picture(self) -> Finding:
        """Draw a batch as the refiner sees it, augmented."""
        options = self.cfg.AUGMENT
        change = Augmentation(options.FLIP, options.CROP, options.COLOR, options.SCALE)
        path = self.out / "batch.png"
        draw_batch(change(self.batch, self.cfg.SEED, 0), path)
        return Finding("the batch, drawn", True, f"look at {path}: are the three the same scene?")

    @torch.no_grad()
    def first_loss(self) -> Finding:
        """An untrained refiner returns its input; training begins from what random weights tell."""
        refiner = self.anew().refiner.eval()
        ours = self.loss_of(refiner(self.batch.rgb01, self.batch.zoe_m))
        theirs = self.loss_of(self.batch.zoe_m)
        if not math.isfinite(theirs):
            return Finding("loss before training", False, f"it is {theirs}: look at the data")
        begun = self.loss_of(refiner.train()(self.batch.rgb01, self.batch.zoe_m))
        good = math.isclose(ours, theirs, rel_tol=1e-3) and math.isfinite(begun)
        text = f"{ours:.4f}; the pseudo depth's own is {theirs:.4f}, a first estimate's {begun:.4f}"
        return Finding("loss before training", good, text)

    def samples_apart(self) -> Finding:
        """What is said of one sample must not depend on another."""
        if len(self.batch.index) < 2:
            return Finding("samples kept apart", True, "a batch has one sample only")
        trainer = self.anew()
        trainer.train_step(self.batch)  # an untrained refiner says the same of everything
        refiner = trainer.refiner.eval()
        rgb01 = self.batch.rgb01.clone().requires_grad_()
        refiner(rgb01, self.batch.zoe_m)[0].sum().backward()
        assert rgb01.grad is not None
        if rgb01.grad[1:].any():
            return Finding("samples kept apart", False, "the samples of a batch are mixed")
        if not rgb01.grad[0].any():
            text = "a sample's depth depends on no picture at all: raise MODEL.MAX_LOG"
            return Finding("samples kept apart", False, text)
        text = "the first sample's depth depends on its own picture alone"
        return Finding("samples kept apart", True, text)

    def one_batch(self) -> Finding:
        """One batch, again and again, must be learned."""
        trainer, first = self.anew(), self.loss_of(self.batch.zoe_m)
        for _ in range(STEPS):
            last = trainer.train_step(self.batch)[0].item()
        share = last / first if first else 0.0
        text = f"its loss is {last:.4f} after {STEPS} steps; the pseudo depth's is {first:.4f}"
        if share > OVERFIT_SHARE:
            text += ": raise TRAIN.LR or MODEL.BASE, or look for depths that cannot be told"
        return Finding("overfits one batch", share <= OVERFIT_SHARE, text)

    def gradients(self) -> Finding:
        """After a few steps every parameter learns."""
        trainer = self.anew()
        for _ in range(3):
            trainer.train_step(self.batch)
        named = list(trainer.refiner.named_parameters())
        dead = [n for n, p in named if p.grad is None or not p.grad.isfinite().all()
                or not p.grad.any()]  # fmt: skip
        if dead:
            return Finding("gradients", False, f"do not reach {', '.join(dead[:3])}")
        return Finding("gradients", True, f"reach all {len(named)} tensors")

    def without_input(self) -> Finding:
        """A refiner that sees no picture corrects from depth alone; one that does must win."""
        seeing, blind = (self.short_training(blank) for blank in (False, True))
        text = f"after {STEPS} steps the loss is {seeing:.4f}, without RGB {blind:.4f}"
        if seeing >= blind:
            text += ": pictures have taught it nothing yet; a longer training may tell more"
        return Finding("pictures matter", seeing < blind, text)

    def short_training(self, blank: bool) -> float:
        """The mean loss of the second half of a short training, with or without the pictures."""
        trainer, losses = self.anew(), []
        for batch in islice(trainer.endless_batches(), STEPS):
            seen = hide(batch) if blank else batch
            losses.append(trainer.train_step(seen)[0].item())
        return float(np.mean(losses[STEPS // 2 :]))

    def waiting(self) -> Finding:
        """How much of the time steps wait for data."""
        trainer, clock = self.anew(), StepTimer(self.trainer.device)
        batches = trainer.prefetch(trainer.loader)
        clock.restart()
        for batch in batches:
            trainer.train_step(batch)
            clock.step(len(batch.index), batches.wait_s, batches.copy_s)
        found = clock.totals()
        share, speed = found["wait_share"], found["images_per_s"]
        text = f"{share:.1%} of an epoch's time, at {speed:.0f} images/s"
        good = share <= WAIT_SHARE
        return Finding("waits for data", good, text + ("" if good else ": see zoerefine profile"))

    def memory(self) -> Finding:
        """What a step keeps for its gradients, and the batch that would fill the memory."""
        trainer = self.anew()
        parts = trainer.part_count(self.batch)
        part = self.batch.split(parts)[0]
        weights = {p.untyped_storage().data_ptr(): p.nbytes for p in trainer.refiner.parameters()}
        fixed = 5 * sum(weights.values())  # weights, gradients, two moments, the average
        each = kept_for_gradients(lambda: trainer.loss_of(part), weights) / len(part.index)
        size = self.cfg.LOADER.BATCH
        free = free_memory_on(trainer.device)
        needed = fixed + each * math.ceil(size / parts)
        largest = parts * int((MEMORY_SHARE * free - fixed) / each)
        text = (
            f"about {needed / 2**30:.2f} GiB at LOADER.BATCH {size}; "
            f"{free / 2**30:.1f} GiB are free, for batches of up to about {largest}"
        )
        return Finding("memory", size <= largest, text)

    def rates(self) -> Finding:
        """Raise the learning rate until the loss diverges (Smith 2017); draw the curve."""
        trainer = self.anew(Geometric(*RATES, STEPS * 2))
        rates: list[float] = []
        losses: list[float] = []
        for batch in islice(trainer.endless_batches(), STEPS * 2):
            loss = trainer.train_step(batch)[0].item()
            if not math.isfinite(loss) or (losses and loss > 4 * min(losses)):
                break
            rates.append(trainer.schedule.rate(trainer.step - 1))
            losses.append(loss)
        path = self.out / "learning_rate.png"
        smooth = smoothed(losses)
        draw_rates(rates, losses, smooth, self.cfg.TRAIN.LR, path)
        best = rates[int(np.argmin(smooth))]
        good = best >= self.cfg.TRAIN.LR
        text = f"{self.cfg.TRAIN.LR:.1g}; the loss falls up to {best:.1g} ({path})"
        return Finding("learning rate", good, text + ("" if good else f": try {best / 3:.1g}"))


def kept_for_gradients(forward: Callable[[], object], weights: Container[int]) -> int:
    """Bytes that a forward pass keeps, each once, beside the weights (by their addresses)."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = forward()  # held, so that what it keeps stays where it is
    del outputs
    return sum(kept.values())


def hide(batch: DeviceBatch) -> DeviceBatch:
    """The batch without what could tell one picture from another, but for its depths."""
    return DeviceBatch(
        torch.full_like(batch.rgb01, 0.5), batch.zoe_m, batch.depth_m, batch.objects, batch.index
    )


def smoothed(losses: list[float], share: float = 0.8) -> list[float]:
    """An exponential mean, without its bias to the beginning."""
    mean, found = 0.0, []
    for number, loss in enumerate(losses, 1):
        mean = share * mean + (1 - share) * loss
        found.append(mean / (1 - share**number))
    return found


def draw_batch(batch: DeviceBatch, path: Path) -> None:
    """RGB, pseudo depth and truth of some samples, as they are after augmentation."""
    from matplotlib.figure import Figure

    count = min(DRAWN, len(batch.index))
    figure = Figure(figsize=(3.2 * count, 7.4), layout="constrained")
    axes = figure.subplots(3, count, squeeze=False)
    for k in range(count):
        farthest = float(batch.depth_m[k].max())
        pictures = (
            ("RGB", batch.rgb01[k].permute(1, 2, 0), None),
            ("pseudo depth", batch.zoe_m[k, 0], "viridis"),
            ("truth", batch.depth_m[k, 0], "viridis"),
        )
        for axis, (name, picture, colors) in zip(axes[:, k], pictures, strict=True):
            shown = picture.cpu().numpy()
            if colors:
                shown = np.ma.masked_less_equal(shown, 0)
            axis.imshow(shown, cmap=colors, vmin=0, vmax=farthest if colors else 1)
            axis.set_title(f"{name} of record {int(batch.index[k])}", fontsize=9)
            axis.set_axis_off()
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=100)


def draw_rates(
    rates: list[float], losses: list[float], smooth: list[float], now: float, path: Path
) -> None:
    """The loss against the learning rate."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(rates, losses, color="0.8", label="each step")
    axes.plot(rates, smooth, color="#1d4e89", label="smoothed")
    axes.axvline(now, color="#c2410c", linestyle="--", label="TRAIN.LR")
    axes.set_xscale("log")
    axes.set_xlabel("learning rate")
    axes.set_ylabel("loss")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
