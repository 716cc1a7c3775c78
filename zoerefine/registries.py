"""Every kind of part that a config or an option chooses by name, and where its code stands.

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
    """Parts of one kind by name, in the order in which they are listed and preferred."""

    def __init__(self, kind: str, places: dict[str, str]) -> None:
        self.kind, self._places = kind, places

    def __getitem__(self, name: str) -> str:
        return self._places[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def check(self, name: str, key: str) -> None:
        """Raises `UserError`, naming the config key or option, where there is no such part."""
        if name not in self:
            close = difflib.get_close_matches(str(name), list(self), n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UserError(f"{key}: no {self.kind} {name!r}; known: {', '.join(self)}{hint}")

    def load(self, name: str) -> Any:
        """Import a part. Raises `KeyError` for an unknown name: `check` comes first."""
        module, _, attribute = self[name].partition(":")
        loaded = import_module(module)
        return getattr(loaded, attribute) if attribute else loaded


NETWORKS = Registry(
    "network",
    {
        "small": "zoerefine.model.small:SmallUNet",
        "guided": "zoerefine.model.guided:GuidedUNet",
        "unet": "zoerefine.model.unet:ResNetUNet",
    },
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
# In the order in which a folder is tried.
READERS = Registry(
    "data layout",
    {
        "habitatdyn": "zoerefine.data.habitatdyn",
        "frames_csv": "zoerefine.data.frames_csv",
    },
)
# In the order in which `--engine auto` prefers them; a GPU's come first.
ENGINES = Registry(
    "engine",
    {
        "tensorrt": "zoerefine.export.engines.tensorrt_engine",
        "tensorrt-rtx": "zoerefine.export.engines.tensorrt_rtx_engine",
        "openvino": "zoerefine.export.engines.openvino_engine",
        "torchscript": "zoerefine.export.engines.torchscript_engine",
    },
)
EXECUTORS = Registry(
    "executor",
    {
        "local": "zoerefine.launch.executor.local:local_executor",
        "ray": "zoerefine.launch.executor.ray_cluster:ray_executor",
    },
)
SAMPLERS = Registry(
    "sampler",
    {
        "tpe": "zoerefine.search.samplers:tpe",
        "random": "zoerefine.search.samplers:random",
        "grid": "zoerefine.search.samplers:grid",
    },
)
PRUNERS = Registry(
    "pruner",
    {
        "median": "zoerefine.search.pruning:median",
        "halving": "zoerefine.search.pruning:halving",
        "none": "zoerefine.search.pruning:none",
    },
)
OBJECTIVES = Registry(
    "objective",
    {
        "abs_rel": "zoerefine.search.objectives:abs_rel",
        "delta1": "zoerefine.search.objectives:delta1",
        "latency_ms": "zoerefine.search.objectives:latency_ms",
        "parameters": "zoerefine.search.objectives:parameters",
    },
)
