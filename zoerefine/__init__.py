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

from zoerefine.processor_use import choose_openmp

__version__ = "0.1.0"

if TYPE_CHECKING:
    from zoerefine import current_run
    from zoerefine.api import (
        analyze,
        export,
        load_run,
        load_runs,
        search,
        train,
    )
    from zoerefine.config import load_config
    from zoerefine.data.batches import make_loader
    from zoerefine.data.readers import open_dataset
    from zoerefine.errors import UserError
    from zoerefine.infer.refiner import Refiner

PLACES = {
    "Refiner": "zoerefine.infer.refiner",
    "UserError": "zoerefine.errors",
    "analyze": "zoerefine.api",
    "export": "zoerefine.api",
    "load_config": "zoerefine.config",
    "load_run": "zoerefine.api",
    "load_runs": "zoerefine.api",
    "make_loader": "zoerefine.data.batches",
    "open_dataset": "zoerefine.data.readers",
    "search": "zoerefine.api",
    "train": "zoerefine.api",
}

choose_openmp()  # before torch is loaded

__all__ = [
    "Refiner",
    "UserError",
    "analyze",
    "current_run",
    "export",
    "load_config",
    "load_run",
    "load_runs",
    "make_loader",
    "open_dataset",
    "search",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "current_run":  # a module that needs only the standard library
        return import_module("zoerefine.current_run")
    if name not in PLACES:
        raise AttributeError(f"module 'zoerefine' has no attribute {name!r}")
    return getattr(import_module(PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
