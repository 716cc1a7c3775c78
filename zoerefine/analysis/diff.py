"""The differences of two runs: config, commit, environment, data, metrics, weights."""

import re
from pathlib import Path
from typing import Any

from zoerefine.analysis.collect import DAMAGE, find_runs
from zoerefine.analysis.run_record import Run, read_run
from zoerefine.errors import UserError
from zoerefine.launch.git_commands import GitError, git
from zoerefine.metrics import NAMES
from zoerefine.run_dir import RunDir

FACTS = ("commit", "dirty_digest", "dataset_digest", "cache_digest", "environment_digest",
         "python", "torch", "host", "seed")  # fmt: skip
HASH = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def diff_runs(first: str, second: str) -> str:
    """What differs, as text. Raises `UserError` where a path is not one run."""
    a, b = (one_run(pattern) for pattern in (first, second))
    parts = [
        section("settings", compare(a.settings, b.settings, sorted({*a.settings, *b.settings}))),
        section("origin", compare(a.provenance, b.provenance, FACTS)),
        section("commits between", commits_between(a, b)),
        section("metrics", metric_rows(a, b)),
        section("weights", weights(a, b)),
    ]
    return "\n\n".join([f"A  {a.path}\nB  {b.path}", *filter(None, parts)])


def one_run(pattern: str) -> Run:
    """The run that a path names. Raises `UserError` where it is not one run, or damaged."""
    found = find_runs(pattern)
    if len(found) != 1:
        problem = f"holds {len(found)} runs: name one of them" if found else "is not a run"
        raise UserError(f"{pattern} {problem}")
    try:
        return read_run(found[0])
    except UserError:
        raise
    except DAMAGE as error:
        raise UserError(f"{pattern} is damaged: {error}") from None


def section(title: str, lines: list[str]) -> str:
    """A titled block; empty without lines."""
    return "\n".join([f"{title}:", *(f"  {line}" for line in lines)]) if lines else ""


def compare(a: dict[str, Any], b: dict[str, Any], keys: Any) -> list[str]:
    """The keys whose values differ."""
    return [f"{k}: {a.get(k)} -> {b.get(k)}" for k in keys if str(a.get(k)) != str(b.get(k))]


def commits_between(a: Run, b: Run) -> list[str]:
    """The commits and changed files between both, where the repository still holds them."""
    if a.commit == b.commit or not (HASH.fullmatch(a.commit) and HASH.fullmatch(b.commit)):
        return []
    repository = Path(str(a.provenance.get("repository", "")))
    try:
        span = f"{a.commit}..{b.commit}"
        log = git("log", "--oneline", "--no-decorate", "-20", span, "--", folder=repository)
        changes = git("diff", "--stat", a.commit, b.commit, "--", folder=repository)
    except (GitError, OSError):
        return [f"{repository} does not hold both commits"]
    return [*log.splitlines(), *changes.splitlines()]


def metric_rows(a: Run, b: Run) -> list[str]:
    """Every metric that both runs have, on each split."""
    rows = []
    for split in ("val", "test"):
        for name in NAMES:
            x, y = (run.metric(split, "refined", name) for run in (a, b))
            if x is not None and y is not None:
                same = "identical" if x == y else f"{y - x:+.6f}"
                rows.append(f"{split} {name}: {x:.6f} -> {y:.6f} ({same})")
    return rows


def weights(a: Run, b: Run) -> list[str]:
    """Whether the best weights are identical bit by bit."""
    digests = []
    for run in (a, b):
        path = RunDir(Path(run.path)).weights_digest_file
        digests.append(path.read_text().strip() if path.exists() else "none")
    if digests[0] == digests[1] != "none":
        return [f"identical: {digests[0]}"]
    return [f"{digests[0]} -> {digests[1]}"]
