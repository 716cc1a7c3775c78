"""Reproduce: run a recorded job again, and compare its results with the recorded ones.

The first checks run nothing: are the run's files unchanged, does the commit still exist, are
packages, machine and data the same? Then the job runs again, into a run directory beside the
first one, and weights and metrics are compared.
"""

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_file, digest_json
from zoerefine.base.run_dir import RunDir
from zoerefine.base.yaml.equal_values import differing
from zoerefine.lab.launch.git.address import parse_address
from zoerefine.lab.launch.git.changes import Changes
from zoerefine.lab.launch.git.commands import git
from zoerefine.lab.launch.git.mirror import branch_or_tag_with
from zoerefine.lab.launch.included import read_included
from zoerefine.lab.launch.job import recorded_job
from zoerefine.lab.launch.plan import LaunchPlan, kept_plan
from zoerefine.lab.launch.record import provenance
from zoerefine.lab.launch.record.comparison import DIFFERS, MISMATCH, SAME, Comparison, compare
from zoerefine.lab.launch.record.provenance import library_facts
from zoerefine.lab.launch.record.show import LAUNCH_FACTS
from zoerefine.lab.launch.workspace.workspace import Inputs, read_inputs


def recorded_plan(run: RunDir, home: Path, repo: str = "") -> LaunchPlan:
    """The plan of the recorded job, with its commit fetched.

    Args:
        repo: where the repository is now, if it has moved.

    Raises `UserError` where no launcher started the run, or its commit cannot be fetched any more.
    """
    recorded = run.read_json(run.provenance_file)
    if not recorded.keys() >= LAUNCH_FACTS:
        how = own_command(run, recorded)
        raise UserError(
            f"{run.path} was not started by `zoerefine run`, so it cannot be reproduced{how}"
        )
    repo = repo or recorded_place(recorded)
    job = recorded_job(run, {**recorded, "repository": repo})
    config = run.path / recorded["input"]
    if not config.is_file():
        raise UserError(f"{config} does not exist any more: the run needs its config")
    changes, included = recorded_changes(run, recorded), read_included(run.path)
    return kept_plan(job, config.read_bytes(), changes, included, home)


def recorded_place(recorded: Mapping[str, Any]) -> str:
    """The recorded address of the repository. Raises `UserError` where nothing can be there."""
    place: str = recorded["repository"]
    try:
        parse_address(place)
    except UserError:
        raise UserError(
            f"the repository is no longer at {place}: give --repo with its new place"
        ) from None
    return place


def own_command(run: RunDir, recorded: Mapping[str, Any]) -> str:
    """How to repeat a study's trial, or to train a run of ours again that no launcher started;
    empty where it is not known."""
    if (run.path / "trials").is_dir():
        return f": give one of its trials, in {run.path / 'trials'}"
    if not run.config_file.is_file() or not recorded.get("commit"):
        return ""
    words = ["zoerefine", "run", "--repo", ".", "--commit", recorded["commit"]]
    command = shlex.join([*words, "--config", str(run.config_file)])
    return f": train its config at its commit: {command}"


def recorded_changes(run: RunDir, recorded: Mapping[str, Any]) -> Changes:
    """The uncommitted changes that the run was launched with."""
    path = run.path / "uncommitted.patch"
    if not recorded["dirty_digest"]:
        return Changes()
    if not path.is_file():
        raise UserError(f"{path} does not exist any more: the run needs its uncommitted changes")
    return Changes(path.read_bytes(), recorded["tree"], tuple(recorded["dirty_files"]))


def check_run(run: RunDir, plan: LaunchPlan) -> Iterator[Comparison]:
    """Whether the run's own files are what they were when it ended, and its inputs, too."""
    recorded = run.read_json(run.provenance_file)
    for name, digest in files_of(read_inputs(run)).items():
        yield compare(name, digest, files_of(plan.inputs).get(name, "missing"), MISMATCH)
    for name, text in plan.included.copies.items():
        if name.startswith("/"):  # the job reads it where it is
            now = Path(name).read_text() if Path(name).is_file() else "missing"
            yield compare(name, digest_json(text), digest_json(now), MISMATCH)
    yield compare("identity in provenance.json", recorded["identity"], plan.identity, MISMATCH)
    # The launcher has named it: trials have numbers, our repetitions `-again<n>`.
    if run.path.parent.name != "trials" and "-again" not in run.path.name:
        yield compare("run directory's name", run.path.name, plan.run_name, MISMATCH)
    config = sha256(plan.config).hexdigest()
    yield compare(recorded["input"], recorded["input_digest"], config, MISMATCH)
    yield compare("uncommitted.patch", recorded["dirty_digest"], plan.changes.digest, MISMATCH)
    for file, digest in recorded.get("outputs", {}).items():
        path = run.path / file
        now = digest_file(path) if path.is_file() else "missing"
        yield compare(file, digest, now, MISMATCH)


def files_of(inputs: Inputs) -> dict[str, str]:
    """The digests of input files by their paths in the workspace."""
    return {name: digest for files in inputs.values() for name, digest in files.items()}


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


def recorded_variables(run: RunDir) -> dict[str, str]:
    """The variables that decided the run."""
    found: dict[str, str] = run.read_json(run.provenance_file).get("variables", {})
    return found


def check_library(recorded: Mapping[str, Any]) -> Iterator[Comparison]:
    """Whether the installed zoerefine is the same, for a script that may import it."""
    if library := recorded.get("library"):
        now = library_facts(Path(os.devnull), os.environ, Path(sys.executable))
        digest = now.get("library", {}).get("digest", "absent")
        yield compare("zoerefine's modules", str(library["digest"]), digest, DIFFERS)


def check_packages(run: RunDir) -> Iterator[Comparison]:
    """The packages whose versions differ."""
    path = run.path / "environment.txt"
    recorded = dict(x.split("==", 1) for x in path.read_text().split()) if path.is_file() else {}
    now = dict(x.split("==", 1) for x in provenance.packages(Path(sys.executable)))
    for name, (before, after) in sorted(differing(recorded, now).items()):
        yield Comparison(f"package {name}", before or "absent", after or "absent", DIFFERS)


def check_data(run: RunDir, digests_now: Callable[[], Mapping[str, str]]) -> Iterator[Comparison]:
    """Whether the data set is the same."""
    recorded = run.read_json(run.provenance_file)
    if "dataset_digest" not in recorded:
        return
    for name, digest in digests_now().items():
        yield compare(name, str(recorded.get(name)), digest, MISMATCH)


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
