"""The parts of a training run (refiner, optimizer, loader, schedule) and one training step."""

import math
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zoerefine.base.config import Config, training_size
from zoerefine.base.machine.device import compute_dtype, make_deterministic, pick_device
from zoerefine.base.ranks import max_over_ranks, rank, world_size
from zoerefine.base.threads import Timeline
from zoerefine.depth.data.cache.cache import Cache
from zoerefine.depth.data.dataset import evenly_spaced
from zoerefine.depth.data.loading.loader import Loader
from zoerefine.depth.data.loading.prefetch import DeviceBatch, Prefetcher, Transform
from zoerefine.depth.data.loading.sampler import OrderOptions, Sampler
from zoerefine.depth.data.loading.tiers import place_records
from zoerefine.depth.data.split import Split
from zoerefine.depth.loss import CONFIDENCE, Loss
from zoerefine.depth.model import RefinerNetwork, build_refiner
from zoerefine.depth.model.refiner import ScaleHead, TrainedOutputs
from zoerefine.depth.pictures import strip
from zoerefine.depth.training.calibration import calibrate, calibrate_with_points, fit_log_scale
from zoerefine.depth.training.evaluate import evaluate, evaluate_shuffled
from zoerefine.depth.training.optimizer import WeightAverage, data_parallel, make_optimizer
from zoerefine.depth.training.point_inputs import with_all_points
from zoerefine.depth.training.schedule import Schedule
from zoerefine.depth.training.start_weights import (
    find_start_weights,
    load_pretrained,
    load_start_weights,
)
from zoerefine.depth.training.usage import refuse_too_large

MIN_LOSS_SCALE = 2.0**-16  # of fp16; reached from the initial 2^16 by 32 skipped steps in a row
SCALE_PICTURES = 512  # training pictures to which the global scale is fitted
WEIGHTED_DRAWS = 4


class Trainer:
    """A training run: its parts, its position, and the state for an exact resume."""

    def __init__(
        self, cfg: Config, cache: Cache, split: Split, timeline: Timeline | None = None
    ) -> None:
        self.timeline = timeline
        self.cfg, self.split = cfg, split
        self.device = pick_device()
        self.cache = place_records(cache, cfg.LOADER.TIER, self.device)
        self.dtype = compute_dtype(cfg.TRAIN.PRECISION, self.device)
        make_deterministic(cfg.SEED, cfg.TRAIN.DETERMINISTIC)
        # Of files that decide the result, by their fact of a run.
        self.loaded_digests = {"split_file": split.file_digest} if split.file_digest else {}
        refiner = self.make_refiner()
        refiner.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.refiner = refiner.to(self.device)
        trained = self.refiner
        if isinstance(refiner, RefinerNetwork) and refiner.has_confidence:
            trained = TrainedOutputs(refiner)
        self.has_confidence = isinstance(trained, TrainedOutputs)
        # Of several processes the network alone: the loss sums over them, and DDP splits the
        # compiled network, so that gradients are sent early.
        whole, part = ("", cfg.TRAIN.COMPILE) if world_size() > 1 else (cfg.TRAIN.COMPILE, "")
        self.forward = compiled(data_parallel(trained), part)
        self.compiled_loss = compiled(self.trained_loss, whole)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)
        self.average = WeightAverage(self.refiner, cfg.TRAIN.EMA)
        self.optimizer = make_optimizer(cfg.TRAIN, self.refiner.parameters())
        self.loss = Loss(cfg.LOSS.TERMS, cfg.LOSS.OBJECT_WEIGHT)
        self.loader = self.loader_of(
            self.cache.indices(split.train), cfg.SEED, training_order(cfg), rank(), world_size()
        )
        self.sampler = self.loader.sampler
        self.steps = cfg.TRAIN.STEPS or self.sampler.steps(cfg.TRAIN.EPOCHS)
        self.epochs = self.sampler.locate(self.steps - 1)[0] + 1
        self.schedule = Schedule(cfg.TRAIN, self.steps)
        self.step = 0
        self.best = math.inf
        self.evaluations_since_best = 0
        self.log_scale = fit_log_scale(self.scale_batches(), self.cache.farthest_m)

    def make_refiner(self) -> nn.Module:
        """The refiner before training, with pretrained or another run's weights if configured."""
        refuse_too_large(self.cfg.MODEL, self.device)
        refiner = build_refiner(self.cfg.MODEL)
        if self.cfg.MODEL.PRETRAINED:
            path = Path(self.cfg.MODEL.PRETRAINED)
            self.loaded_digests["pretrained"] = load_pretrained(refiner, path)
        if start := find_start_weights(self.cfg):
            load_start_weights(refiner, start)
            self.loaded_digests["started_from"] = start.digest
        return refiner

    def loader_of(
        self, indices: np.ndarray, seed: int, order: OrderOptions, rank: int = 0, world: int = 1
    ) -> Loader:
        """A loader over some frames of the cache; with several ranks, over this rank's share."""
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
        """The loader's batches on the device, converted to float and resized."""
        return Prefetcher(loader, self.device, transform, training_size(self.cfg))

    def sample_training_batches(self) -> Iterator[DeviceBatch]:
        """Shuffled batches of training frames, about SCALE_PICTURES in all, without augmentation.

        They are the same ones at every call, whatever SEED and LOADER.ORDER are.
        """
        loader = self.loader_of(self.cache.indices(self.split.train), 0, OrderOptions())
        return islice(self.prefetch(loader), max(1, SCALE_PICTURES // self.cfg.LOADER.BATCH))

    def scale_batches(self) -> Iterator[DeviceBatch]:
        """The batches that the global scale is fitted to.

        With LOADER.ORDER weighted, scenes count as in training. Frames are then drawn at random,
        WEIGHTED_DRAWS times as many, so that the factor hardly depends on which ones.
        """
        options = training_order(self.cfg)
        if options.order != "weighted":
            return self.sample_training_batches()
        order = OrderOptions("weighted", scene_weights=options.scene_weights)
        batches = self.prefetch(self.loader_of(self.cache.indices(self.split.train), 0, order))
        count = max(1, WEIGHTED_DRAWS * SCALE_PICTURES // self.cfg.LOADER.BATCH)
        return islice(chain.from_iterable(repeat(batches)), count)

    def endless_batches(self) -> Generator[DeviceBatch, None, None]:
        """Training batches of one epoch after the other, without augmentation."""
        while True:
            yield from self.prefetch(self.loader)

    def train_step(self, batch: DeviceBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Forward, loss, backward, one optimizer step; returns the loss and its terms."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.rate(self.step)
        # Random numbers of a network (dropout) are a function of seed, step and rank, so a resumed
        # run has no generator state to restore.
        torch.manual_seed(step_seed(self.cfg.SEED, self.step, rank()))
        self.optimizer.zero_grad(set_to_none=True)
        total, terms = self.backward(batch)
        self.scaler.unscale_(self.optimizer)
        self.clip_gradients()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.average.update(self.step)
        self.step += 1
        return total, terms

    def clip_gradients(self) -> None:
        """Clip gradients to TRAIN.CLIP; those of confidence apart, so that depth's stay as are."""
        heads = [one for one in self.refiner.modules() if isinstance(one, ScaleHead)]
        of_confidence = [parameter for head in heads for parameter in head.parameters()]
        apart = set(map(id, of_confidence))
        of_depth = [one for one in self.refiner.parameters() if id(one) not in apart]
        self.grad_norm = nn.utils.clip_grad_norm_(of_depth, self.cfg.TRAIN.CLIP)
        nn.utils.clip_grad_norm_(of_confidence, self.cfg.TRAIN.CLIP)

    def can_lower_loss_scale(self) -> bool:
        """Whether fp16 gradients that overflow may still be finite at a lower loss scale.

        The scaler skips a step whose gradients overflow, and halves the scale.
        """
        return self.scaler.is_enabled() and self.scaler.get_scale() > MIN_LOSS_SCALE

    def backward(self, batch: DeviceBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Gradients of a batch, in TRAIN.ACCUMULATE parts; returns mean loss and terms."""
        total, count = torch.zeros((), device=self.device), self.part_count(batch)
        sums: dict[str, Tensor] = {}
        for part in batch.split(count):
            loss, terms = self.loss_of(part)
            minimized = loss + terms[CONFIDENCE] if self.has_confidence else loss
            self.scaler.scale(minimized / count).backward()
            total = total + loss.detach() / count
            for name, value in terms.items():
                sums[name] = sums.get(name, total * 0) + value.detach() / count
        return total, sums

    def part_count(self, batch: DeviceBatch) -> int:
        """The number of parts of a batch, so few that none is empty on every rank."""
        count: int = self.cfg.TRAIN.ACCUMULATE
        if count == 1:
            return 1
        return min(count, int(max_over_ranks(torch.tensor(len(batch.index)))))

    def loss_of(self, batch: DeviceBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Forward pass; returns the loss of depth and its terms, with that of confidence."""
        return self.compiled_loss(
            batch.picture01, batch.zoe_m, batch.depth_m, batch.objects, batch.rgb01
        )

    def trained_loss(
        self, picture01: Tensor, zoe_m: Tensor, depth_m: Tensor, objects: Tensor, rgb01: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """`loss_of`, of the fields of a batch: what TRAIN.COMPILE compiles."""
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            outputs = self.forward(picture01, zoe_m)
        refined_m, log_scale = outputs if self.has_confidence else (outputs, None)
        return self.loss(refined_m, zoe_m, depth_m, objects, rgb01, log_scale)

    @property
    def weights(self) -> nn.Module:
        """The refiner with averaged weights, which is evaluated, saved and exported."""
        return self.average.network

    def evaluate(
        self, scenes: tuple[str, ...], detail: bool = False, losses: bool = False
    ) -> dict[str, Any]:
        """Metrics of the averaged weights on some scenes; each rank evaluates its own clips."""
        batches = self.frames_of(scenes)
        loss = self.loss if losses else None
        points = self.cfg.POINTS.EVALUATED if detail else 0  # each epoch would take longer
        return evaluate(
            self.weights, batches, self.log_scale, self.cache, self.dtype, detail, loss, points
        )

    def frames_of(self, scenes: tuple[str, ...]) -> Iterable[DeviceBatch]:
        """The frames of some scenes in their order, of this rank's clips."""
        indices = self.cache.indices(scenes)
        if world_size() > 1:
            indices = indices[self.cache.frames["clip"][indices] % world_size() == rank()]
            if not len(indices):  # with few clips, some ranks have none
                return ()
        return self.prefetch(self.loader_of(indices, 0, OrderOptions("sequential")))

    def calibrate(self) -> dict[str, Any] | None:
        """Calibrate the averaged weights on the validation scenes; each rank has its own clips."""
        assert isinstance(self.weights, RefinerNetwork)
        batches = partial(self.frames_of, self.split.val)
        found = calibrate(self.weights, batches, self.log_scale, self.cache, self.dtype)
        if found and self.weights.takes_points:
            found["points"] = calibrate_with_points(
                self.weights, with_all_points(batches()), self.cache, self.dtype
            )
        return found

    @torch.no_grad()
    def pictures(self, scenes: tuple[str, ...]) -> Iterator[tuple[str, np.ndarray]]:
        """Name and picture strip of TRAIN.PICTURES frames of some scenes, evenly spaced."""
        chosen = evenly_spaced(self.cache.indices(scenes).tolist(), self.cfg.TRAIN.PICTURES)
        if not chosen:
            return
        order = OrderOptions("sequential")
        sampler = Sampler(self.cache, np.array(chosen), len(chosen), 0, order)
        batch = next(iter(self.prefetch(Loader(self.cache, sampler))))
        refined_m = self.weights.eval()(batch.picture01, batch.zoe_m).float()
        for k, index in enumerate(batch.index.tolist()):
            rgb = (batch.rgb01[k].permute(1, 2, 0) * 255).byte().cpu().numpy()
            depths = (one[k, 0].cpu().numpy() for one in (batch.zoe_m, refined_m, batch.depth_m))
            yield self.cache.frame_name(index), strip(rgb, *depths)

    def evaluate_shuffled(self, scenes: tuple[str, ...]) -> dict[str, float]:
        """Metrics on some scenes when each picture gets the pseudo depth of a training scene.

        Where there are fewer training batches, they serve again.
        """
        batches, others = (
            self.prefetch(self.loader_of(self.cache.indices(of), 1, OrderOptions()))
            for of in (scenes, self.split.train)
        )
        again = chain.from_iterable(repeat(others))
        return evaluate_shuffled(self.weights, batches, again, self.dtype, self.cache.farthest_m)

    @torch.no_grad()
    def untrained_change(self) -> float:
        """Largest change in metres by an untrained refiner of this configuration: exactly 0."""
        untrained = build_refiner(self.cfg.MODEL).to(self.device).eval()
        batch = next(self.sample_training_batches())
        return (untrained(batch.rgb01, batch.zoe_m) - batch.zoe_m).abs().max().item()

    def state(self) -> dict[str, Any]:
        """The state for an exact resume. The position in the epoch follows from `step`."""
        return {
            "refiner": self.refiner.state_dict(),
            "average": self.weights.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "step": self.step,
            "best": self.best,
            "evaluations_since_best": self.evaluations_since_best,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from a state of `state()`."""
        self.refiner.load_state_dict(state["refiner"])
        self.weights.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.step, self.best = state["step"], state["best"]
        self.evaluations_since_best = state["evaluations_since_best"]
        epoch, batch = self.sampler.locate(self.step)
        self.loader.load_state_dict({"epoch": epoch, "batch": batch})


def step_seed(*words: int) -> int:
    """A 63-bit seed for a combination of numbers."""
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> np.uint64(1))


def compiled(function: Callable[..., Any], mode: str) -> Callable[..., Any]:
    """The function, or its torch.compile version."""
    # Inductor (torch 2.13) fails on this padding with dynamic sizes; batches have two at most.
    return torch.compile(function, mode=mode, dynamic=False) if mode else function


def training_order(cfg: Config) -> OrderOptions:
    """The order of training batches, from LOADER."""
    options = cfg.LOADER
    weights = {one["scene"]: one["weight"] for one in options.SCENE_WEIGHTS}
    return OrderOptions(
        options.ORDER, options.WINDOW, weights, options.ROTATE_EVERY, options.ROTATE_SCENES
    )
