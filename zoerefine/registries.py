"""Every kind of part that a config or an option chooses by name, and where its code is.

A row is `name: "module:attribute"` (or `"module"`). Reading this file imports no part, so names
are checked before torch is loaded. To add a part, write its file and one row here;
docs/extending.md shows each kind.
"""

import difflib
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from zoerefine.errors import UserError


class Registry(Mapping[str, str]):
    """Parts of one kind by name, in the order in which they are listed and preferred.

    With `outside`, `package.module:attribute` names a part of any importable module, too.
    """

    def __init__(self, kind: str, places: dict[str, str], outside: bool = False) -> None:
        self.kind, self.outside, self._places = kind, outside, places

    def __getitem__(self, name: str) -> str:
        return self._places[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

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
        "small": "zoerefine.model.small:SmallUNet",
        "guided": "zoerefine.model.guided:GuidedUNet",
        "unet": "zoerefine.model.unet:ResNetUNet",
    },
    outside=True,
)
LOSS_TERMS = Registry(
    "loss term",
    {
        "mse": "zoerefine.loss:mse",
        "l1": "zoerefine.loss:l1",
        "l1_log": "zoerefine.loss:l1_log",
        "silog": "zoerefine.loss:silog",
        "berhu": "zoerefine.loss:berhu",
        "gradient": "zoerefine.loss:gradient",
        "normals": "zoerefine.loss:normals",
        "smoothness": "zoerefine.loss:smoothness",
    },
)
SCHEDULES = Registry(
    "learning rate schedule",
    {
        "cosine": "zoerefine.training.schedule:cosine",
        "onecycle": "zoerefine.training.schedule:one_cycle",
        "step": "zoerefine.training.schedule:steps_down",
        "constant": "zoerefine.training.schedule:constant",
    },
)
OPTIMIZERS = Registry(
    "optimizer",
    {
        "adamw": "zoerefine.training.optimizer:adamw",
        "sgd": "zoerefine.training.optimizer:sgd",
    },
)
# In the order in which a folder is tried.
READERS = Registry(
    "data layout",
    {
        "habitatdyn": "zoerefine.data.habitatdyn",
        "frames_csv": "zoerefine.data.frames_csv",
        "tum": "zoerefine.data.tum",
        "scannet": "zoerefine.data.scannet",
    },
)
# In the order in which a file or folder is tried.
TRACKERS = Registry(
    "tracker",
    {
        "mlflow": "zoerefine.trackers.mlflow_store",
        "wandb": "zoerefine.trackers.wandb_folder",
        "tensorboard": "zoerefine.trackers.tensorboard_folder",
    },
)
# In the order in which `--engine auto` prefers them; a GPU's come first.
ENGINES = Registry(
    "engine",
    {
        "tensorrt": "zoerefine.exporting.engines.tensorrt_engine",
        "tensorrt-rtx": "zoerefine.exporting.engines.tensorrt_rtx_engine",
        "openvino": "zoerefine.exporting.engines.openvino_engine",
        "onnx": "zoerefine.exporting.engines.onnx_engine",
        "torchscript": "zoerefine.exporting.engines.torchscript_engine",
        "aoti": "zoerefine.exporting.engines.aoti_engine",
    },
)
EXECUTORS = Registry(
    "executor",
    {
        "local": "zoerefine.launch.executor.local:local_executor",
        "ray": "zoerefine.launch.executor.ray_cluster:ray_executor",
        "slurm": "zoerefine.launch.executor.slurm_cluster:slurm_executor",
    },
)
ENVIRONMENTS = Registry(
    "environment",
    {
        "venv": "zoerefine.launch.environment_venv",
        "uv": "zoerefine.launch.environment_uv",
    },
)
POINT_KINDS = Registry(
    "points of kind",
    {
        "random": "zoerefine.points.simulate:random",
        "corners": "zoerefine.points.simulate:corners",
        "zones": "zoerefine.points.simulate:zones",
        "beam": "zoerefine.points.simulate:beam",
    },
)
SAMPLERS = Registry(
    "sampler",
    {
        "tpe": "zoerefine.searching.samplers:tpe",
        "random": "zoerefine.searching.samplers:random",
        "grid": "zoerefine.searching.samplers:grid",
        "gp": "zoerefine.searching.samplers:gp",
        "cmaes": "zoerefine.searching.samplers:cmaes",
        "nsga2": "zoerefine.searching.samplers:nsga2",
        "auto": "zoerefine.searching.samplers:auto",
    },
)
PRUNERS = Registry(
    "pruner",
    {
        "auto": "zoerefine.searching.pruning:auto",
        "median": "zoerefine.searching.pruning:median",
        "halving": "zoerefine.searching.pruning:halving",
        "none": "zoerefine.searching.pruning:none",
    },
)
OBJECTIVES = Registry(
    "objective",
    {
        "abs_rel": "zoerefine.searching.objectives:abs_rel",
        "delta1": "zoerefine.searching.objectives:delta1",
        "latency_ms": "zoerefine.searching.objectives:latency_ms",
        "parameters": "zoerefine.searching.objectives:parameters",
    },
)
