"""One training run's parts: refiner, averaged weights, optimiser, loader, and a single step."""

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from yacs.config import CfgNode

from zoerefine.data.cache import Cache
from zoerefine.data.loader import Loader
from zoerefine.data.prefetch import DeviceBatch, Prefetcher, Transform
from zoerefine.data.sampler import OrderOptions, Sampler
from zoerefine.data.split import Split
from zoerefine.data.tiers import place_records
from zoerefine.device import compute_dtype, make_deterministic, pick_device
from zoerefine.errors import UserError
from zoerefine.loss import Loss
from zoerefine.model import build_refiner
from zoerefine.pictures import strip
from zoerefine.ranks import largest_over_ranks, rank, world
from zoerefine.timeline import Timeline
from zoerefine.train.distributed import over_ranks
from zoerefine.train.evaluate import evaluate, evaluate_shuffled, fit_log_scale
from zoerefine.train.pretrained import load_pretrained
from zoerefine.train.schedule import Schedule
from zoerefine.train.weight_average import Average

LEAST_SCALE = 2.0**-16  # of the loss; from 2^16 on, 32 steps left out in a row
SCALE_PICTURES = 512  # training pictures that the global scale is fitted on


class Trainer:
    """One training run: its parts, its position, and what it must remember to go on exactly."""

    def __init__(
        self, cfg: CfgNode, cache: Cache, split: Split, timeline: Timeline | None = None
    ) -> None:
        if min(cfg.TRAIN.EPOCHS, cfg.TRAIN.ACCUMULATE, cfg.TRAIN.CHECKPOINTS) < 1:
            raise UserError("TRAIN.EPOCHS, ACCUMULATE and CHECKPOINTS must be 1 or more")
        if min(cfg.TRAIN.LOG_EVERY, cfg.TRAIN.EVAL_EVERY) < 1:
            raise UserError("TRAIN.LOG_EVERY and EVAL_EVERY must be 1 or more")
        if cfg.TRAIN.STEPS < 0:
            raise UserError(f"TRAIN.STEPS must be 0 or more, got {cfg.TRAIN.STEPS}")
        if not 0 <= cfg.TRAIN.EMA < 1:
            raise UserError(f"TRAIN.EMA must be in 0..1, and not 1, got {cfg.TRAIN.EMA}")
        if cfg.TRAIN.CLIP <= 0:
            raise UserError(f"TRAIN.CLIP must be above 0 (.inf: no limit), got {cfg.TRAIN.CLIP}")
        self.timeline = timeline
        self.cfg, self.split = cfg, split
        self.device = pick_device()
        self.cache = place_records(cache, cfg.LOADER.TIER, self.device)
        self.dtype = compute_dtype(cfg.TRAIN.PRECISION, self.device)
        make_deterministic(cfg.SEED, cfg.TRAIN.DETERMINISTIC)
        refiner = self.make_refiner()
        refiner.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.refiner = refiner.to(self.device)
        self.forward = compiled(over_ranks(self.refiner), cfg)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)
        self.average = Average(self.refiner, cfg.TRAIN.EMA)
        self.optimizer = make_optimizer(cfg, self.refiner)
        self.loss = Loss(cfg.LOSS.TERMS, cfg.LOSS.OBJECT_WEIGHT)
        self.loader = self.load(split.train, cfg.SEED, training_order(cfg), rank(), world())
        self.sampler = self.loader.sampler
        self.steps = cfg.TRAIN.STEPS or self.sampler.steps(cfg.TRAIN.EPOCHS)
        self.epochs = self.sampler.locate(self.steps - 1)[0] + 1
        self.schedule = Schedule(
            cfg.TRAIN.SCHEDULE, cfg.TRAIN.LR, self.steps, cfg.TRAIN.WARMUP, cfg.TRAIN.STEP_AT
        )
        self.step = 0
        self.best = math.inf
        self.stale = 0  # evaluations since the best one
        self.log_scale = fit_log_scale(self.some_training_pictures())

    def make_refiner(self) -> nn.Module:
        """The network as training begins with it."""
        options = self.cfg.MODEL
        refiner = build_refiner(options.NAME, options.BASE, options.MAX_LOG)
        if options.PRETRAINED:
            load_pretrained(refiner, Path(options.PRETRAINED))
        return refiner

    def load(
        self, scenes: tuple[str, ...], seed: int, order: OrderOptions, rank: int = 0, world: int = 1
    ) -> Loader:
        """A loader over the frames of some scenes, or over a rank's share of each batch."""
        return self.load_frames(self.cache.indices(scenes), seed, order, rank, world)

    def load_frames(
        self, indices: np.ndarray, seed: int, order: OrderOptions, rank: int = 0, world: int = 1
    ) -> Loader:
        """A loader over some frames."""
        options = self.cfg.LOADER
        return Loader(
            self.cache,
            Sampler(self.cache, indices, options.BATCH, seed, order),
            options.THREADS,
            rank,
            world,
            pinned=self.device.type == "cuda",
            timeline=self.timeline,
        )

    def prefetch(self, loader: Loader, transform: Transform | None = None) -> Prefetcher:
        """The loader's batches, converted, on the device."""
        options = self.cfg.LOADER
        height, width = options.HEIGHT or self.cache.height, options.WIDTH or self.cache.width
        return Prefetcher(loader, self.device, transform, (height, width))

    def some_training_pictures(self) -> Iterator[DeviceBatch]:
        batches = max(1, SCALE_PICTURES // self.cfg.LOADER.BATCH)
        loader = self.load(self.split.train, 0, OrderOptions())
        for number, batch in enumerate(self.prefetch(loader), 1):
            yield batch
            if number == batches:
                return

    def step_once(self, batch: DeviceBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Forward, loss, backward, one optimiser step; returns the loss and its terms."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.rate(self.step)
        # What a network draws (dropout) is a function of seed, step and rank, as data is of seed,
        # epoch and index: a resumed run has no generator's state to restore.
        torch.manual_seed(step_seed(self.cfg.SEED, self.step, rank()))
        self.optimizer.zero_grad(set_to_none=True)
        total, terms = self.backward(batch)
        self.scaler.unscale_(self.optimizer)
        self.grad_norm = nn.utils.clip_grad_norm_(self.refiner.parameters(), self.cfg.TRAIN.CLIP)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.average.update(self.step)
        self.step += 1
        return total, terms

    def overflow_will_pass(self) -> bool:
        """Whether the scaler of fp16, which leaves out a step whose gradients overflow and halves
        its scale, may yet mend that."""
        return self.scaler.is_enabled() and self.scaler.get_scale() > LEAST_SCALE

    def backward(self, batch: DeviceBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Gradients of the loss of a batch, in TRAIN.ACCUMULATE parts whose losses are averaged."""
        total, count = torch.zeros((), device=self.device), self.parts(batch)
        sums: dict[str, Tensor] = {}
        for part in batch.split(count):
            loss, terms = self.loss_of(part)
            self.scaler.scale(loss / count).backward()
            total = total + loss.detach() / count
            for name, value in terms.items():
                sums[name] = sums.get(name, total * 0) + value / count
        return total, sums

    def parts(self, batch: DeviceBatch) -> int:
        """How many parts a batch goes through in: none of them empty on every rank."""
        count: int = self.cfg.TRAIN.ACCUMULATE
        if count == 1:
            return 1
        return min(count, int(largest_over_ranks(torch.tensor(len(batch.index)))))

    def loss_of(self, batch: DeviceBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Forward, and the loss with its terms."""
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            refined_m = self.forward(batch.rgb01, batch.zoe_m)
        return self.loss(refined_m, batch.zoe_m, batch.depth_m, batch.objects, batch.rgb01)

    @property
    def weights(self) -> nn.Module:
        """The averaged refiner: what is evaluated, kept as best, and shipped."""
        return self.average.network

    def evaluate(self, scenes: tuple[str, ...], detail: bool = False) -> dict[str, Any]:
        """Metrics of the averaged weights on some scenes; each rank sees clips of its own."""
        indices = self.cache.indices(scenes)
        if world() > 1:
            indices = indices[self.cache.frames["clip"][indices] % world() == rank()]
        batches: Iterable[DeviceBatch] = ()
        if world() == 1 or len(indices):  # with few clips, some ranks have none
            batches = self.prefetch(self.load_frames(indices, 0, OrderOptions("sequential")))
        return evaluate(self.weights, batches, self.log_scale, self.cache, self.dtype, detail)

    @torch.no_grad()
    def pictures(self, scenes: tuple[str, ...]) -> Iterator[tuple[str, np.ndarray]]:
        """Names and strips of the same few frames of some scenes, spread evenly over them."""
        indices = self.cache.indices(scenes)
        count = min(self.cfg.TRAIN.PICTURES, len(indices))
        chosen = indices[np.linspace(0, len(indices) - 1, count).round().astype(int)]
        if not count:
            return
        sampler = Sampler(self.cache, chosen, count, 0, OrderOptions("sequential"))
        batch = next(iter(self.prefetch(Loader(self.cache, sampler))))
        refined_m = self.weights.eval()(batch.rgb01, batch.zoe_m).float()
        for k, index in enumerate(batch.index.tolist()):
            rgb = (batch.rgb01[k].permute(1, 2, 0) * 255).byte().cpu().numpy()
            depths = (one[k, 0].cpu().numpy() for one in (batch.zoe_m, refined_m, batch.depth_m))
            yield self.cache.frame_name(index), strip(rgb, *depths)

    def evaluate_shuffled(self, scenes: tuple[str, ...]) -> dict[str, float]:
        """Metrics when each picture gets the pseudo depth of a training scene (see there)."""
        batches = self.prefetch(self.load(scenes, 1, OrderOptions()))
        others = self.prefetch(self.load(self.split.train, 1, OrderOptions()))
        return evaluate_shuffled(self.weights, batches, others, self.dtype)

    @torch.no_grad()
    def untrained_change(self) -> float:
        """How far a refiner of this kind moves depth before it has learned anything: 0, exactly."""
        model = self.cfg.MODEL
        untrained = build_refiner(model.NAME, model.BASE, model.MAX_LOG).to(self.device).eval()
        batch = next(self.some_training_pictures())
        return (untrained(batch.rgb01, batch.zoe_m) - batch.zoe_m).abs().max().item()

    def state(self) -> dict[str, Any]:
        """Everything that decides what comes next. The position in the epoch follows from step."""
        return {
            "refiner": self.refiner.state_dict(),
            "average": self.weights.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "step": self.step,
            "best": self.best,
            "stale": self.stale,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to a state from `state()`."""
        self.refiner.load_state_dict(state["refiner"])
        self.weights.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.step, self.best, self.stale = state["step"], state["best"], state["stale"]
        epoch, batch = self.sampler.locate(self.step)
        self.loader.load_state_dict({"epoch": epoch, "batch": batch})


def make_optimizer(cfg: CfgNode, refiner: nn.Module) -> torch.optim.Optimizer:
    """What TRAIN.OPTIMIZER names, over all parameters."""
    options = cfg.TRAIN
    if options.OPTIMIZER == "adamw":
        return torch.optim.AdamW(
            refiner.parameters(), lr=options.LR, weight_decay=options.WEIGHT_DECAY
        )
    if options.OPTIMIZER == "sgd":
        return torch.optim.SGD(
            refiner.parameters(), options.LR, options.MOMENTUM, 0, options.WEIGHT_DECAY,
            nesterov=options.MOMENTUM > 0,
        )  # fmt: skip
    raise UserError(f"TRAIN.OPTIMIZER must be adamw or sgd, got {options.OPTIMIZER!r}")


def step_seed(*words: int) -> int:
    """A seed of 63 bits that differs where any word does."""
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> np.uint64(1))


def compiled(refiner: nn.Module, cfg: CfgNode) -> Callable[[Tensor, Tensor], Tensor]:
    """The refiner, or torch.compile's version of it, which shares its weights."""
    mode = cfg.TRAIN.COMPILE
    if mode not in ("", "default", "reduce-overhead", "max-autotune"):
        raise UserError(
            f"TRAIN.COMPILE must be empty, default, reduce-overhead or max-autotune, got {mode!r}"
        )
    if mode in ("reduce-overhead", "max-autotune") and cfg.TRAIN.ACCUMULATE > 1:
        raise UserError(
            f"TRAIN.COMPILE {mode} records CUDA graphs, whose gradients the next part of a batch "
            "would overwrite: set TRAIN.ACCUMULATE 1, or TRAIN.COMPILE default"
        )
    if mode == "max-autotune" and cfg.TRAIN.DETERMINISTIC:
        raise UserError(
            "TRAIN.COMPILE max-autotune chooses kernels by timing them, so bits vary: set "
            "TRAIN.DETERMINISTIC false, or TRAIN.COMPILE reduce-overhead"
        )
    # Inductor fails on this padding once sizes vary (torch 2.13); batches have two sizes at most.
    return torch.compile(refiner, mode=mode, dynamic=False) if mode else refiner


def training_order(cfg: CfgNode) -> OrderOptions:
    """How LOADER orders an epoch. Raises `UserError` where SCENE_WEIGHTS is no list of weights."""
    options = cfg.LOADER
    try:
        weights = {str(one["scene"]): float(one["weight"]) for one in options.SCENE_WEIGHTS}
    except (TypeError, KeyError, ValueError):
        raise UserError(
            "LOADER.SCENE_WEIGHTS must be a list such as [{scene: scene03, weight: 2.0}], got "
            f"{options.SCENE_WEIGHTS}"
        ) from None
    return OrderOptions(
        options.ORDER, options.WINDOW, weights, options.ROTATE_EVERY, options.ROTATE_SCENES
    )
