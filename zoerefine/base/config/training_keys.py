"""The keys of the network, its loss and its training."""

from dataclasses import dataclass
from typing import Any

from zoerefine.base.config.declare import (
    LONGEST_S,
    MOST_EPOCHS,
    MOST_WEIGHT,
    POSITIVE_SHARE,
    SHARE,
    SHARE_BELOW_ONE,
    KeyGroup,
    key,
    path,
)
from zoerefine.base.config.value_types import (
    Flag,
    Integer,
    ListOf,
    MappingOf,
    Number,
    OneOf,
    OpenMapping,
)
from zoerefine.base.depth_limits import MOST_FARTHEST_M, NEAREST_M, TYPICAL_M
from zoerefine.base.registries import LOSS_TERMS, NETWORKS, OPTIMIZERS, SCHEDULES

MOST_STEPS = 10_000_000
WEIGHT = Number(at_least=0, at_most=MOST_WEIGHT)


@dataclass
class ModelKeys(KeyGroup):
    """The network that refines depth."""

    NAME: str = key(
        OneOf(NETWORKS), "small",
        "network: see docs/models.md; package.module:Class for one outside this package",
    )  # fmt: skip
    BASE: int = key(Integer(4, 65536), 16, "channels of the first level; unet has at least 8")
    PRETRAINED: str = path("", "unet: a local file with torchvision's ResNet18 weights")
    MAX_LOG: float = key(
        Number(above=0, at_most=10), 2.0, "bound on the change of log depth at a pixel"
    )
    CONFIDENCE: bool = key(
        Flag(), True, "predict the error of depth beside depth, where the network offers it"
    )
    POINTS: bool = key(
        Flag(), False, "take metric points as an additional input: see docs/points.md"
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
    TYPICAL_DEPTH_M: float = key(
        Number(above=NEAREST_M, at_most=MOST_FARTHEST_M),
        TYPICAL_M,
        "the depth that the network's input and output are relative to, about the geometric mean "
        "of the data; the default is indoors",
        "m",
    )
    OPTIONS: dict[str, Any] = key(
        OpenMapping(), {}, "hyper-parameters of the network's own: keyword arguments of its class"
    )


@dataclass
class LossKeys(KeyGroup):
    """The loss that training minimizes."""

    TERMS: list[dict[str, Any]] = key(
        ListOf(MappingOf({"name": OneOf(LOSS_TERMS), "weight": WEIGHT}), at_least=1),
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
    EPOCHS: int = key(Integer(1, MOST_EPOCHS), 50, "passes over the training frames", "epochs")
    STEPS: int = key(
        Integer(0, MOST_STEPS),
        0,
        "the run ends after this many optimizer steps; 0: after EPOCHS",
        "steps",
    )
    OPTIMIZER: str = key(OneOf(OPTIMIZERS), "adamw", "optimizer; sgd has Nesterov momentum")
    LR: float = key(
        Number(at_least=0, at_most=1e30), 1.0e-3, "largest learning rate of the schedule"
    )
    WEIGHT_DECAY: float = key(Number(at_least=0, at_most=1000), 1.0e-4, "weight decay")
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
        Integer(1, 65536),
        1,
        "gradient accumulation: parts that a batch is split into, to save memory",
    )
    PATIENCE: int = key(
        Integer(0, MOST_EPOCHS),
        0,
        "early stopping after this many evaluations without improvement; 0: off",
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
    EVAL_EVERY: int = key(
        Integer(1, MOST_EPOCHS), 1, "evaluate on the validation scenes this often", "epochs"
    )
    LOG_EVERY: int = key(
        Integer(1, MOST_STEPS), 10, "write a row of training figures this often", "steps"
    )
    PICTURES: int = key(
        Integer(0, 1000), 3, "validation frames drawn for TensorBoard at each evaluation"
    )
    HISTOGRAMS: bool = key(
        Flag(), False, "write histograms of weights and gradients to TensorBoard"
    )
    CHECKPOINT_S: float = key(
        Number(at_least=0, at_most=LONGEST_S),
        60.0,
        "shortest time between checkpoints, ends of epochs included",
        "s",
    )
    CHECKPOINTS: int = key(Integer(1, 1000), 2, "checkpoints that are kept")
    DETERMINISTIC: bool = key(
        Flag(), True, "an operation that is not bit-exact reproducible is an error"
    )
