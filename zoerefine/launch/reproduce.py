"""Reproduce: the recorded job again, and a verdict on whether it came to the same.

First what can be checked without running anything: are the run's own files as they were, does the
commit still exist, are packages, machine and data the same? Then the job runs again into a run
directory beside the first, and weights and metrics are compared.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from zoerefine.errors import UserError
from zoerefine.files import digest_file
from zoerefine.launch import provenance
from zoerefine.launch.changes import Changes
from zoerefine.launch.environment import packages
from zoerefine.launch.git_commands import git
from zoerefine.launch.launcher import Job, LaunchPlan, read_tree
from zoerefine.launch.repository import fetch_commit, named_by
from zoerefine.launch.repository_address import open_source
from zoerefine.launch.result_files import numbers, weights
from zoerefine.run_dir import RunDir

TOLERANCE = 0.02  # relative, between different machines or versions
SAME, DIFFERS, BROKEN = "same", "differs", "broken"


@dataclass(frozen=True)
class Comparison:
    """One comparison of what was recorded with what is now.

    `verdict` is `same`; `differs`: numbers may come out a little different; or `broken`: this
    is not the recorded job any more.
    """

    what: str
    recorded: str
    now: str
    verdict: str


def recorded_plan(run: RunDir, home: Path, repo: str = "") -> LaunchPlan:
    """The job as provenance.json tells it, its commit fetched.

    Args:
        repo: where the repository is now, if not where it was.

    Raises:
        UserError: the run was not launched, or its commit cannot be had any more.
    """
    known = run.read_json(run.provenance_file)
    if "module" not in known:
        raise UserError(f"{run.path} was not launched from a commit: it cannot be run again so")
    config = run.path / known["input"]
    job = Job(
        repo=repo or known["repository"],
        ref=known["commit"],
        config=config,
        module=known["module"],
        overrides=tuple(known["overrides"]),
        arguments=tuple(known["arguments"]),
        config_flag=known["config_flag"],
        environment=known["environment_kind"],
        caller=Path(known["caller"]),
    )
    if not config.is_file():
        raise UserError(f"{config} is gone: the run cannot be run again without its config")
    source = open_source(job.repo)
    mirror, commit = fetch_commit(source, job.ref, home)
    data = config.read_bytes()
    tree = read_tree(config, data)
    return LaunchPlan(job, source, mirror, commit, recorded_changes(run, known), data, tree, home)


def recorded_changes(run: RunDir, known: Mapping[str, Any]) -> Changes:
    """The uncommitted changes that the run was launched with."""
    path = run.path / "uncommitted.patch"
    if not known["dirty_digest"]:
        return Changes()
    if not path.is_file():
        raise UserError(f"{path} is gone: the run had uncommitted changes, and they are lost")
    return Changes(path.read_bytes(), known["tree"], tuple(known["dirty_files"]))


def check_run(run: RunDir, plan: LaunchPlan) -> Iterator[Comparison]:
    """Whether the run's own files are what they were when it ended."""
    known = run.read_json(run.provenance_file)
    yield compare("what provenance.json says", known["identity"], plan.identity, BROKEN)
    name = run.path.name.split("-")
    if len(name) == 2:
        yield compare("run directory's name", "-".join(name), of_plan(plan), BROKEN)
    config = sha256(plan.config).hexdigest()
    yield compare(known["input"], known["input_digest"], config, BROKEN)
    yield compare("uncommitted.patch", known["dirty_digest"], plan.changes.digest, BROKEN)
    for file, digest in known.get("outputs", {}).items():
        path = run.path / file
        now = digest_file(path) if path.is_file() else "gone"
        yield compare(file, digest, now, BROKEN)


def of_plan(plan: LaunchPlan) -> str:
    """The name of a plan's run directory."""
    return f"{plan.commit[:8]}-{plan.identity[:8]}"


def check_commit(run: RunDir, plan: LaunchPlan) -> Iterator[Comparison]:
    """Whether the commit is the recorded one, and still part of the repository's history."""
    known = run.read_json(run.provenance_file)
    tree = git("rev-parse", f"{plan.commit}^{{tree}}", folder=plan.mirror)
    if not plan.changes.patch:
        yield compare("the commit's tree", known["tree"], tree, BROKEN)
    names = named_by(plan.source, plan.mirror, plan.commit)
    gone = "no branch or tag holds it any more: history was rewritten; our mirror still does"
    yield Comparison("commit", plan.commit, names or gone, SAME if names else DIFFERS)


def check_machine(run: RunDir) -> Iterator[Comparison]:
    """Whether Python, packages and processors are the same."""
    known = run.read_json(run.provenance_file)
    now = provenance.machine_facts()
    names = ["python", "cpu", "cores"]
    if known["environment_kind"] == "current":
        names.append("environment_digest")
    for name in names:
        yield compare(name, str(known.get(name)), str(now[name]), DIFFERS)
    if known["environment_kind"] == "current":
        yield from check_packages(run)
    gpus = (", ".join(known.get("gpu", [])), ", ".join(provenance.ask_gpus("name")))
    yield compare("gpu", *gpus, DIFFERS)


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
    known = run.read_json(run.provenance_file)
    if "dataset_digest" not in known:
        return
    for name, digest in digests_now().items():
        verdict = BROKEN if name == "dataset_digest" else DIFFERS
        yield compare(name, str(known.get(name)), digest, verdict)


def compare(what: str, recorded: str, now: str, otherwise: str) -> Comparison:
    """A check that two texts are the same."""
    return Comparison(what, recorded, now, SAME if recorded == now else otherwise)


def compare_results(first: RunDir, again: RunDir, tolerance: float) -> list[Comparison]:
    """Weights by their bits, every metric exactly or within a relative tolerance.

    With a tolerance, weights may differ: on other hardware they do.
    """
    checks = []
    theirs, ours = weights(first), weights(again)
    for name, digest in theirs.items():
        otherwise = DIFFERS if tolerance else BROKEN
        checks.append(compare(name, digest, ours.get(name, "absent"), otherwise))
    before, after = numbers(first), numbers(again)
    for name, value in before.items():
        now = after.get(name, math.nan)
        close = math.isclose(value, now, rel_tol=tolerance, abs_tol=1e-9 if tolerance else 0.0)
        same = value == now or (math.isnan(value) and math.isnan(now) and name in after)
        verdict = SAME if same else DIFFERS if close else BROKEN
        checks.append(Comparison(name, f"{value:.8g}", f"{now:.8g}", verdict))
    if not checks:
        checks = compare_files(first, again)
    return checks


def compare_files(first: RunDir, again: RunDir) -> list[Comparison]:
    """What a job of another kind left, by digest."""
    recorded = first.read_json(first.provenance_file).get("outputs", {})
    now = again.read_json(again.provenance_file).get("outputs", {})
    return [
        compare(name, digest, now.get(name, "absent"), BROKEN) for name, digest in recorded.items()
    ]


def next_place(run: RunDir, fresh: bool) -> RunDir:
    """Where the job runs again: beside the first run, the last such place unless `fresh`."""
    number = 1
    while (place := run.path.with_name(f"{run.path.name}-again{number}")).exists():
        if not fresh and not run.path.with_name(f"{run.path.name}-again{number + 1}").exists():
            break
        number += 1
    return RunDir(place)
