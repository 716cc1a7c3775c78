"""Trains the networks that are compared, on rooms outside a fold."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common.baselines import DirectTrainer, train_all_epochs
from torch import nn

from zoerefine.base.config import Config, load_config, save_config
from zoerefine.base.machine.device import pick_device
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.data.cache.cache import Cache
from zoerefine.depth.data.loading.augment import Augmentation
from zoerefine.depth.data.loading.loader import Loader
from zoerefine.depth.data.loading.prefetch import DeviceBatch, Prefetcher
from zoerefine.depth.data.loading.sampler import OrderOptions, Sampler
from zoerefine.depth.data.split import Split
from zoerefine.depth.model import RefinerNetwork
from zoerefine.depth.training.checkpoint import load_refiner
from zoerefine.depth.training.loop import train

DRAWN = 4  # times as many frames as there are, so that the random choice of frames hardly matters


def train_refiner(cfg: Config, cache: Cache, split: Split, folder: Path) -> RefinerNetwork:
    """A refiner as `zoerefine train` makes it: the best weights, calibrated on validation rooms."""
    run = RunDir(folder)
    run.create()
    save_config(cfg, run.config_file)
    train(cfg, run, cache, split, test=False)
    return load_refiner(run)


def train_first(cfg: Config, cache: Cache, split: Split) -> nn.Module:
    """The first implementation's network, as long and on the same pictures as the refiner."""
    tree: dict[str, Any] = {"LOSS.TERMS": [{"name": "mse", "weight": 1.0}], "TRAIN.LR": 1e-3}
    trainer = DirectTrainer(load_config(cfg, tree), cache, split)
    options = cfg.AUGMENT
    train_all_epochs(trainer, Augmentation(options.FLIP, options.CROP, options.COLOR))
    return trainer.weights


def every_room_equally(cache: Cache, scenes: tuple[str, ...], batch: int) -> Iterator[DeviceBatch]:
    """Batches of the frames of some scenes, each scene equally often."""
    order = OrderOptions("weighted")
    loader = Loader(cache, Sampler(cache, cache.indices(scenes), batch, 0, order))
    batches = Prefetcher(loader, pick_device(), size=(cache.height, cache.width))
    for _ in range(DRAWN):
        yield from batches
