"""A job of the benchmark: train a refiner and its baselines, and measure them where they never saw.

Then fine-tune the refiner in the rooms of its fold that have enough frames.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from common.baselines import ScaleAndShift
from common.rooms import sides
from common.rooms.figures import Side, figures_of
from common.rooms.fine_tuning import CHOICES, FineTuned, fine_tune, rooms_to_label
from common.rooms.point_sides import point_sides
from common.rooms.tables import Rooms
from common.rooms.training import every_room_equally, train_first, train_refiner

from zoerefine.base.config import Config, load_config
from zoerefine.base.messages import be_quiet
from zoerefine.depth.data.cache.cache import Cache
from zoerefine.depth.data.cache.pack import build_cache
from zoerefine.depth.data.dataset import Dataset
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.split import Split
from zoerefine.depth.training.calibration import fit_log_scale

FINE_TUNING = Path(__file__).resolve().parents[3] / "configs" / "finetune.yaml"
QUICK_FINE_TUNING = {"TRAIN.STEPS": 10}


@dataclass(frozen=True)
class Data:
    """Frames of rooms as files and packed."""

    dataset: Dataset
    cache: Cache

    @classmethod
    def at(cls, root: Path, cfg: Config) -> "Data":
        dataset, options = open_dataset(root), cfg.CACHE
        return cls(dataset, build_cache(dataset, options.HEIGHT, options.WIDTH, Path(options.ROOT)))


@dataclass(frozen=True)
class Job:
    """A refiner to train, and the rooms that it is tested in.

    Attributes:
        split: of the rooms of the data; `test` is the fold.
        unseen: a folder of other data to test with, instead of `test`.
        first: whether the first implementation's network is trained.
        label: whether the refiner is fine-tuned in the test rooms.
        points: whether a refiner that takes metric points is trained, too.
    """

    split: Split
    seed: int
    unseen: Path | None = None
    first: bool = False
    label: bool = False
    points: bool = False


@dataclass(frozen=True)
class Result:
    """What a job found: figures of every side in the rooms that it was tested in."""

    job: Job
    strength: float
    figures: Rooms
    fine_tuned: list[FineTuned]

    def __str__(self) -> str:
        means = {
            side: sum(room["AbsRel"] for room in rooms.values()) / len(rooms)
            for side, rooms in self.figures.items()
        }
        where = f"seed {self.job.seed}, {'another camera' if self.job.unseen else 'a fold'}"
        listed = ", ".join(f"{side} {value:.3f}" for side, value in means.items())
        return f"{where}, strength {self.strength:.2f}, AbsRel: {listed}"


def start_worker(threads: int) -> None:
    """Set up a process that runs jobs."""
    torch.set_num_threads(threads)
    be_quiet()


def run_job(job: Job, tree: dict[str, Any], folder: Path, quick: bool) -> Result:
    """Train in `folder` with a config tree, and measure."""
    cfg = load_config(tree, {"SEED": job.seed})
    data = Data.at(Path(cfg.DATA.ROOT), cfg)
    refiner = train_refiner(cfg, data.cache, job.split, folder)
    others = (*job.split.train, *job.split.val)  # what a user has labelled
    log_factor = fit_log_scale(every_room_equally(data.cache, others, cfg.LOADER.BATCH))
    compared = baselines(job, cfg, data, others, log_factor) | {
        sides.REFINED: sides.refined(refiner),
        sides.UNCALIBRATED: sides.without_calibration(refiner),
        sides.OTHER: sides.from_other(refiner, sides.pseudo_depths(data.cache, job.split.train)),
    }
    if job.points:
        with_points = load_config(tree, {"SEED": job.seed, "MODEL.POINTS": True})
        other = train_refiner(
            with_points, data.cache, job.split, folder.parent / f"{folder.name}-points"
        )
        compared |= point_sides(refiner, other)
    tested = Data.at(job.unseen, cfg) if job.unseen else data
    scenes = tested.cache.scenes if job.unseen else job.split.test
    compared[sides.BEST_OF_ROOM] = sides.best_of_each_room(tested.cache, scenes)
    figures = figures_of(compared, tested.cache, scenes)
    fine_tuned: list[FineTuned] = []
    if job.label:
        tuning = fine_tuning_config(cfg, folder, quick)
        rooms = rooms_to_label(data.dataset, job.split.test)
        for room in rooms[: 1 if quick else None]:
            fine_tuned += fine_tune_both_ways(tuning, data, room, log_factor, folder)
    return Result(job, float(refiner.get_buffer("strength")), figures, fine_tuned)


def baselines(
    job: Job, cfg: Config, data: Data, others: tuple[str, ...], log_factor: float
) -> dict[str, Side]:
    """The sides that are no refiner; they use all rooms outside the fold."""
    batches = every_room_equally(data.cache, others, cfg.LOADER.BATCH)
    found: dict[str, Side] = {
        sides.PSEUDO: sides.pseudo,
        sides.FACTOR: sides.times(log_factor),
        sides.RIDGE: sides.depth_of(ScaleAndShift(batches, data.cache.frames["clip"])),
        sides.BEST_OF_FRAME: sides.best_of_each_frame,
    }
    if job.first:
        network = train_first(cfg, data.cache, Split(others, (), ()))
        found[sides.FIRST] = sides.depth_of(network)
    return found


def fine_tune_both_ways(
    cfg: Config, data: Data, room: str, log_factor: float, run: Path
) -> list[FineTuned]:
    """Fine-tune in a room with each choice of frames."""
    found = []
    for number, choice in enumerate(CHOICES):
        folder = run.parent / f"{run.name}-{room}-{number}"
        found.append(fine_tune(cfg, data.dataset, room, choice, log_factor, folder))
    return found


def fine_tuning_config(cfg: Config, run: Path, quick: bool) -> Config:
    """configs/finetune.yaml for a refiner of this benchmark."""
    tree = {"SEED": cfg.SEED, "CACHE": cfg.CACHE, "MODEL": cfg.MODEL,
            "TRAIN": {"FROM": str(run), "PICTURES": 0}}  # fmt: skip
    tuned = load_config(FINE_TUNING, QUICK_FINE_TUNING if quick else {})
    return load_config(tuned, tree)
