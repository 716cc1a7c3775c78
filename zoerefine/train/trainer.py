"""One training run's parts: refiner, averaged weights, optimiser, loader, and a single step."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from yacs.config import CfgNode

from zoerefine.data.cache import Cache
from zoerefine.data.dataset import Split
from zoerefine.data.loader import Loader
from zoerefine.data.prefetch import DeviceBatch, Prefetcher
from zoerefine.device import compute_dtype, make_deterministic, pick_device
from zoerefine.loss import Loss
from zoerefine.model import build_refiner
from zoerefine.train.evaluate import evaluate, evaluate_shuffled, fit_log_scale

SCALE_PICTURES = 512  # training pictures that the global scale is fitted on


class Trainer:
    """One training run: its parts, its position, and what it must remember to go on exactly."""

    def __init__(self, cfg: CfgNode, cache: Cache, split: Split) -> None:
        self.cfg, self.cache, self.split = cfg, cache, split
        self.device = pick_device()
        self.dtype = compute_dtype(cfg.TRAIN.PRECISION, self.device)
        make_deterministic(cfg.SEED, cfg.TRAIN.DETERMINISTIC)
        refiner = build_refiner(cfg.MODEL.NAME, cfg.MODEL.BASE, cfg.MODEL.MAX_LOG)
        refiner.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.refiner = refiner.to(self.device)
        self.averaged = AveragedModel(
            self.refiner,
            multi_avg_fn=get_ema_multi_avg_fn(cfg.TRAIN.EMA),
            use_buffers=True,
        )
        self.optimizer = torch.optim.AdamW(
            self.refiner.parameters(), lr=cfg.TRAIN.LR, weight_decay=cfg.TRAIN.WEIGHT_DECAY
        )
        self.loss = Loss(cfg.LOSS.TERMS, cfg.LOSS.OBJECT_WEIGHT)
        self.loader = self.load(split.train, cfg.SEED, shuffle=True)
        self.step = 0
        self.best = math.inf
        self.log_scale = fit_log_scale(self.some_training_pictures())

    @property
    def steps(self) -> int:
        """Optimiser steps of the whole run."""
        return int(self.cfg.TRAIN.EPOCHS) * len(self.loader)

    def load(self, scenes: tuple[str, ...], seed: int, shuffle: bool) -> Loader:
        """A loader over the frames of some scenes."""
        return Loader(
            self.cache,
            self.cache.indices(scenes),
            self.cfg.LOADER.BATCH,
            seed,
            shuffle=shuffle,
            threads=self.cfg.LOADER.THREADS,
            tier=self.cfg.LOADER.TIER,
        )

    def prefetch(
        self, loader: Loader, transform: Callable[[DeviceBatch], DeviceBatch] | None = None
    ) -> Prefetcher:
        """The loader's batches, converted, on the device."""
        scales = self.cache.depth_scale, self.cache.zoe_scale
        return Prefetcher(loader, self.device, *scales, transform=transform)

    def some_training_pictures(self) -> Iterator[DeviceBatch]:
        batches = max(1, SCALE_PICTURES // self.cfg.LOADER.BATCH)
        loader = self.load(self.split.train, seed=0, shuffle=True)
        for number, batch in enumerate(self.prefetch(loader), 1):
            yield batch
            if number == batches:
                return

    def learning_rate(self) -> float:
        """Linear warm-up, then half a cosine down to zero: a pure function of the step."""
        warmup = max(1, round(self.cfg.TRAIN.WARMUP * self.steps))
        peak: float = self.cfg.TRAIN.LR
        if self.step < warmup:
            return peak * (self.step + 1) / warmup
        done = (self.step - warmup) / max(1, self.steps - warmup)
        return peak * (1 + math.cos(math.pi * done)) / 2

    def step_once(self, batch: DeviceBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Forward, loss, backward, one optimiser step; returns the loss and its terms."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            refined_m = self.refiner(batch.rgb01, batch.zoe_m)
        loss, terms = self.loss(refined_m, batch.zoe_m, batch.depth_m, batch.objects)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.refiner.parameters(), self.cfg.TRAIN.CLIP)
        self.optimizer.step()
        self.averaged.update_parameters(self.refiner)
        self.step += 1
        return loss.detach(), terms

    @property
    def weights(self) -> nn.Module:
        """The averaged refiner: what is evaluated, kept as best, and shipped."""
        return self.averaged.module

    def evaluate(self, scenes: tuple[str, ...]) -> dict[str, Any]:
        """Metrics of the averaged weights on some scenes."""
        batches = self.prefetch(self.load(scenes, seed=0, shuffle=False))
        return evaluate(self.weights, batches, self.log_scale, self.cache.scene, self.dtype)

    def evaluate_shuffled(self, scenes: tuple[str, ...]) -> dict[str, float]:
        """Metrics when each picture gets the pseudo depth of a training scene (see there)."""
        batches = self.prefetch(self.load(scenes, seed=1, shuffle=True))
        others = self.prefetch(self.load(self.split.train, seed=1, shuffle=True))
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
            "averaged": self.averaged.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "best": self.best,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to a state from `state()`."""
        self.refiner.load_state_dict(state["refiner"])
        self.averaged.load_state_dict(state["averaged"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.best = state["step"], state["best"]
        epoch, batch = divmod(self.step, len(self.loader))
        self.loader.load_state_dict({"epoch": epoch, "batch": batch})
