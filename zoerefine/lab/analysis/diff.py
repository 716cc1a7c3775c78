"""The differences of two runs: config, commit, environment, data, metrics, weights."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError, damage
from zoerefine.base.registries import METRICS
from zoerefine.base.run_dir import RunDir
from zoerefine.base.yaml.equal_values import differing, exact_text_at
from zoerefine.lab.analysis.group_names import group_names, metric_texts, shortened
from zoerefine.lab.analysis.groups import without_code
from zoerefine.lab.launch.git.commands import GitError, git
from zoerefine.lab.launch.record.comparison import left_digests
from zoerefine.lab.runs.find import find_runs
from zoerefine.lab.runs.metrics.steps import same_number
from zoerefine.lab.runs.read import read_run
from zoerefine.lab.runs.record import Run, differing_keys

FACTS = ("commit", "dirty_digest", "dataset_digest", "cache_digest", "environment_digest",
         "python", "torch", "host", "seed")  # fmt: skip
LABEL = 36  # characters of a run's label
MOST_FILES = 20  # that are named
HASH = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def diff_facts(a: Run, b: Run) -> dict[str, Any]:
    """What differs, for programs: pairs of a's and b's value, None where one has none."""
    labels = run_labels(a, b)
    here, there = ({key: run.provenance.get(key) for key in FACTS} for run in (a, b))
    settings = [without_code(all_settings(run)) for run in (a, b)]
    left, also_left = (left_digests(RunDir(Path(run.path))) for run in (a, b))
    ours, theirs = final_metrics(a), final_metrics(b)
    return {
        "runs": [{"path": r.path, "label": label} for r, label in zip((a, b), labels, strict=True)],
        "settings": dict(sorted(differing(settings[0], settings[1]).items())),
        "origin": differing(here, there),
        "commits_between": commits_between(a, b),
        "metrics": {name: (ours.get(name), theirs.get(name)) for name in {**ours, **theirs}},
        "weights": [RunDir(Path(run.path)).weights_digest() or None for run in (a, b)],
        "left_files": dict(sorted(differing(left, also_left).items())),
    }


def diff_runs(first: str, second: str) -> str:
    """What differs, as text. Raises `UserError` where a path is not one run."""
    a, b = (one_run(pattern) for pattern in (first, second))
    facts = diff_facts(a, b)
    is_foreign = a.is_foreign or b.is_foreign
    parts = [
        section("settings", as_lines(facts["settings"], all_settings(a), all_settings(b))),
        section("origin", as_lines(facts["origin"])),
        section("commits between", facts["commits_between"]),
        section("metrics", metric_rows(facts)),
        section("left files", left_files(a, facts["left_files"])) if is_foreign
        else section("weights", weights(*facts["weights"])),
    ]  # fmt: skip
    width = max(len(run["label"]) for run in facts["runs"])
    paths = [f"{run['label']:<{width}}  {run['path']}" for run in facts["runs"]]
    return "\n\n".join(["\n".join(paths), *filter(None, parts)])


def all_settings(run: Run) -> dict[str, Any]:
    """A run's settings; those of a script with its seed, which is in the origin of our own runs."""
    return run.named_settings if run.is_foreign else run.settings


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


def as_lines(found: Mapping[str, tuple[Any, Any]], *trees: Mapping[str, Any]) -> list[str]:
    """Both values of keys as lines.

    Args:
        trees: both settings; values with one text are shown as there.
    """
    lines = []
    for key, (x, y) in found.items():
        texts = [str(x), str(y)]
        if texts[0] == texts[1]:
            pair = trees or ({key: x}, {key: y})
            texts = [exact_text_at(tree, key) or "no such key" for tree in pair]
        lines.append(f"{key}: {' -> '.join(texts)}")
    return lines


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


def metric_rows(facts: Mapping[str, Any]) -> list[str]:
    """The final values of every metric that both runs have, then those that only one has."""
    found = facts["metrics"]
    rows = [metric_row(k, x, y) for k, (x, y) in found.items() if x is not None and y is not None]
    for run, other in ((0, 1), (1, 0)):
        alone = [name for name, values in found.items() if values[other] is None]
        label = facts["runs"][run]["label"]
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
    before, after, change = metric_texts([x, y, y - x], decimals=6, digits=2, every=True)
    change = "identical" if same_number(x, y) else f"{'+' * (y > x)}{change}"
    return f"{name}: {before} -> {after} ({change})"


def weights(a: str | None, b: str | None) -> list[str]:
    """Whether the best weights are identical bit by bit."""
    return [f"identical: {a}" if a and a == b else f"{a or 'none'} -> {b or 'none'}"]


def left_files(a: Run, different: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """How many of the files that the jobs left behind are identical, and those that differ."""
    same = len(left_digests(RunDir(Path(a.path))).keys() - different.keys())
    count = same + len(different)
    lines = [f"{same} of {count} left files are identical"] if count else []
    some = [*different.items()][:MOST_FILES]
    return lines + [f"{k}: {(x or 'none')[:12]} -> {(y or 'none')[:12]}" for k, (x, y) in some]
