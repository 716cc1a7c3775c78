"""Every config key: its default, type, range or choices, unit and meaning.

A group of keys is a dataclass, a key one of its fields. The code that reads a config is given a
YACS tree (`cfg.TRAIN.LR`), built from this declaration; type checkers see `Config`, so they find
a misspelt key. To add a key, add a line here; the checks, `zoerefine config` and
docs/configuration.md follow from it. A key that does not decide a run's results is also named in
zoerefine/identity.py.

Plain dataclasses rather than pydantic: YACS stays the face, so of pydantic only the bounds would be
used, and a few small classes (value_types.py) give those with messages of our own and no import
time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

from zoerefine.config.collection_types import ListOf, MappingOf, OpenMapping
from zoerefine.config.storage_url import storage_fault
from zoerefine.config.value_types import Flag, Integer, Number, OneOf, Text, ValueType
from zoerefine.registries import (
    LOSS_TERMS,
    NETWORKS,
    OBJECTIVES,
    OPTIMIZERS,
    PRUNERS,
    SAMPLERS,
    SCHEDULES,
)
from zoerefine.run_dir import run_name_fault

MOST_PIXELS = 8192  # of a side
MOST_SEED = 2**63 - 1
SHARE = Number(at_least=0, at_most=1)
SHARE_BELOW_ONE = Number(at_least=0, below=1)
POSITIVE_SHARE = Number(above=0, at_most=1)
OBJECTIVE = OneOf(OBJECTIVES)
NAMES = ListOf(Text("a name"), unique=True)


@dataclass(frozen=True)
class Key:
    """One config key."""

    name: str  # TRAIN.LR
    type: ValueType
    default: Any
    meaning: str
    unit: str
    is_path: bool = False


def key(type: ValueType, default: Any, meaning: str, unit: str = "", is_path: bool = False) -> Any:
    """Declare a key of a group."""
    facts = {"type": type, "default": default, "meaning": meaning, "unit": unit,
             "is_path": is_path}  # fmt: skip
    return field(metadata=facts)


def group() -> Any:
    """Declare a group of keys."""
    return field()


def path(default: str, meaning: str) -> Any:
    """Declare a key that names a file or folder; relative ones start in the caller's folder."""
    return key(Text("a path"), default, meaning, is_path=True)


if TYPE_CHECKING:
    Node = Mapping[str, Any]
else:
    Node = object


class KeyGroup(Node):
    """A group of keys.

    No group is ever made: at run time a config is a tree of YACS nodes. Type checkers are shown
    these classes instead, with the methods of a node that are used.
    """

    if TYPE_CHECKING:

        def __setitem__(self, name: str, value: Any) -> None: ...
        def clone(self) -> Self: ...
        def freeze(self) -> None: ...
        def defrost(self) -> None: ...


@dataclass
class RunKeys(KeyGroup):
    """Where a run is written: ROOT/NAME/ID."""

    NAME: str = key(Text("a folder's name", run_name_fault), "run", "name of the run: runs/NAME/ID")
    ROOT: str = path("runs", "folder of all runs")


@dataclass
class DataKeys(KeyGroup):
    """Which frames are used, and how scenes are split."""

    ROOT: str = path("", "folder of frames: HabitatDyn, frames.csv, TUM or ScanNet layout")
    SCENES: list[str] = key(NAMES, [], "use only these scenes; []: all")
    CLASSES: list[str] = key(
        NAMES, [], "use only clips with any of these moving objects, e.g. [dog, toy car]; []: all"
    )
    SPEEDS: list[int] = key(
        ListOf(Integer(0)), [], "use only clips whose objects move at these speeds; []: all", "m/s"
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
    WINDOW: int = key(Integer(1), 4096, "ORDER windowed: records that are shuffled together")
    SCENE_WEIGHTS: list[dict[str, Any]] = key(
        ListOf(MappingOf({"scene": Text("a scene's name"), "weight": Number(at_least=0)})),
        [],
        "ORDER weighted: e.g. [{scene: scene03, weight: 2.0}]; other scenes have weight 1",
    )
    ROTATE_EVERY: int = key(
        Integer(0), 0, "train on another random subset of scenes every N epochs; 0: all scenes",
        "epochs",
    )  # fmt: skip
    ROTATE_SCENES: int = key(Integer(0), 0, "scenes in the subset of ROTATE_EVERY")


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
class ModelKeys(KeyGroup):
    """The network that refines depth."""

    NAME: str = key(
        OneOf(NETWORKS), "small",
        "network: see docs/models.md; package.module:Class for one outside this package",
    )  # fmt: skip
    BASE: int = key(Integer(4), 16, "channels of the first level")
    PRETRAINED: str = path("", "unet: a local file with torchvision's ResNet18 weights")
    MAX_LOG: float = key(
        Number(above=0, at_most=10), 2.0, "bound on the change of log depth at a pixel"
    )
    CONFIDENCE: bool = key(
        Flag(), True, "predict the error of depth beside depth, where the network offers it"
    )
    PREDICTS: str = key(
        OneOf(
            {
                "depth": "log depth: better in rooms that training has seen",
                "correction": "the change of log depth: better in rooms never seen",
            }
        ),
        "depth",
        "what the network predicts",
    )
    OPTIONS: dict[str, Any] = key(
        OpenMapping(), {}, "hyper-parameters of the network's own: keyword arguments of its class"
    )


@dataclass
class LossKeys(KeyGroup):
    """The loss that training minimizes."""

    TERMS: list[dict[str, Any]] = key(
        ListOf(MappingOf({"name": OneOf(LOSS_TERMS), "weight": Number(at_least=0)}), at_least=1),
        [{"name": "l1_log", "weight": 1.0}, {"name": "gradient", "weight": 0.5}],
        "terms whose weighted sum is the loss: see docs/training.md",
    )
    OBJECT_WEIGHT: float = key(
        SHARE, 0.5, "weight of moving-object pixels; all others have 1 - OBJECT_WEIGHT"
    )


@dataclass
class TrainKeys(KeyGroup):
    """How the refiner is trained."""

    FROM: str = path("", "start from the best weights of this run, or from a checkpoint file")
    EPOCHS: int = key(Integer(1), 50, "passes over the training frames", "epochs")
    STEPS: int = key(
        Integer(0), 0, "the run ends after this many optimizer steps; 0: after EPOCHS", "steps"
    )
    OPTIMIZER: str = key(OneOf(OPTIMIZERS), "adamw", "optimizer; sgd has Nesterov momentum")
    LR: float = key(Number(at_least=0), 1.0e-3, "largest learning rate of the schedule")
    WEIGHT_DECAY: float = key(Number(at_least=0), 1.0e-4, "weight decay")
    BETA1: float = key(
        SHARE_BELOW_ONE, 0.9, "decay of the gradient's moving average; OPTIMIZER adamw only"
    )
    BETA2: float = key(
        SHARE_BELOW_ONE, 0.999, "decay of the squared gradient's average; OPTIMIZER adamw only"
    )
    EPS: float = key(
        Number(above=0, at_most=1), 1.0e-8, "added to the divisor of a step; OPTIMIZER adamw only"
    )
    MOMENTUM: float = key(SHARE_BELOW_ONE, 0.9, "momentum; OPTIMIZER sgd only")
    SCHEDULE: str = key(
        OneOf(SCHEDULES),
        "cosine",
        "learning rate over the run: see docs/training.md",
    )
    WARMUP: float = key(
        SHARE, 0.05, "share of the steps in which the learning rate rises linearly first"
    )
    STEP_AT: list[float] = key(
        ListOf(Number(above=0, below=1)), [0.6, 0.85],
        "SCHEDULE step: shares of the run at which the learning rate is lowered (milestones)",
    )  # fmt: skip
    STEP_FACTOR: float = key(
        POSITIVE_SHARE, 0.1, "SCHEDULE step: factor on the learning rate at each of STEP_AT"
    )
    COSINE_END: float = key(SHARE, 0.0, "SCHEDULE cosine: last learning rate, as a share of LR")
    CYCLE_RISE: float = key(
        SHARE_BELOW_ONE, 0.3, "SCHEDULE onecycle: share of the steps in which the rate rises"
    )
    CYCLE_START: float = key(
        POSITIVE_SHARE, 0.04, "SCHEDULE onecycle: first learning rate, as a share of LR"
    )
    CYCLE_END: float = key(SHARE, 4.0e-6, "SCHEDULE onecycle: last learning rate, as a share of LR")
    ACCUMULATE: int = key(
        Integer(1), 1, "gradient accumulation: parts that a batch is split into, to save memory"
    )
    PATIENCE: int = key(
        Integer(0), 0, "early stopping after this many evaluations without improvement; 0: off"
    )
    CLIP: float = key(
        Number(above=0, may_be_infinite=True), 1.0, "gradient clipping: largest norm; .inf: off"
    )
    EMA: float = key(
        SHARE_BELOW_ONE,
        0.99,
        "decay of the weights' moving average, lower in the first steps; 0: off",
    )
    PRECISION: str = key(
        OneOf(
            {
                "auto": "the fastest: bf16 on GPUs with bf16 and CPUs with AMX, else fp16 or fp32",
                "fp32": "float32",
                "bf16": "bfloat16 autocast",
                "fp16": "float16 autocast with loss scaling",
            }
        ),
        "auto",
        "number format of the network's layers",
    )
    COMPILE: str = key(
        OneOf(
            {
                "": "not compiled",
                "default": "torch.compile",
                "reduce-overhead": "torch.compile with CUDA graphs",
                "max-autotune": "torch.compile with kernels chosen by timing them",
            }
        ),
        "",
        "mode of torch.compile",
    )
    CALIBRATE: bool = key(
        Flag(), True, "at the end, choose on the validation scenes how far corrections are followed"
    )
    EVAL_EVERY: int = key(Integer(1), 1, "evaluate on the validation scenes this often", "epochs")
    LOG_EVERY: int = key(Integer(1), 10, "write a row of training figures this often", "steps")
    PICTURES: int = key(
        Integer(0, 1000), 3, "validation frames drawn for TensorBoard at each evaluation"
    )
    HISTOGRAMS: bool = key(
        Flag(), False, "write histograms of weights and gradients to TensorBoard"
    )
    CHECKPOINT_S: float = key(
        Number(at_least=0), 60.0, "shortest time between checkpoints, ends of epochs included", "s"
    )
    CHECKPOINTS: int = key(Integer(1), 2, "checkpoints that are kept")
    DETERMINISTIC: bool = key(
        Flag(), True, "an operation that is not bit-exact reproducible is an error"
    )


@dataclass
class StudyKeys(KeyGroup):
    """The study of a search."""

    TRIALS: int = key(Integer(1), 20, "trials in all")
    TIMEOUT_S: float = key(
        Number(at_least=0), 0.0, "no trial is started after this time; 0: no limit", "s"
    )
    EPOCHS: int = key(Integer(0), 0, "epochs of a trial; 0: TRAIN.EPOCHS", "epochs")
    OBJECTIVES: list[str] = key(
        ListOf(OBJECTIVE, at_least=1, unique=True),
        ["abs_rel"],
        "what trials are compared by; delta1 is maximized, the others are minimized",
    )
    CONSTRAINTS: list[dict[str, Any]] = key(
        ListOf(MappingOf({"name": OBJECTIVE, "at_most": Number()})),
        [],
        "upper bounds on objectives, e.g. [{name: latency_ms, at_most: 10.0}]",
    )
    SAMPLER: str = key(
        OneOf(SAMPLERS), "tpe",
        "how the values of a trial are chosen; grid: every combination of the lists",
    )  # fmt: skip
    PRUNER: str = key(
        OneOf(PRUNERS), "median",
        "which trials are stopped early; only where abs_rel is the single objective",
    )  # fmt: skip
    STORAGE: str = key(
        Text("empty, sqlite:///FILE or postgresql://USER@HOST/DATABASE", storage_fault, True), "",
        "the study's database; empty: a SQLite file beside the trials",
    )  # fmt: skip
    WORKERS: int = key(Integer(1, 4096), 1, "processes that run trials; one GPU each")
    HEARTBEAT_S: int = key(
        Integer(1), 20, "heartbeat interval of a worker; after three missed ones it is dead", "s"
    )
    RETRIES: int = key(
        Integer(0), 2, "times that a trial whose worker died is continued from its checkpoint"
    )
    THEN: str = key(
        OneOf(
            {
                "": "nothing",
                "train": "train the best at full length, validation scenes included",
                "train,export": "also export its engine",
            }
        ),
        "",
        "what follows the last trial",
    )
    SEEDS: int = key(Integer(1, 10_000), 1, "trainings of the best config, each with its own seed")


@dataclass
class Config(KeyGroup):
    """The whole tree. SEARCH, which mirrors it, is not declared by keys."""

    if TYPE_CHECKING:
        SEARCH: Any

    SEED: int = key(Integer(0, MOST_SEED), 0, "random seed of everything")
    RUN: RunKeys = group()
    DATA: DataKeys = group()
    CACHE: CacheKeys = group()
    LOADER: LoaderKeys = group()
    AUGMENT: AugmentKeys = group()
    MODEL: ModelKeys = group()
    LOSS: LossKeys = group()
    TRAIN: TrainKeys = group()
    STUDY: StudyKeys = group()


def keys_of(group: type = Config, prefix: str = "") -> Iterator[Key]:
    """The keys of a group and of the groups inside it, in their order."""
    for one in fields(group):
        if one.metadata:
            yield Key(f"{prefix}{one.name}", **one.metadata)
        else:
            yield from keys_of(_class_of(one), f"{prefix}{one.name}.")


def _class_of(one: "Field[Any]") -> type:
    assert isinstance(one.type, type)
    return one.type


SEARCH = "SEARCH"
GROUPS: dict[str, str] = {
    one.name: _class_of(one).__doc__ or "" for one in fields(Config) if not one.metadata
}
KEYS: dict[str, Key] = {one.name: one for one in keys_of()}
