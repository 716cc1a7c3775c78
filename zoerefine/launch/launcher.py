"""Launch: a commit, a config and a module become one recorded run."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from zoerefine.config import CALLER_FOLDER, read_yaml
from zoerefine.errors import UserError
from zoerefine.files import digest_json, replacing, write_text
from zoerefine.launch import provenance
from zoerefine.launch.process import run_child
from zoerefine.launch.repository import fetch_commit, open_source
from zoerefine.launch.workspace import take_diff, workspace
from zoerefine.progress import say
from zoerefine.run_dir import RUN_FOLDER, RunDir


@dataclass(frozen=True)
class Job:
    """What to launch.

    Attributes:
        repo: a folder or URL.
        ref: a commit, tag or branch.
        config: the YAML file that the module is given.
        module: `package.module`, or the path of a script inside the repository.
        overrides: KEY VALUE words passed on behind the config.
        config_flag: the option by which the module takes its config.
        branch: if not empty, the commit must be on it.
        allow_dirty: record uncommitted changes of a local source and apply them.
    """

    repo: str
    ref: str
    config: Path
    module: str = "zoerefine.train"
    overrides: tuple[str, ...] = ()
    config_flag: str = "--config"
    branch: str = ""
    allow_dirty: bool = False


def default_home() -> Path:
    """Where mirrors and workspaces live: $ZOEREFINE_HOME, or the user's cache folder."""
    if home := os.environ.get("ZOEREFINE_HOME"):
        return Path(home)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "zoerefine"


def launch(job: Job, runs: Path, home: Path) -> tuple[RunDir, int]:
    """Run a job in a workspace at its commit; returns the run and the job's exit code.

    The same job finds its run again: a finished one is left as it is, another goes on.

    Raises:
        UserError: anything that is wrong before the job's first line runs.
    """
    if len(job.overrides) % 2:
        raise UserError(f"overrides come as KEY VALUE pairs; {job.overrides[-1]!r} has no value")
    tree = read_yaml(job.config)
    source = open_source(job.repo)
    mirror, commit = fetch_commit(source, job.ref, home, job.branch)
    diff = take_diff(source, commit, job.allow_dirty)
    identity = [commit, diff.digest, tree, job.module, job.overrides, job.config_flag]
    name = run_name(tree, job.overrides, job.config)
    run = RunDir((runs / name / f"{commit[:8]}-{digest_json(identity)[:8]}").resolve())
    if run.status().state == "finished":
        say(f"{run.path} is finished: nothing to do")
        return run, 0
    with run.locked() as lock, workspace(source, mirror, commit, diff, home) as folder:
        command = child_command(job, folder, run)
        write_text(run.path / "input.yaml", job.config.read_text(encoding="utf-8"))
        if diff.patch:
            with replacing(run.path / "uncommitted.patch") as path:
                path.write_bytes(diff.patch)
        provenance.add(
            run,
            repository=source.shown,
            ref=job.ref,
            commit=commit,
            dirty_digest=diff.digest,
            module=job.module,
            config=str(job.config.resolve()),
            config_flag=job.config_flag,
            overrides=list(job.overrides),
            launch_argv=sys.argv,
            **provenance.machine_facts(),
        )
        say(f"commit {commit[:12]} of {source.shown} runs in {folder}")
        say(f"writing to {run.path}")
        code = run_child(command, folder, child_environment(folder, run), run, lock)
    point_to_latest(run)
    return run, code


def run_name(tree: dict[str, Any], overrides: Sequence[str], config: Path) -> str:
    """RUN.NAME as the job will see it, else the config file's name."""
    name = config.stem
    if isinstance(tree.get("RUN"), dict):
        name = str(tree["RUN"].get("NAME", name))
    for key, value in zip(overrides[::2], overrides[1::2], strict=True):
        if key == "RUN.NAME":
            name = str(yaml.safe_load(value))
    if not name or "/" in name or name.startswith("."):
        raise UserError(f"RUN.NAME {name!r} cannot be a folder's name")
    return name


def child_command(job: Job, folder: Path, run: RunDir) -> list[str]:
    """The job's command line: a script of the workspace, or a module."""
    if job.module.endswith(".py"):
        script = (folder / job.module).resolve()
        if not script.is_relative_to(folder.resolve()) or not script.is_file():
            raise UserError(f"the commit has no script {job.module}: check --module")
        program = [str(script)]
    elif all(part.isidentifier() for part in job.module.split(".")):
        program = ["-m", job.module]
    else:
        raise UserError(f"--module {job.module!r} is neither a script's path nor a module's name")
    return [sys.executable, *program, job.config_flag, str(run.path / "input.yaml"), *job.overrides]


def child_environment(folder: Path, run: RunDir) -> dict[str, str]:
    """The launcher's environment, the workspace before everything else on the module path."""
    environment = dict(os.environ)
    paths = [str(folder), environment.get("PYTHONPATH", "")]
    environment |= {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONUNBUFFERED": "1",
        "PYTHONHASHSEED": "0",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        CALLER_FOLDER: os.getcwd(),
        RUN_FOLDER: str(run.path),
    }
    return environment


def point_to_latest(run: RunDir) -> None:
    """Let runs/<name>/latest name this run."""
    link = run.path.parent / f".latest.{os.getpid()}"
    link.symlink_to(run.path.name)
    os.replace(link, run.path.parent / "latest")
