"""Refiners for the rooms of benchmarks/measured.py: some never saw a room, one did."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from common.rooms.folds import Fold
from common.rooms.sides import full_strength
from common.rooms.training import train_refiner

from zoerefine.base.config import load_config
from zoerefine.base.progress import track
from zoerefine.depth.data.cache.pack import build_cache
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.split import Split, split_scenes
from zoerefine.depth.exporting.shipped_module import ShippedModule, core_of
from zoerefine.depth.model import RefinerNetwork

NEW, FULL, KNOWS = "a refiner", "a refiner at full strength", "a refiner that knows the room"
CONFIG = Path(__file__).resolve().parents[3] / "configs" / "rooms.yaml"
QUICK = {"TRAIN.EPOCHS": 2, "TRAIN.STEPS": 0}

Array = np.ndarray
# From a picture uint8 [H, W, 3] and pseudo depth uint16 [H, W] to refined depth of the same kind.
Refine = Callable[[Array, Array], Array]
Refiners = dict[str, Refine]  # by what they are called in the table


def refiners_of_rooms(
    root: Path, folder: Path, folds: Sequence[Fold], quick: bool
) -> tuple[dict[str, Refiners], Refiners]:
    """The refiners of each room, and those for another camera.

    One is trained on the rooms outside each fold, as `zoerefine train` with configs/rooms.yaml
    does. A room is known to that of the next fold: from training, or from validation.
    """
    tree = {"DATA.ROOT": str(root), "CACHE.ROOT": str(folder / "caches"), "TRAIN.PICTURES": 0}
    cfg = load_config(CONFIG, tree | (QUICK if quick else {}))
    size = cfg.CACHE.HEIGHT, cfg.CACHE.WIDTH
    cache = build_cache(open_dataset(root), *size, Path(cfg.CACHE.ROOT))
    trained = []
    for number, fold in enumerate(track(folds, len(folds), "training refiners", "fold")):
        others = tuple(scene for scene in cache.scenes if scene not in fold)
        split = split_scenes(others, cfg.DATA.VAL_FRACTION, 0.0, cfg.SEED)
        split = Split(split.train, split.val, fold)
        trained.append(train_refiner(cfg, cache, split, folder / f"refiner{number}"))
    found: dict[str, Refiners] = {}
    for number, fold in enumerate(folds):
        new, known = (refine(trained[one % len(folds)], *size) for one in (number, number + 1))
        full = refine(full_strength(trained[number]), *size)
        found |= {room: {NEW: new, FULL: full, KNOWS: known} for room in fold}
    other = trained[0], full_strength(trained[0])
    return found, {NEW: refine(other[0], *size), FULL: refine(other[1], *size)}


def refine(refiner: RefinerNetwork, height: int, width: int) -> Refine:
    """What a bundle of a refiner computes."""
    module = ShippedModule(core_of(refiner), height, width, refiner.has_confidence).eval()

    @torch.inference_mode()
    def refined(rgb_u8: Array, zoe_u16: Array) -> Array:
        found: Array = module(torch.from_numpy(rgb_u8)[None], torch.from_numpy(zoe_u16)[None])[0]
        return found[0].numpy()

    return refined
