"""Runs of other repositories: settings, seed and metrics of a script that we know nothing about."""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any

from zoerefine.analysis.documents import read_tree
from zoerefine.analysis.run_record import Curve, Run, finite_number
from zoerefine.errors import UserError
from zoerefine.files import digest_json
from zoerefine.identity import SEED
from zoerefine.launch.config_merge import YAML_SUFFIXES, read_value
from zoerefine.launch.job_words import NO_CONFIG
from zoerefine.launch.provenance import is_own_training
from zoerefine.run_dir import RunDir, require_file
from zoerefine.run_metrics import Series, read_metrics
from zoerefine.trees import flatten

MOST_METRICS = 200  # whose final values are kept


def is_foreign(run: RunDir, recorded: Mapping[str, Any]) -> bool:
    """Whether another repository's script wrote the run, not our own training."""
    if is_own_training(recorded):
        return False
    launched = "module" in recorded
    return launched or not os.path.lexists(run.config_file)


def read_foreign_run(run: RunDir, recorded: dict[str, Any], names: Sequence[str]) -> Run:
    """Read the run of another repository's script.

    Args:
        recorded: its provenance.json.
        names: the metrics whose curves are kept.

    Raises:
        UserError: its config is damaged.
    """
    metrics = read_metrics(run)
    settings = read_settings(run, recorded) or metrics.hyperparameters
    seed = settings.pop(str(recorded.get("seed_key", SEED)).lstrip("+"), recorded.get("hash_seed"))
    settings |= command_settings(recorded, bool(settings))
    return Run(
        path=str(run.path),
        state=run.status().state,
        settings=settings,
        group=digest_json(settings)[:8],
        seed=seed if isinstance(seed, int) else 0,
        curve=None,
        results={},
        provenance=recorded,
        engine={},
        is_foreign=True,
        finals=dict(list(metrics.final.items())[:MOST_METRICS]),
        curves=read_curves(metrics.series, names),
        faults=list(metrics.faults),
    )


def read_settings(run: RunDir, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The config that the job got, with the overrides that it got as words.

    Empty for a config that is neither YAML nor JSON. Raises `UserError` where it is damaged.
    """
    path = run.path / str(recorded.get("input", "input.yaml"))
    settings = flatten(read_config(path))
    if recorded.get("overrides_in") != "file":
        words = recorded_words(recorded, "overrides")
        for key, text in zip(words[::2], words[1::2], strict=False):
            inner = f"{key}."
            settings = {k: v for k, v in settings.items() if not k.startswith(inner)}
            settings |= flatten({key: read_value(text)})
    return json.loads(json.dumps(settings))


def recorded_words(recorded: Mapping[str, Any], name: str) -> list[str]:
    """A list of words in provenance.json. Raises `UserError` where it is something else."""
    words = recorded.get(name) or []
    if not isinstance(words, list):
        raise UserError(f"provenance.json is damaged: {name} is not a list")
    return [str(word) for word in words]


def read_config(path: Path) -> dict[str, Any]:
    """A YAML or JSON config as a tree; empty for a file of another kind, or without one."""
    if path.suffix not in (*YAML_SUFFIXES, ".json") or not os.path.lexists(path):
        return {}
    if path.suffix != ".json":
        return read_tree(path)
    require_file(path)
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from None
    return tree if isinstance(tree, dict) else {}


def command_settings(recorded: Mapping[str, Any], has_config: bool) -> dict[str, Any]:
    """What decides the result besides the config's keys: the script and its other words."""
    found = {"module": str(recorded.get("module", ""))}
    if arguments := recorded_words(recorded, "arguments"):
        found["arguments"] = shlex.join(arguments)
    if not has_config and recorded.get("config") != str(NO_CONFIG):
        found["config"] = str(recorded.get("input_digest", ""))[:8]
    return found


def read_curves(found: Mapping[str, Series], names: Sequence[str]) -> dict[str, Curve]:
    """The finite values of these metrics over their steps."""
    curves = {}
    for name in names:
        series = found.get(name, Series([], []))
        pairs = zip(series.steps, series.values, strict=True)
        known = {s: v for s, v in pairs if None not in (finite_number(s), finite_number(v))}
        if known:
            curves[name] = Curve(list(known), list(known.values()), nan)
    return curves
