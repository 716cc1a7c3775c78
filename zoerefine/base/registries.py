"""Every kind of part that a config or an option chooses by name, and where its code is.

A row is `name: "module:attribute"` (or `"module"`). Reading this file imports no part, so names
are checked before torch is loaded. To add a part, write its file and one row here;
docs/extending.md shows each kind.
"""

import difflib
from collections import UserDict
from importlib import import_module
from typing import Any

from zoerefine.base.errors import UserError


class Registry(UserDict[str, str]):
    """Parts of one kind by name, in the order in which they are listed and preferred.

    With `outside`, `package.module:attribute` names a part of any importable module, too.
    """

    def __init__(self, kind: str, places: dict[str, str], outside: bool = False) -> None:
        super().__init__(places)
        self.kind, self.outside = kind, outside

    def check(self, name: str, key: str) -> None:
        """Raises `UserError`, naming the config key or option, where there is no such part."""
        if name not in self and not self.is_outside(name):
            close = difflib.get_close_matches(str(name), list(self), n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            or_outside = " or package.module:attribute" if self.outside else ""
            raise UserError(
                f"{key}: no {self.kind} {name!r}; known: {', '.join(self)}{or_outside}{hint}"
            )

    def is_outside(self, name: str) -> bool:
        """Whether a name is the place of a part that is not listed here."""
        return self.outside and name not in self and is_place(name)

    def load(self, name: str) -> Any:
        """Import a part.

        Raises:
            KeyError: an unknown name; `check` comes first.
            UserError: a part outside this package cannot be imported.
        """
        if not self.is_outside(name):
            return import_part(self[name])
        try:
            return import_part(name)
        except Exception as error:  # whatever importing that module raises
            raise UserError(
                f"the {self.kind} {name} cannot be imported ({type(error).__name__}: {error}): "
                "check the name, and that its folder is on PYTHONPATH"
            ) from error


def is_place(name: str) -> bool:
    """Whether a text has the shape `package.module:attribute`."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in [*module.split("."), attribute])


def import_part(place: str) -> Any:
    """What stands at `module` or `module:attribute`."""
    module, _, attribute = place.partition(":")
    loaded = import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


NETWORKS = Registry(
    "network",
    {
        "small": "zoerefine.depth.model.networks:SmallUNet",
        "guided": "zoerefine.depth.model.networks:GuidedUNet",
        "unet": "zoerefine.depth.model.networks:ResNetUNet",
    },
    outside=True,
)
LOSS_TERMS = Registry(
    "loss term",
    {
        "mse": "zoerefine.depth.loss:mse",
        "l1": "zoerefine.depth.loss:l1",
        "l1_log": "zoerefine.depth.loss:l1_log",
        "silog": "zoerefine.depth.loss:silog",
        "berhu": "zoerefine.depth.loss:berhu",
        "gradient": "zoerefine.depth.loss:gradient",
        "normals": "zoerefine.depth.loss:normals",
        "smoothness": "zoerefine.depth.loss:smoothness",
    },
)
# In the order in which tables show them.
METRICS = Registry(
    "metric",
    {
        "abs_rel": "zoerefine.depth.metrics:abs_rel",
        "sq_rel": "zoerefine.depth.metrics:sq_rel",
        "rmse": "zoerefine.depth.metrics:rmse",
        "rmse_log": "zoerefine.depth.metrics:rmse_log",
        "log10": "zoerefine.depth.metrics:log10",
        "silog": "zoerefine.depth.metrics:silog",
        "delta1": "zoerefine.depth.metrics:delta1",
        "delta2": "zoerefine.depth.metrics:delta2",
        "delta3": "zoerefine.depth.metrics:delta3",
    },
)
SELECTION_METRIC = "abs_rel"  # of METRICS: it chooses the best checkpoint; lower is better


SCHEDULES = Registry(
    "learning rate schedule",
    {
        "cosine": "zoerefine.depth.training.schedule:cosine",
        "onecycle": "zoerefine.depth.training.schedule:one_cycle",
        "step": "zoerefine.depth.training.schedule:steps_down",
        "constant": "zoerefine.depth.training.schedule:constant",
    },
)
OPTIMIZERS = Registry(
    "optimizer",
    {
        "adamw": "zoerefine.depth.training.optimizer:adamw",
        "sgd": "zoerefine.depth.training.optimizer:sgd",
    },
)
# In the order in which a folder is tried.
READERS = Registry(
    "data layout",
    {
        "habitatdyn": "zoerefine.depth.data.layouts.habitatdyn",
        "frames_csv": "zoerefine.depth.data.layouts.frames_csv",
        "tum": "zoerefine.depth.data.layouts.tum:LAYOUT",
        "scannet": "zoerefine.depth.data.layouts.scannet:LAYOUT",
    },
)
# In the order in which a file or folder is tried.
TRACKERS = Registry(
    "tracker",
    {
        "mlflow": "zoerefine.lab.runs.trackers.mlflow",
        "wandb": "zoerefine.lab.runs.trackers.wandb",
        "tensorboard": "zoerefine.lab.runs.trackers.tensorboard",
    },
)
# In the order in which `--engine auto` prefers them; a GPU's come first.
ENGINES = Registry(
    "engine",
    {
        "tensorrt": "zoerefine.depth.exporting.engines.tensorrt_engine",
        "tensorrt-lean": "zoerefine.depth.exporting.engines.tensorrt_lean_engine",
        "tensorrt-pt2": "zoerefine.depth.exporting.engines.tensorrt_pt2_engine",
        "tensorrt-rtx": "zoerefine.depth.exporting.engines.tensorrt_rtx_engine",
        "openvino": "zoerefine.depth.exporting.engines.openvino_engine",
        "onnx": "zoerefine.depth.exporting.engines.onnx_engine",
        "torchscript": "zoerefine.depth.exporting.engines.torchscript_engine",
        "aoti": "zoerefine.depth.exporting.engines.aoti_engine",
    },
)
EXECUTORS = Registry(
    "executor",
    {
        "local": "zoerefine.lab.launch.queue.executor:local_executor",
        "ray": "zoerefine.lab.launch.queue.ray:ray_executor",
        "slurm": "zoerefine.lab.launch.queue.slurm.executor:slurm_executor",
    },
)
ENVIRONMENTS = Registry(
    "environment",
    {
        "venv": "zoerefine.lab.launch.environment:Venv",
        "uv": "zoerefine.lab.launch.environment:Uv",
    },
)
POINT_KINDS = Registry(
    "points of kind",
    {
        "random": "zoerefine.depth.points.simulate:random",
        "corners": "zoerefine.depth.points.simulate:corners",
        "zones": "zoerefine.depth.points.simulate:zones",
        "beam": "zoerefine.depth.points.simulate:beam",
    },
)
SAMPLERS = Registry(
    "sampler",
    {
        "tpe": "zoerefine.lab.search.study.samplers:tpe",
        "random": "zoerefine.lab.search.study.samplers:random",
        "grid": "zoerefine.lab.search.study.samplers:grid",
        "gp": "zoerefine.lab.search.study.samplers:gp",
        "cmaes": "zoerefine.lab.search.study.samplers:cmaes",
        "nsga2": "zoerefine.lab.search.study.samplers:nsga2",
        "auto": "zoerefine.lab.search.study.samplers:auto",
    },
)
PRUNERS = Registry(
    "pruner",
    {
        "auto": "zoerefine.lab.search.study.pruning:auto",
        "median": "zoerefine.lab.search.study.pruning:median",
        "halving": "zoerefine.lab.search.study.pruning:halving",
        "none": "zoerefine.lab.search.study.pruning:none",
    },
)
OBJECTIVES = Registry(
    "objective",
    {
        "abs_rel": "zoerefine.depth.study.objectives:abs_rel",
        "delta1": "zoerefine.depth.study.objectives:delta1",
        "latency_ms": "zoerefine.depth.study.objectives:latency_ms",
        "parameters": "zoerefine.depth.study.objectives:parameters",
    },
)
# What the laboratory asks about runs of our own training, which it does not import.
OWN_TRAINING = Registry(
    "part of our own training",
    {
        "subject": "zoerefine.depth.study.trials:OwnTraining",
        "bundle_manifest": "zoerefine.depth.exporting.bundle.bundle:read_manifest",
        "example_frames": "zoerefine.depth.report_frames:example_frames",
    },
)
