"""A job of the benchmark: train a refiner and its baselines, and measure them where they never saw.

Then fine-tune the refiner in the rooms of its fold that have enough frames.
"""

from dataclasses import dataclass
from pathlib import Path

from common.baselines import ScaleAndShift
from common.rooms import sides
from common.rooms.figures import Side, figures_of
from common.rooms.fine_tuning import CHOICES, FineTuned, fine_tune, rooms_to_label
from common.rooms.tables import Rooms
from common.rooms.training import every_room_equally, train_first, train_refiner

from zoerefine.config import Config, load_config
from zoerefine.data.cache import Cache
from zoerefine.data.dataset import Dataset
from zoerefine.data.pack import build_cache
from zoerefine.data.readers import open_dataset
from zoerefine.data.split import Split
from zoerefine.model import RefinerNetwork
from zoerefine.progress import say
from zoerefine.training.global_scale import fit_log_scale

FINE_TUNING = Path(__file__).resolve().parents[3] / "configs" / "finetune.yaml"
QUICK_FINE_TUNING = {"TRAIN.EPOCHS": 4, "TRAIN.STEPS": 0}


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
        unseen: other data to test with, too.
        first: whether the first implementation's network is trained.
        label: whether the refiner is fine-tuned in the test rooms.
    """

    split: Split
    seed: int
    unseen: Data | None = None
    first: bool = False
    label: bool = False


@dataclass
class Found:
    """What all jobs found."""

    folds: list[Rooms]
    unseen: list[Rooms]
    fine_tuned: list[FineTuned]
    strengths: list[float]


def run_job(job: Job, cfg: Config, data: Data, folder: Path, quick: bool, found: Found) -> None:
    """Train in `folder`, and add the figures to what was found."""
    cfg = load_config(cfg, {"SEED": job.seed})
    refiner = train_refiner(cfg, data.cache, job.split, folder)
    others = (*job.split.train, *job.split.val)  # what a user has labelled
    log_factor = fit_log_scale(every_room_equally(data.cache, others, cfg.LOADER.BATCH))
    compared = baselines(job, cfg, data, others, log_factor) | {
        sides.REFINED: sides.refined(refiner),
        sides.UNCALIBRATED: sides.without_calibration(refiner),
        sides.OTHER: sides.from_other(refiner, sides.pseudo_depths(data.cache, job.split.train)),
    }
    tested = job.unseen or data
    scenes = tested.cache.scenes if job.unseen else job.split.test
    compared[sides.BEST_OF_ROOM] = sides.best_of_each_room(tested.cache, scenes)
    figures = figures_of(compared, tested.cache, scenes)
    (found.unseen if job.unseen else found.folds).append(figures)
    found.strengths.append(float(refiner.get_buffer("strength")))
    say_means(job, refiner, figures)
    if job.label:
        tuning = fine_tuning_config(cfg, folder, quick)
        rooms = rooms_to_label(data.dataset, job.split.test)
        for room in rooms[: 1 if quick else None]:
            found.fine_tuned += fine_tune_both_ways(tuning, data, room, log_factor, folder)


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


def say_means(job: Job, refiner: RefinerNetwork, figures: Rooms) -> None:
    """Print AbsRel of each side of a job."""
    means = {
        side: sum(room["AbsRel"] for room in rooms.values()) / len(rooms)
        for side, rooms in figures.items()
    }
    strength = float(refiner.get_buffer("strength"))
    listed = ", ".join(f"{side} {value:.3f}" for side, value in means.items())
    say(f"seed {job.seed}, strength {strength:.2f}: {listed}")


def fine_tune_both_ways(
    cfg: Config, data: Data, room: str, log_factor: float, run: Path
) -> list[FineTuned]:
    """Fine-tune in a room with each choice of frames."""
    found = []
    for number, choice in enumerate(CHOICES):
        folder = run.parent / f"{run.name}-{room}-{number}"
        one = fine_tune(cfg, data.dataset, room, choice, log_factor, folder)
        say(f"{room}, {choice}: AbsRel {one.refined:.3f}, single factor {one.factor:.3f}, "
            f"{one.seconds:.0f} s")  # fmt: skip
        found.append(one)
    return found


def fine_tuning_config(cfg: Config, run: Path, quick: bool) -> Config:
    """configs/finetune.yaml for a refiner of this benchmark."""
    tree = {"SEED": cfg.SEED, "CACHE": cfg.CACHE, "MODEL": cfg.MODEL,
            "TRAIN": {"FROM": str(run), "PICTURES": 0}}  # fmt: skip
    tuned = load_config(FINE_TUNING, QUICK_FINE_TUNING if quick else {})
    return load_config(tuned, tree)
