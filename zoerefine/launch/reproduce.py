"""Reproduce: run a recorded job again, and compare its results with the recorded ones.

The first checks run nothing: are the run's files unchanged, does the commit still exist, are
packages, machine and data the same? Then the job runs again, into a run directory beside the
first one, and weights and metrics are compared.
"""

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from typing import Any

from zoerefine.errors import UserError
from zoerefine.files import digest_file
from zoerefine.launch import provenance
from zoerefine.launch.changes import Changes, shortened_list
from zoerefine.launch.environment import package_folders, packages
from zoerefine.launch.git_commands import git
from zoerefine.launch.job_config import parse_config
from zoerefine.launch.job_module import library_facts
from zoerefine.launch.job_words import NO_CONFIG
from zoerefine.launch.launch_plan import Job, LaunchPlan
from zoerefine.launch.mirror import branch_or_tag_with, fetch_commit
from zoerefine.launch.repository_address import parse_address
from zoerefine.launch.result_files import (
    is_time,
    left_digests,
    result_numbers,
    weight_digests,
)
from zoerefine.launch.show import LAUNCH_FACTS
from zoerefine.run_dir import RunDir
from zoerefine.run_metrics import read_metrics

TOLERANCE = 0.02  # relative, between different machines or versions
SAME, DIFFERS, MISMATCH = "same", "differs", "MISMATCH"


@dataclass(frozen=True)
class Comparison:
    """A recorded value and the same value now.

    Attributes:
        verdict: `same`; `differs`, which can change results a little; or `MISMATCH`: this is not
            the recorded job, or not its result.
    """

    what: str
    recorded: str
    now: str
    verdict: str


def recorded_plan(run: RunDir, home: Path, repo: str = "") -> LaunchPlan:
    """The plan of the recorded job, with its commit fetched.

    Args:
        repo: where the repository is now, if it has moved.

    Raises:
        UserError: no launcher started the run, or its commit cannot be fetched any more.
    """
    recorded = run.read_json(run.provenance_file)
    if not recorded.keys() >= LAUNCH_FACTS:
        raise UserError(
            f"{run.path} was not started by `zoerefine run`, so it cannot be reproduced"
        )
    config = run.path / recorded["input"]
    job = Job(
        repo=repo or recorded["repository"],
        ref=recorded["commit"],
        config=NO_CONFIG if recorded["config"] == str(NO_CONFIG) else config,
        module=recorded["module"],
        overrides=tuple(recorded["overrides"]),
        arguments=tuple(recorded["arguments"]),
        config_flag=recorded["config_flag"],
        environment=recorded["environment_kind"],
        caller=Path(recorded["caller"]),
        **added_options(recorded),
    )
    if not config.is_file():
        raise UserError(f"{config} does not exist any more: the run needs its config")
    address = parse_address(job.repo)
    mirror, commit = fetch_commit(address, job.ref, home)
    data = config.read_bytes()
    changes = recorded_changes(run, recorded)
    return LaunchPlan(
        job, address, mirror, commit, changes, data, parse_config(job.config, data), home
    )


def added_options(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a job that runs of earlier versions have not recorded."""
    names = ("cwd", "overrides_in", "again", "metric_pattern", "seed_key", "left_limit_bytes",
             "processes")  # fmt: skip
    return {name: recorded[name] for name in names if name in recorded}


def recorded_changes(run: RunDir, recorded: Mapping[str, Any]) -> Changes:
    """The uncommitted changes that the run was launched with."""
    path = run.path / "uncommitted.patch"
    if not recorded["dirty_digest"]:
        return Changes()
    if not path.is_file():
        raise UserError(f"{path} does not exist any more: the run needs its uncommitted changes")
    return Changes(path.read_bytes(), recorded["tree"], tuple(recorded["dirty_files"]))


def check_run(run: RunDir, plan: LaunchPlan) -> Iterator[Comparison]:
    """Whether the run's own files are what they were when it ended."""
    recorded = run.read_json(run.provenance_file)
    yield compare("identity in provenance.json", recorded["identity"], plan.identity, MISMATCH)
    if "-again" not in run.path.name:  # which `reproduce` adds for its own runs
        yield compare("run directory's name", run.path.name, plan.run_name, MISMATCH)
    config = sha256(plan.config).hexdigest()
    yield compare(recorded["input"], recorded["input_digest"], config, MISMATCH)
    yield compare("uncommitted.patch", recorded["dirty_digest"], plan.changes.digest, MISMATCH)
    for file, digest in recorded.get("outputs", {}).items():
        path = run.path / file
        now = digest_file(path) if path.is_file() else "missing"
        yield compare(file, digest, now, MISMATCH)


def check_commit(run: RunDir, plan: LaunchPlan) -> Iterator[Comparison]:
    """Whether the commit is the recorded one, and whether a branch or tag still contains it."""
    recorded = run.read_json(run.provenance_file)
    tree = git("rev-parse", f"{plan.commit}^{{tree}}", folder=plan.mirror)
    if not plan.changes.patch:
        yield compare("the commit's tree", recorded["tree"], tree, MISMATCH)
    name = branch_or_tag_with(plan.address, plan.mirror, plan.commit)
    missing = (
        "history was rewritten: no branch or tag contains the commit any more, only our mirror"
    )
    yield Comparison("commit", plan.commit, name or missing, SAME if name else DIFFERS)


def check_machine(run: RunDir) -> Iterator[Comparison]:
    """Whether Python, packages and processors are the same."""
    recorded = run.read_json(run.provenance_file)
    now = provenance.machine_facts()
    current = recorded["environment_kind"] == "current"
    for name in ("python", "cpu", "cores", *(["environment_digest"] if current else [])):
        yield compare(name, str(recorded.get(name)), str(now[name]), DIFFERS)
    if current:
        yield from check_packages(run)
        yield from check_library(recorded)
    gpus = (", ".join(recorded.get("gpu", [])), ", ".join(provenance.query_gpus("name")))
    yield compare("gpu", *gpus, DIFFERS)


def check_library(recorded: Mapping[str, Any]) -> Iterator[Comparison]:
    """Whether the installed zoerefine is the same, for a script that may import it."""
    if library := recorded.get("library"):
        now = library_facts(Path(os.devnull), os.environ, package_folders(Path(sys.executable)))
        digest = now.get("library", {}).get("digest", "absent")
        yield compare("zoerefine's modules", str(library["digest"]), digest, DIFFERS)


def check_packages(run: RunDir) -> Iterator[Comparison]:
    """The packages whose versions differ."""
    path = run.path / "environment.txt"
    recorded = dict(x.split("==", 1) for x in path.read_text().split()) if path.is_file() else {}
    now = dict(x.split("==", 1) for x in packages(Path(sys.executable)))
    for name in sorted({*recorded, *now}):
        if recorded.get(name) != now.get(name):
            versions = recorded.get(name, "absent"), now.get(name, "absent")
            yield Comparison(f"package {name}", *versions, DIFFERS)


def check_data(run: RunDir, digests_now: Callable[[], Mapping[str, str]]) -> Iterator[Comparison]:
    """Whether the data set is the same."""
    recorded = run.read_json(run.provenance_file)
    if "dataset_digest" not in recorded:
        return
    for name, digest in digests_now().items():
        yield compare(name, str(recorded.get(name)), digest, MISMATCH)


def compare(what: str, recorded: str, now: str, otherwise: str) -> Comparison:
    """Compare two texts; `otherwise` is the verdict where they differ."""
    return Comparison(what, recorded, now, SAME if recorded == now else otherwise)


def compare_results(
    first: RunDir, again: RunDir, tolerance: float, patterns: Sequence[str] = ()
) -> list[Comparison]:
    """Compare weights and chosen left files by their digests, and every metric.

    Args:
        patterns: which left files to compare, e.g. `*.pt`.
        tolerance: the relative difference that metrics may have, on another machine or with other
            versions. With a tolerance weights may differ. 0: everything must be bit-exact.
    """
    comparisons = []
    before = weight_digests(first) | matching_files(first, patterns)
    after = weight_digests(again) | left_digests(again)
    for name, digest in before.items():
        otherwise = DIFFERS if tolerance else MISMATCH
        comparisons.append(compare(name, digest, after.get(name, "absent"), otherwise))
    recorded, repeated = compared_numbers(first), compared_numbers(again)
    for name, value in recorded.items():
        comparisons.append(compare_numbers(name, value, repeated.get(name), tolerance))
    return comparisons or compare_files(first, again)


def compared_numbers(run: RunDir) -> dict[str, float]:
    """Every number that a repetition must give again.

    Of another repository's script these are its metrics, at every step.
    """
    numbers = result_numbers(run)
    recorded = run.read_json(run.provenance_file)
    if provenance.is_own_training(recorded):
        return numbers
    metrics = read_metrics(run)
    numbers |= {name: value for name, value in metrics.final.items() if not is_time(name)}
    for name, series in metrics.series.items():
        if not is_time(name):
            points = zip(series.steps, series.values, strict=True)
            numbers |= {f"{name} at step {step:g}": value for step, value in points}
    return numbers


def compare_numbers(name: str, recorded: float, now: float | None, tolerance: float) -> Comparison:
    """Compare a number with that of the repetition; None: it is absent there."""
    if now is None:
        return Comparison(name, f"{recorded:.8g}", "absent", MISMATCH)
    if recorded == now or (math.isnan(recorded) and math.isnan(now)):
        return Comparison(name, f"{recorded:.8g}", f"{now:.8g}", SAME)
    close = math.isclose(recorded, now, rel_tol=tolerance, abs_tol=1e-9 if tolerance else 0.0)
    shown = f"{now:.8g} ({now - recorded:+.2g})"
    return Comparison(name, f"{recorded:.8g}", shown, DIFFERS if close else MISMATCH)


def matching_files(run: RunDir, patterns: Sequence[str]) -> dict[str, str]:
    """The digests of the left files that match a pattern.

    Raises `UserError` where a pattern matches none.
    """
    files = left_digests(run)
    found: dict[str, str] = {}
    for pattern in patterns:
        matched = {name: digest for name, digest in files.items() if fnmatch(name, pattern)}
        if not matched:
            known = shortened_list(list(files)) or "none"
            raise UserError(f"--compare {pattern} matches no left file; there are: {known}")
        found |= matched
    return found


def compare_files(first: RunDir, again: RunDir) -> list[Comparison]:
    """Compare result files by digest, for a job without weights and metrics."""
    recorded = first.read_json(first.provenance_file).get("outputs", {})
    now = again.read_json(again.provenance_file).get("outputs", {})
    return [
        compare(name, digest, now.get(name, "absent"), MISMATCH)
        for name, digest in recorded.items()
    ]


def next_run_dir(run: RunDir, fresh: bool) -> RunDir:
    """Where the job runs again, beside the first run: <id>-again<n>.

    Args:
        fresh: use a new directory; otherwise the last one is used again.
    """
    number = 1
    while (path := run.path.with_name(f"{run.path.name}-again{number}")).exists():
        if not fresh and not run.path.with_name(f"{run.path.name}-again{number + 1}").exists():
            break
        number += 1
    return RunDir(path)
