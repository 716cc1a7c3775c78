"""Reads any run: of our own training, of another script, or as a tracker recorded it."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import isfinite, nan
from pathlib import Path
from typing import Any

from zoerefine.base.config_roles import SEED
from zoerefine.base.errors import UserError
from zoerefine.base.messages import counted
from zoerefine.base.registries import SELECTION_METRIC
from zoerefine.base.run_dir import RunDir, require_file
from zoerefine.base.yaml.equal_values import FURTHER_ZEROS
from zoerefine.base.yaml.keys import flatten, merged, with_facts
from zoerefine.base.yaml.script_overrides import NEW_KEY, YAML_SUFFIXES, value_like
from zoerefine.lab.launch.included import read_included
from zoerefine.lab.launch.job import MERGED
from zoerefine.lab.launch.record.provenance import is_own_training
from zoerefine.lab.runs.group_key import (
    COMMIT,
    DIGITS,
    command_settings,
    group_key,
    origin_settings,
    recorded_words,
    seed_key,
)
from zoerefine.lab.runs.metrics import RunMetrics, Series, read_metrics
from zoerefine.lab.runs.record import PRUNED, Curve, Run, finite_number, read_own_run, read_tree
from zoerefine.lab.runs.trackers.stores import TrackedRun

MOST_METRICS = 2000  # whose final values are kept, beside those that are asked for


def kept(finals: Mapping[str, float], names: Sequence[str] = ()) -> dict[str, float]:
    """The final values that are kept of a run."""
    asked = {name: finals[name] for name in names if name in finals}
    return dict(islice(finals.items(), MOST_METRICS)) | asked


def too_many(finals: Mapping[str, float]) -> list[str]:
    """What is said about metrics that are not kept."""
    more = len(finals) - MOST_METRICS
    return [f"{counted(more, 'metric')} left out: --metric NAME compares any"] if more > 0 else []


def is_foreign(run: RunDir, recorded: Mapping[str, Any]) -> bool:
    """Whether another repository's script wrote the run, not our own training."""
    if is_own_training(recorded):
        return False
    launched = "module" in recorded
    return launched or not os.path.lexists(run.config_file)


def read_foreign_run(
    run: RunDir, recorded: dict[str, Any], names: Sequence[str], patterns: Sequence[str] = ()
) -> Run:
    """Read the run of another repository's script.

    Args:
        recorded: its provenance.json.
        names: the metrics whose curves are kept.
        patterns: further metric patterns.

    Raises `UserError` where its config is damaged.
    """
    metrics = read_metrics(run, patterns)
    settings = read_settings(run, recorded) or dict(metrics.hyperparameters)
    key = str(recorded.get("seed_key", SEED)).lstrip("+")
    key = key if key in settings else seed_key(settings) or key
    seed = settings.pop(key, None)
    facts = command_settings(run, recorded, bool(settings)) | origin_settings(recorded)
    settings = with_facts(settings, facts)
    status = run.status()
    return Run(
        path=str(run.path),
        state=status.state,
        settings=settings,
        group=group_key(settings),
        seed=json.dumps(seed) if isinstance(seed, list | dict) else seed,
        provenance=recorded | {"seed_key": key, "pruned": status.reason.startswith(PRUNED)},
        started=status.started,
        is_foreign=True,
        finals=kept(metrics.final, names),
        curves=read_curves(metrics.series, names),
        faults=[*metrics.faults, *too_many(metrics.final)],
    )


def read_settings(run: RunDir, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The config that the job got, over the files that it includes, with the overrides as words;
    or what Hydra composed from them, with the words that choose config groups.

    Empty for a config that is neither YAML nor JSON. Raises `UserError` where it is damaged.
    """
    path = run.path / str(recorded.get("input", "input.yaml"))
    included = read_included(run.path).tree or {}
    tree = merged(included, read_config(path))
    settings = flatten(tree, keeps_empty=True)
    composed = {} if settings else hydra_settings(run)
    if recorded.get("overrides_in") not in MERGED:
        words = recorded_words(recorded, "overrides")
        for word, text in zip(words[::2], words[1::2], strict=False):
            key = word.lstrip(NEW_KEY)
            settings = {k: v for k, v in settings.items()
                        if not (k.startswith(f"{key}.") or key.startswith(f"{k}."))}  # fmt: skip
            value = value_of_word(settings.get(key), text)
            settings |= flatten({key: value}, keeps_empty=True)
    return json.loads(json.dumps(settings | composed))


def value_of_word(present: Any, text: str) -> Any:
    """The value of a word that a script got, where its config has `present`.

    It is read as one that is merged into the config. A number with further zeros, such as `1.10`
    and `007`, is one only where the config has one: a script may take it for a text, and runs of
    1.1 and 1.10 are no seeds of one setting. So are `True`, `true` and `null` only where the
    config has a truth value.
    """
    is_number = isinstance(present, int | float) and not isinstance(present, bool)
    is_text = FURTHER_ZEROS.fullmatch(text) and not is_number
    value = value_like(present, text)
    is_word = (value is None or isinstance(value, bool)) and not isinstance(present, bool)
    return text if is_text or is_word else value


def hydra_settings(run: RunDir) -> dict[str, Any]:
    """The config that Hydra composed last and left beside its outputs; empty without one.

    Those of its own multirun are several, so none of them is the run's.
    """
    found = [path for path in run.path.rglob(".hydra/config.yaml") if "multirun" not in path.parts]
    return flatten(read_config(max(found)), keeps_empty=True) if found else {}


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


VALIDATION = "val."
SELECTED_BY = f"{VALIDATION}refined.{SELECTION_METRIC}"


def read_run(folder: Path, names: Sequence[str] = (), patterns: Sequence[str] = ()) -> Run:
    """Read one run directory.

    Args:
        names: metrics whose curves are kept. A run of another repository's script has the final
            values of all its metrics, one of our own only of these.
        patterns: further metric patterns.

    Raises:
        UserError, OSError: a document is damaged.
    """
    run = RunDir(folder)
    recorded = run.recorded()
    if is_foreign(run, recorded):
        return read_foreign_run(run, recorded, names, patterns)
    own = read_own_run(run, recorded)
    if not names:
        return own
    metrics = read_metrics(run, patterns)
    known = metrics.final | ({} if own.results else best_values(metrics))
    finals = {name: known[name] for name in names if name in known}
    curves = read_curves(metrics.series, names)
    return replace(own, finals=finals, curves=curves, faults=list(metrics.faults))


def best_values(metrics: RunMetrics) -> dict[str, float]:
    """Every validation metric at the best checkpoint so far, of a run without results.json."""
    scores = metrics.series.get(SELECTED_BY, Series([], []))
    pairs = zip(scores.values, scores.steps, strict=True)
    finite = [(value, step) for value, step in pairs if isfinite(value)]
    if not finite:
        return {}
    _, best = min(finite)
    return {
        name: one.values[one.steps.index(best)]
        for name, one in metrics.series.items()
        if name.startswith(VALIDATION) and best in one.steps
    }


def as_run(found: TrackedRun, names: Sequence[str]) -> Run:
    """A run of a tracker, with the curves of some metrics.

    Raises `ValueError` where a text in it cannot be written as UTF-8.
    """
    settings = dict(sorted(found.settings.items()))
    key = seed_key(settings)
    seed = settings.pop(key, None)
    settings = with_facts(settings, {name: place for name, place in found.places.items() if place})
    if found.commit:
        settings[COMMIT] = found.commit[:DIGITS]
    json.dumps([settings, found.name, list(found.finals)], ensure_ascii=False).encode()
    return Run(
        path=found.path,
        state=found.state,
        settings=settings,
        group=group_key(settings),
        seed=seed,
        provenance={
            "run_name": found.name,
            "commit": found.commit,
            "seed_key": key,
            "tracker_id": found.id or Path(found.path).name,
            "may_go_on": bool(found.id),
            "parent_id": found.parent,
        },
        started=found.started,
        is_foreign=True,
        finals=kept(dict(sorted(found.finals.items())), names),
        curves=read_curves(found.series, names),
        faults=[*found.faults, *too_many(found.finals)],
    )
