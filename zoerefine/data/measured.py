"""Checks that a data set has pixels that training and metrics can use."""

from zoerefine.data.cache import Cache
from zoerefine.data.split import PARTS, Split
from zoerefine.depth_limits import NEAREST_M
from zoerefine.errors import UserError

NAMES = {"train": "training", "val": "validation", "test": "test"}


def check_measured(cache: Cache, split: Split) -> None:
    """Raises `UserError` for a part of the split without a single usable pixel.

    It reads frames until it finds such a pixel: almost always the first frame of each part.
    """
    for part in PARTS:
        scenes = getattr(split, part)
        if scenes and not _has_usable_pixel(cache, scenes):
            raise UserError(
                f"no pixel of the {NAMES[part]} scenes ({', '.join(scenes[:3])}"
                f"{', ...' if len(scenes) > 3 else ''}) has a true depth of {NEAREST_M:g} to "
                f"{cache.farthest_m:g} m and pseudo depth: `zoerefine data inspect` shows what the "
                "files hold; is the unit of depth right, and DATA.FARTHEST_M?"
            )


def _has_usable_pixel(cache: Cache, scenes: tuple[str, ...]) -> bool:
    for index in cache.indices(scenes).tolist():
        record = cache.read(index)
        truth_m = record["depth"] * cache.depth_scale
        if ((truth_m > NEAREST_M) & (truth_m < cache.farthest_m) & (record["zoe"] > 0)).any():
            return True
    return False
