"""The keys of a run's place, its data, their cache, loading, augmentation and metric points."""

from dataclasses import dataclass
from typing import Any

from zoerefine.base.config.declare import (
    MOST_EPOCHS,
    MOST_SEED,
    MOST_WEIGHT,
    SHARE,
    SHARE_BELOW_ONE,
    KeyGroup,
    key,
    path,
)
from zoerefine.base.config.value_types import Integer, ListOf, MappingOf, Number, OneOf, Text
from zoerefine.base.depth_limits import FARTHEST_M, MOST_FARTHEST_M
from zoerefine.base.registries import POINT_KINDS
from zoerefine.base.run_dir import run_name_fault

MOST_PIXELS = 8192  # of a side
WEIGHT = Number(at_least=0, at_most=MOST_WEIGHT)
NAMES = ListOf(Text("a name"), unique=True)


@dataclass
class RunKeys(KeyGroup):
    """Where a run is written: ROOT/NAME/ID."""

    NAME: str = key(Text("a folder's name", run_name_fault), "run", "name of the run: runs/NAME/ID")
    ROOT: str = path("runs", "folder of all runs")


@dataclass
class DataKeys(KeyGroup):
    """Which frames are used, and how scenes are split."""

    ROOT: str = path("", "folder of frames: HabitatDyn, frames.csv, TUM or ScanNet layout")
    POINTS: str = path(
        "", "folder of metric points, NAME.csv or NAME.png for each picture: see docs/points.md"
    )
    SCENES: list[str] = key(NAMES, [], "use only these scenes; []: all")
    CLASSES: list[str] = key(
        NAMES, [], "use only clips with any of these moving objects, e.g. [dog, toy car]; []: all"
    )
    SPEEDS: list[int] = key(
        ListOf(Integer(0, 10_000)),
        [],
        "use only clips whose objects move at these speeds; []: all",
        "m/s",
    )
    OBJECTS: str = key(
        OneOf(
            {
                "": "all clips",
                "single": "clips with one class of moving objects",
                "several": "clips with more than one",
            }
        ),
        "",
        "use only clips with this many classes of moving objects",
    )
    SPLIT: str = path("", "a file from `zoerefine data split`; empty: split by the keys below")
    SPLIT_SEED: int = key(
        Integer(0, MOST_SEED), 0, "seed of the order in which scenes are assigned to the splits"
    )
    VAL_FRACTION: float = key(
        SHARE_BELOW_ONE, 0.15, "share of the scenes for validation; above 0: at least one scene"
    )
    TEST_FRACTION: float = key(
        SHARE_BELOW_ONE, 0.15, "share of the scenes for testing; above 0: at least one scene"
    )
    TEST_SCENES: list[str] = key(NAMES, [], "test scenes in addition to the random ones")
    FARTHEST_M: float = key(
        Number(at_least=0.1, at_most=MOST_FARTHEST_M),
        FARTHEST_M,
        "metrics use true depths below this, and clamp predictions to it: 10 indoors, 80 outdoors",
        "m",
    )
    MAX_BROKEN: float = key(
        SHARE, 0.01, "share of unreadable frames above which packing is an error"
    )


@dataclass
class CacheKeys(KeyGroup):
    """The packed cache: frames decoded and resized once."""

    ROOT: str = path("caches", "folder of all caches")
    HEIGHT: int = key(Integer(1, MOST_PIXELS), 192, "height of the packed records", "pixels")
    WIDTH: int = key(Integer(1, MOST_PIXELS), 256, "width of the packed records", "pixels")
    WORKERS: int = key(Integer(0, 1024), 0, "decoding threads; 0: one per core")
    MODE: str = key(
        OneOf(
            {
                "build": "pack, then train",
                "fill": "train at once and keep what is decoded",
                "rebuild": "pack again",
                "off": "decode every time and keep nothing",
            }
        ),
        "build",
        "when frames are decoded, and whether they are kept",
    )


@dataclass
class LoaderKeys(KeyGroup):
    """How batches are loaded."""

    BATCH: int = key(Integer(1, 65536), 64, "samples of one optimizer step, over all processes")
    HEIGHT: int = key(
        Integer(0, MOST_PIXELS), 0, "batches are resized to this height; 0: as packed", "pixels"
    )
    WIDTH: int = key(
        Integer(0, MOST_PIXELS), 0, "batches are resized to this width; 0: as packed", "pixels"
    )
    TIER: str = key(
        OneOf(
            {
                "auto": "the fastest that fits",
                "mmap": "mapped from the disk",
                "ram": "copied to memory first",
                "device": "copied to the GPU first",
            }
        ),
        "auto",
        "where records are kept while they are read",
    )
    THREADS: int = key(
        Integer(0, 256), 0, "threads that gather batches; 0: one per core, at most 4"
    )
    ORDER: str = key(
        OneOf(
            {
                "shuffle": "a new random order in each epoch",
                "replacement": "drawn with replacement",
                "weighted": "drawn with replacement, scenes by SCENE_WEIGHTS",
                "windowed": "shuffled within windows, so that the disk reads long stretches",
                "sequential": "as recorded",
                "clips": "whole clips in random order, frames as recorded",
            }
        ),
        "shuffle",
        "order of the samples",
    )
    WINDOW: int = key(Integer(1, 10**9), 4096, "ORDER windowed: records that are shuffled together")
    SCENE_WEIGHTS: list[dict[str, Any]] = key(
        ListOf(MappingOf({"scene": Text("a scene's name"), "weight": WEIGHT})),
        [],
        "ORDER weighted: e.g. [{scene: scene03, weight: 2.0}]; other scenes have weight 1",
    )
    ROTATE_EVERY: int = key(
        Integer(0, MOST_EPOCHS),
        0,
        "train on another random subset of scenes every N epochs; 0: all scenes",
        "epochs",
    )
    ROTATE_SCENES: int = key(Integer(0, 10**6), 0, "scenes in the subset of ROTATE_EVERY")


@dataclass
class AugmentKeys(KeyGroup):
    """Random changes of training batches, on the device."""

    FLIP: float = key(SHARE, 0.5, "probability that a sample is mirrored")
    CROP: float = key(
        SHARE_BELOW_ONE, 0.0, "a window of at least 1 - CROP of each side is enlarged to full size"
    )
    COLOR: float = key(
        SHARE, 0.1, "largest relative change of brightness, contrast and saturation of RGB"
    )
    PSEUDO_SCALE: float = key(
        Number(at_least=0, at_most=5), 0.0,
        "standard deviation of the log of a random factor on the pseudo depth alone",
    )  # fmt: skip
    DEPTH_SCALE: float = key(
        Number(at_least=0, at_most=5), 0.0,
        "standard deviation of the log of one random factor on both pseudo depth and truth",
    )  # fmt: skip
    CUTOUT: float = key(
        SHARE, 0.0, "probability that a rectangle of RGB becomes the picture's mean colour"
    )


@dataclass
class PointKeys(KeyGroup):
    """Metric points, simulated from the true depth."""

    KINDS: list[str] = key(
        ListOf(OneOf(POINT_KINDS), at_least=1), ["random", "corners", "zones", "beam"],
        "MODEL.POINTS: kinds of points in training",
    )  # fmt: skip
    MOST: int = key(
        Integer(1, 400), 128, "MODEL.POINTS: most points of a training frame; zones are 64"
    )
    NONE: float = key(SHARE, 0.4, "MODEL.POINTS: share of the training frames without points")
    NOISE: float = key(
        SHARE, 0.08, "MODEL.POINTS: largest standard deviation of points, as a share of depth"
    )
    OUTLIERS: float = key(SHARE, 0.2, "MODEL.POINTS: largest share of points of arbitrary depth")
    EVALUATED: int = key(
        Integer(0, 400), 50,
        "random points of each evaluated frame, for the figures with points; 0: no such figures",
    )  # fmt: skip
