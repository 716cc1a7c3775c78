"""A packed synthetic world, for loading and training."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image
from yacs.config import CfgNode

from zoerefine.base.config import defaults, merge
from zoerefine.base.files.images import png_bytes
from zoerefine.depth.data.cache.cache import Cache
from zoerefine.depth.data.cache.pack import build_cache
from zoerefine.depth.data.layouts.habitatdyn import RGB
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.synthetic import synthesize


def packed(folder: Path, small: bool) -> Cache:
    """A thousand frames of 192x256; with `small` a few tiny ones, to try the program."""
    scenes, frames, height, width = (4, 8, 48, 64) if small else (16, 64, 192, 256)
    make_world(folder / "world", scenes, frames, height, width)
    return build_cache(open_dataset(folder / "world"), height, width, folder / "caches")


def make_world(root: Path, scenes: int, frames: int, height: int, width: int) -> None:
    """One clip a scene. Where simplejpeg is missing, pictures are PNG data, which need no decoder
    of JPEG; files are recognised by their content.
    """
    synthesize(root, scenes, 1, frames, 0, height=height, width=width)
    if not find_spec("simplejpeg"):
        for path in (root / RGB).glob("*/*.jpg"):
            path.write_bytes(png_bytes(np.asarray(Image.open(path))))


def config(small: bool, **train: object) -> CfgNode:
    """The default config with the UNet and the batch size of the first implementation."""
    cfg = defaults()
    model = {"NAME": "small", "BASE": 8} if small else {"NAME": "unet", "BASE": 64}
    changes = {"LOADER": {"BATCH": 8 if small else 64}, "MODEL": model, "TRAIN": train}
    merge(cfg, changes, "on_gpu")
    cfg.freeze()
    return cfg
