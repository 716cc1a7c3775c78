"""Fine-tuning with 20 labelled frames of a room that the refiner has not seen.

The frames are chosen in two ways: spread evenly over the recording, so that every tested frame has
labelled ones near it; or the first ones, so that the camera has moved on.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path

from common.rooms.figures import figures_of, frames_in_order
from common.rooms.sides import depth_of, times
from common.rooms.training import train_refiner

from zoerefine.base.config import Config
from zoerefine.depth.data.cache.pack import build_cache
from zoerefine.depth.data.dataset import Clip, Dataset, Frame, evenly_spaced
from zoerefine.depth.data.split import Split
from zoerefine.depth.training.calibration import fit_log_scale

LABELLED, LEAST_TESTED = 20, 40  # frames
LABELS, REST = "labelled", "rest"  # the two scenes that a room is divided into
SPREAD, FIRST_FRAMES = "20 frames spread over the recording", "the first 20 frames"
CHOICES = (SPREAD, FIRST_FRAMES)


@dataclass(frozen=True)
class FineTuned:
    """AbsRel on the frames that were not labelled, and the time of the training."""

    room: str
    choice: str
    factor: float  # the single factor of the other rooms
    own_factor: float  # the single factor of the labelled frames
    refined: float
    seconds: float


def rooms_to_label(dataset: Dataset, scenes: tuple[str, ...]) -> list[str]:
    """The scenes with enough frames."""
    names = [frame.scene for frame in dataset.frames]
    return [scene for scene in scenes if names.count(scene) >= LABELLED + LEAST_TESTED]


def fine_tune(
    cfg: Config, dataset: Dataset, room: str, choice: str, log_factor: float, folder: Path
) -> FineTuned:
    """Train on the labelled frames of a room, and test on its other frames.

    Args:
        cfg: of the fine-tuning; its TRAIN.FROM is a refiner that has not seen the room.
        log_factor: the single factor of the rooms that the refiner has seen.
    """
    options = cfg.CACHE
    divided = divide(dataset, room, choice)
    cache = build_cache(divided, options.HEIGHT, options.WIDTH, Path(options.ROOT))
    start = time.monotonic()
    refiner = train_refiner(cfg, cache, Split((LABELS,), (), (REST,)), folder)
    seconds = time.monotonic() - start
    own = fit_log_scale(frames_in_order(cache, (LABELS,)))
    sides = {"factor": times(log_factor), "own": times(own), "refined": depth_of(refiner)}
    found = figures_of(sides, cache, (REST,))
    values = {side: rooms[REST]["AbsRel"] for side, rooms in found.items()}
    return FineTuned(room, choice, values["factor"], values["own"], values["refined"], seconds)


def divide(dataset: Dataset, room: str, choice: str) -> Dataset:
    """The frames of a room as two scenes: the labelled ones, and the rest."""
    frames = [frame for frame in dataset.frames if frame.scene == room]
    chosen = frames[:LABELLED] if choice == FIRST_FRAMES else evenly_spaced(frames, LABELLED)
    labelled = {(frame.clip, frame.name) for frame in chosen}
    divided = sorted(
        (in_scene(frame, LABELS if (frame.clip, frame.name) in labelled else REST)
         for frame in frames),
        key=lambda frame: (frame.scene, frame.clip, frame.name),
    )  # fmt: skip
    clips = sorted({(frame.clip, frame.scene) for frame in divided})
    return replace(dataset, frames=tuple(divided), clips=tuple(Clip(*clip) for clip in clips))


def in_scene(frame: Frame, scene: str) -> Frame:
    """The frame in a scene, and in a clip of that scene."""
    return replace(frame, scene=scene, clip=f"{scene}-{frame.clip}")
