"""The differences of two runs: config, commit, environment, data, metrics, weights."""

import re
from collections.abc import Mapping
from math import isnan
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError, damage
from zoerefine.base.registries import METRICS
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.analysis.group_names import group_names, shortened
from zoerefine.lab.launch.git.commands import git
from zoerefine.lab.launch.git.settings import GitError
from zoerefine.lab.launch.record.results import left_digests
from zoerefine.lab.runs.find import find_runs
from zoerefine.lab.runs.read import read_run
from zoerefine.lab.runs.record import Run, differing_keys

FACTS = ("commit", "dirty_digest", "dataset_digest", "cache_digest", "environment_digest",
         "python", "torch", "host", "seed")  # fmt: skip
LABEL = 36  # characters of a run's label
MOST_FILES = 20  # that are named
HASH = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def diff_facts(a: Run, b: Run) -> dict[str, Any]:
    """What differs, for programs: pairs of a's and b's value, None where one has none."""
    one, other = final_metrics(a), final_metrics(b)
    ours, theirs = (left_digests(RunDir(Path(run.path))) for run in (a, b))
    return {
        "runs": [{"path": run.path, "label": label}
                 for run, label in zip((a, b), run_labels(a, b), strict=True)],
        "settings": differing(a.settings, b.settings, sorted({*a.settings, *b.settings})),
        "origin": differing(a.provenance, b.provenance, FACTS),
        "commits_between": commits_between(a, b),
        "metrics": {name: (one.get(name), other.get(name)) for name in {**one, **other}},
        "weights": [weights_digest(run) for run in (a, b)],
        "left_files": differing(ours, theirs, sorted({**ours, **theirs})),
    }  # fmt: skip


def diff_runs(first: str, second: str) -> str:
    """What differs, as text. Raises `UserError` where a path is not one run."""
    a, b = (one_run(pattern) for pattern in (first, second))
    parts = [
        section("settings", compare(a.settings, b.settings, sorted({*a.settings, *b.settings}))),
        section("origin", compare(a.provenance, b.provenance, FACTS)),
        section("commits between", commits_between(a, b)),
        section("metrics", metric_rows(a, b)),
        section("left files" if a.is_foreign or b.is_foreign else "weights", weights(a, b)),
    ]
    names = run_labels(a, b)
    width = max(map(len, names))
    paths = [f"{name:<{width}}  {run.path}" for name, run in zip(names, (a, b), strict=True)]
    return "\n\n".join(["\n".join(paths), *filter(None, parts)])


def run_labels(a: Run, b: Run) -> tuple[str, str]:
    """What two runs are called beside each other: the settings in which they differ, or the seeds.

    Runs with the same settings and seed are called by their folders.
    """
    keys = differing_keys([a, b])
    if not keys and a.seed != b.seed:
        return f"seed {a.seed}", f"seed {b.seed}"
    if not keys:
        return (a.name, b.name) if a.name != b.name else (a.name, f"{b.name} (second)")
    first, second = (shortened(name, LABEL) for name in group_names([[a], [b]], keys))
    return (first, second) if first != second else (f"{first} (first)", f"{second} (second)")


def one_run(pattern: str) -> Run:
    """The run that a path names. Raises `UserError` where it is not one run, or damaged."""
    found = find_runs(pattern)
    if len(found) != 1:
        missing = "is not a run: it has no provenance.json, as every run has"
        problem = f"holds {len(found)} runs: name one of them" if found else missing
        raise UserError(f"{pattern} {problem}")
    try:
        return read_run(found[0])
    except UserError:
        raise
    except Exception as error:  # whatever is in its files
        raise UserError(f"{pattern}: {damage(error)}") from None


def section(title: str, lines: list[str]) -> str:
    """A titled block; empty without lines."""
    return "\n".join([f"{title}:", *(f"  {line}" for line in lines)]) if lines else ""


def compare(a: dict[str, Any], b: dict[str, Any], keys: Any) -> list[str]:
    """The keys whose values differ, as lines."""
    return [f"{key}: {x} -> {y}" for key, (x, y) in differing(a, b, keys).items()]


def differing(a: Mapping[str, Any], b: Mapping[str, Any], keys: Any) -> dict[str, tuple[Any, Any]]:
    """Both values of the keys whose values differ."""
    return {k: (a.get(k), b.get(k)) for k in keys if str(a.get(k)) != str(b.get(k))}


def commits_between(a: Run, b: Run) -> list[str]:
    """The commits and changed files between both, where the repository still holds them."""
    if a.commit == b.commit or not (HASH.fullmatch(a.commit) and HASH.fullmatch(b.commit)):
        return []
    repository = Path(str(a.provenance.get("repository", "")))
    try:
        span = f"{a.commit}..{b.commit}"
        log = git(
            "log", "--oneline", "--no-decorate", "-20", span, "--", folder=repository, foreign=True
        )
        words = ("diff", "--stat", "--no-ext-diff", "--no-textconv")
        changes = git(*words, a.commit, b.commit, "--", folder=repository, foreign=True)
    except (GitError, OSError):
        return [f"{repository} does not hold both commits"]
    return [*log.splitlines(), *changes.splitlines()]


def metric_rows(a: Run, b: Run) -> list[str]:
    """The final values of every metric that both runs have, then those that only one has."""
    first, second = final_metrics(a), final_metrics(b)
    one, other = run_labels(a, b)
    rows = [
        metric_row(name, value, second[name]) for name, value in first.items() if name in second
    ]
    for label, ours, theirs in ((one, first, second), (other, second, first)):
        alone = [name for name in ours if name not in theirs]
        rows += [f"only in {label}: {shortened(', '.join(alone), 200)}"] if alone else []
    return rows


def final_metrics(run: Run) -> dict[str, float]:
    """A run's final values by name; of our own runs those of the refined depth."""
    if run.is_foreign:
        return run.finals
    found = {
        f"{s} {name}": run.metric(s, "refined", name) for s in ("val", "test") for name in METRICS
    }
    return {name: value for name, value in found.items() if value is not None}


def metric_row(name: str, x: float, y: float) -> str:
    """Both values of a metric and their difference."""
    same = x == y or (isnan(x) and isnan(y))
    return f"{name}: {x:.6f} -> {y:.6f} ({'identical' if same else f'{y - x:+.6f}'})"


def weights(a: Run, b: Run) -> list[str]:
    """Whether the best weights, or other scripts' left files, are identical bit by bit."""
    if a.is_foreign or b.is_foreign:
        return left_files(a, b)
    digests = [weights_digest(run) or "none" for run in (a, b)]
    if digests[0] == digests[1] != "none":
        return [f"identical: {digests[0]}"]
    return [f"{digests[0]} -> {digests[1]}"]


def weights_digest(run: Run) -> str | None:
    """The digest of the best weights; None where there are none."""
    path = RunDir(Path(run.path)).weights_digest_file
    return path.read_text().strip() if path.exists() else None


def left_files(a: Run, b: Run) -> list[str]:
    """The files that the jobs left behind, where they differ."""
    ours, theirs = (left_digests(RunDir(Path(run.path))) for run in (a, b))
    names = sorted({*ours, *theirs})
    different = [name for name in names if ours.get(name) != theirs.get(name)]
    if not names:
        return []
    same = f"{len(names) - len(different)} of {len(names)} left files are identical"
    return [same, *(f"{n}: {ours.get(n, 'none')[:12]} -> {theirs.get(n, 'none')[:12]}"
                    for n in different[:MOST_FILES])]  # fmt: skip
