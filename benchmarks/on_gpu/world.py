"""A packed synthetic world, for loading and training."""

from pathlib import Path

from yacs.config import CfgNode

from zoerefine.config import defaults, merge
from zoerefine.data.cache import Cache
from zoerefine.data.pack import build_cache
from zoerefine.data.readers import open_dataset
from zoerefine.data.synthetic import synthesize


def packed(folder: Path, small: bool) -> Cache:
    """A thousand frames of 192x256; with `small` a few tiny ones, to try the program."""
    scenes, frames, height, width = (4, 8, 48, 64) if small else (16, 64, 192, 256)
    synthesize(folder / "world", scenes, 1, frames, 0, height=height, width=width)
    return build_cache(open_dataset(folder / "world"), height, width, folder / "caches")


def config(small: bool, **train: object) -> CfgNode:
    """The default config with the UNet and the batch size of the first implementation."""
    cfg = defaults()
    model = {"NAME": "small", "BASE": 8} if small else {"NAME": "unet", "BASE": 64}
    changes = {"LOADER": {"BATCH": 8 if small else 64}, "MODEL": model, "TRAIN": train}
    merge(cfg, changes, "on_gpu")
    cfg.freeze()
    return cfg
