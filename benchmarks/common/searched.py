"""What benchmarks of searches share: the searched configuration, and figures over seeds."""

import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.report import Row, row
from yacs.config import CfgNode

from zoerefine.base.config import defaults, merge
from zoerefine.lab.analysis.statistics.significance import half_width

SPACE = {
    "TRAIN": {
        "LR": {"low": 1e-4, "high": 3e-2, "log": True},
        "WEIGHT_DECAY": {"low": 1e-6, "high": 1e-1, "log": True},
    },
    "MODEL": {"MAX_LOG": [1.0, 1.5, 2.0]},
    "LOSS": {"OBJECT_WEIGHT": {"low": 0.2, "high": 0.8}},
}


def config(root: Path, tree: dict[str, Any]) -> CfgNode:
    """The searched configuration."""
    cfg = defaults()
    merge(cfg, {
        "DATA": {"ROOT": str(root / "world"), "VAL_FRACTION": 0.3, "TEST_FRACTION": 0.0},
        "CACHE": {"ROOT": str(root / "caches"), "HEIGHT": 48, "WIDTH": 64},
        "LOADER": {"BATCH": 6}, "MODEL": {"BASE": 8}, "SEARCH": SPACE,
    }, "benchmark")  # fmt: skip
    merge(cfg, tree, "benchmark")
    cfg.freeze()
    return cfg


def with_interval(measure: str, values: Sequence[float]) -> list[Row]:
    """A mean over seeds, and half of its 95% interval."""
    return [
        row(measure, statistics.mean(values), "AbsRel"),
        row(f"{measure}, +- (95%)", half_width(values), "AbsRel"),
    ]


def silence() -> None:
    """Suppress the output of trials."""
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (as long as the process lives)
