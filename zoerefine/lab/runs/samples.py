"""Which of collected runs are samples: no repetition, part, parent or copy of another one."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial, reduce
from math import nan
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import RunDir
from zoerefine.base.yaml.equal_values import equal_text
from zoerefine.lab.runs.group_key import COMMIT, PROJECT, SCRIPT, group_key
from zoerefine.lab.runs.record import Curve, Run

REPETITION = re.compile(r"-again\d+$")  # what `zoerefine reproduce` adds to a run's name


def samples(runs: list[Run], metrics: Sequence[str]) -> tuple[list[Run], dict[str, str]]:
    """The runs that are samples, and by path why another one is none; parts were joined before.

    Args:
        metrics: that are asked for.
    """
    left_out: dict[str, str] = {}
    parents = partial(without_parents, metrics=metrics)
    for without in (without_repetitions, parents, without_copies):
        runs, reasons = without(runs)
        left_out |= reasons
    return runs, left_out


def without_repetitions(runs: list[Run]) -> tuple[list[Run], dict[str, str]]:
    """The runs without those that `zoerefine reproduce` made, which are no further seeds.

    A repetition stays where the run that it repeats is not there.
    """
    paths = {run.path for run in runs}
    firsts = {run.path: REPETITION.sub("", run.path) for run in runs}
    left_out = {
        path: f"repeats {Path(first).name}, and is no further seed"
        for path, first in firsts.items()
        if first != path and first in paths
    }
    return [run for run in runs if run.path not in left_out], left_out


def joined_parts(runs: list[Run]) -> tuple[list[Run], dict[str, str]]:
    """The runs, each that W&B resumed joined of its folders: those of one id and project.

    Their names begin with their time. What a later folder says again comes before what an earlier
    one said; it ended as the last one.
    """
    parts: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        if run.provenance.get("may_go_on"):
            one = Path(run.path).parent, run.provenance["tracker_id"], run.settings.get(PROJECT)
            parts.setdefault(one, []).append(run)
    left_out: dict[str, str] = {}
    joined: dict[str, Run] = {}
    for folders in parts.values():
        *earlier, last = sorted(folders, key=lambda run: Path(run.path).name.partition("run-")[2])
        reason = f"goes on in {Path(last.path).name}, and is no further seed"
        left_out |= {run.path: reason for run in earlier}
        joined[last.path] = reduce(with_part, [*earlier, last])
    kept = [joined.get(run.path, run) for run in runs if run.path not in left_out]
    return kept, left_out


def with_part(run: Run, later: Run) -> Run:
    """A run with its next folder. The code is that of the first one, which made the weights."""
    code = {key: run.settings[key] for key in (COMMIT, SCRIPT) if key in run.settings}
    settings = run.settings | later.settings | code
    is_same_key = run.provenance["seed_key"] == later.provenance["seed_key"]
    says_seed = later.seed is not None and (run.seed is None or is_same_key)
    seed, seeded = (later.seed, later) if says_seed else (run.seed, run)
    curves = dict(run.curves)
    for name, curve in later.curves.items():
        before = curves.get(name, Curve([], [], nan))
        begins_anew = before.epochs[:1] >= curve.epochs[:1]  # as W&B's own count does offline
        points = {} if begins_anew else dict(zip(before.epochs, before.refined, strict=True))
        points |= zip(curve.epochs, curve.refined, strict=True)
        steps = sorted(points)
        curves[name] = Curve(steps, [points[step] for step in steps], nan)
    return replace(
        later,
        settings=settings,
        group=group_key(settings),
        seed=seed,
        provenance=later.provenance
        | {"seed_key": seeded.provenance["seed_key"], "commit": run.provenance["commit"]},
        finals=run.finals | later.finals,
        curves=curves,
        faults=list(dict.fromkeys([*run.faults, *later.faults])),
    )


def without_parents(
    runs: list[Run], metrics: Sequence[str] = ()
) -> tuple[list[Run], dict[str, str]]:
    """The runs without those of MLflow that are no samples beside the runs nested in them.

    A parent is none that repeats a nested run, as a sweep repeats its best one, that is the mean of
    its seeds, or that lacks a metric that is asked for and they have. A nested run is none that has
    the parent's settings and seed and another result, such as an evaluation.
    """
    nested: dict[str, list[Run]] = {}
    for run in runs:
        nested.setdefault(run.provenance.get("parent_id", ""), []).append(run)
    left_out: dict[str, str] = {}
    for run in runs:
        for child in nested.get(run.provenance.get("tracker_id", "-"), ()):
            asked = [name for name in metrics if name in child.finals]
            both = [name for name in child.finals if name in run.finals]
            compared = [name for name in both if name in metrics] or both
            is_same = child.group == run.group and bool(both)
            if asked and not any(name in run.finals for name in metrics):
                left_out[run.path] = f"has no {asked[0]}, which the runs nested in it have"
            elif is_same and (
                all(child.finals[name] == run.finals[name] for name in compared)
                or (run.seed is None and child.seed is not None)
            ):
                reason = f"has the settings and a metric of its nested run {child.name}"
                left_out[run.path] = f"{reason}, and is no further seed"
            elif is_same and child.seed == run.seed is not None:
                reason = f"is nested in {run.name}, which has its settings and seed"
                left_out[child.path] = f"{reason}, and is no further seed"
    return [run for run in runs if run.path not in left_out], left_out


def without_copies(runs: list[Run]) -> tuple[list[Run], dict[str, str]]:
    """The runs without copies of others, such as backups, which are no further seeds.

    Runs are one sample if commit, config and seed are the same, and the trained weights are; of
    scripts of other repositories, and where a copy lacks the digest of its weights, all results.
    """
    alike: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        setting = equal_text(run.settings) if run.is_foreign else run.group
        alike.setdefault((run.is_foreign, run.commit, setting, run.seed), []).append(run)
    left_out: dict[str, str] = {}
    for some in alike.values():
        by_weights: dict[str, Run] = {}
        by_values: dict[str, Run] = {}
        without_weights: dict[str, Run] = {}
        for run in some if len(some) > 1 else ():
            weights, values = weights_of(run), values_of(run)
            first, same = by_weights.get(weights), "weights"
            if first is None:
                first, same = (without_weights if weights else by_values).get(values), "metrics"
            if first is not None:
                left_out[run.path] = (
                    f"has the commit, config, seed and {same} of {first.path}, and is no further "
                    "seed"
                )
                continue
            if weights:
                by_weights[weights] = run
            if values and (weights or run.is_foreign):
                by_values[values] = run
            elif values:
                without_weights[values] = run
    return [run for run in runs if run.path not in left_out], left_out


def weights_of(run: Run) -> str:
    """The digests of a run's trained weights; empty where it has none."""
    if run.is_foreign:
        return ""
    with suppress(UserError):
        return " ".join(RunDir(Path(run.path)).weights_digests())
    return ""


def values_of(run: Run) -> str:
    """A text that only copies of a run share; empty where the run has no result yet."""
    if not run.is_foreign:
        return json.dumps([run.results, run.curve and vars(run.curve)]) if run.results else ""
    curves = {name: vars(curve) for name, curve in run.curves.items()}
    # A tracker does not record what was launched, but its copies keep an id.
    known = run.provenance
    name = "" if "module" in known else known.get("tracker_id", Path(run.path).name)
    return json.dumps([name, run.finals, curves]) if run.finals else ""
