"""zoerefine: train, prove and ship networks that refine metric depth.

    import zoerefine as zr

    cfg = zr.load_config("configs/demo.yaml", {"DATA.ROOT": "data/synthetic"})
    run = zr.train(cfg)
    refiner = zr.Refiner.load(zr.export(run))
    refined_m = refiner(rgb, zoe_m)

Every name below is imported when it is first used, so `import zoerefine` takes a few milliseconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from zoerefine.base.machine.cores import choose_openmp

__version__ = "0.1.0"

if TYPE_CHECKING:
    from zoerefine import current_run
    from zoerefine.api import analyze, export, load_run, load_runs, search, train
    from zoerefine.base.config import load_config
    from zoerefine.base.errors import UserError
    from zoerefine.base.run_dir import RunDir
    from zoerefine.depth.data.layouts.readers import open_dataset
    from zoerefine.depth.data.loading.batches import make_loader
    from zoerefine.depth.infer.refiner import Refiner
    from zoerefine.depth.points import MetricPoints
    from zoerefine.depth.points.spread import spread_points
    from zoerefine.lab.runs.metrics import read_metrics

# Where the names are that `zoerefine.api` has not.
PLACES = {
    "MetricPoints": "depth.points",
    "Refiner": "depth.infer.refiner",
    "RunDir": "base.run_dir",
    "UserError": "base.errors",
    "load_config": "base.config",
    "make_loader": "depth.data.loading.batches",
    "open_dataset": "depth.data.layouts.readers",
    "read_metrics": "lab.runs.metrics",
    "spread_points": "depth.points.spread",
}

choose_openmp()  # before torch is loaded

__all__ = [
    "MetricPoints",
    "Refiner",
    "RunDir",
    "UserError",
    "analyze",
    "current_run",
    "export",
    "load_config",
    "load_run",
    "load_runs",
    "make_loader",
    "open_dataset",
    "read_metrics",
    "search",
    "spread_points",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "current_run":  # a module that needs only the standard library
        return import_module("zoerefine.current_run")
    if name not in __all__:
        raise AttributeError(f"module 'zoerefine' has no attribute {name!r}")
    return getattr(import_module(f"zoerefine.{PLACES.get(name, 'api')}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
