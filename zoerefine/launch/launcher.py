"""Launch: a commit, a config and a module become one recorded run."""

import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from zoerefine.errors import UserError
from zoerefine.files import digest_json, replacing
from zoerefine.launch import provenance
from zoerefine.launch.changes import Changes, take_changes
from zoerefine.launch.child_process import run_child
from zoerefine.launch.environment import job_environment, job_python
from zoerefine.launch.git_commands import GitError, git, git_bytes
from zoerefine.launch.redaction import find_secret
from zoerefine.launch.repository import fetch_commit, using
from zoerefine.launch.repository_address import RepositoryAddress, open_source
from zoerefine.launch.workspace import workspace
from zoerefine.progress import say
from zoerefine.run_dir import RunDir

PATIENCE_S = 15.0  # for a job to end whose launcher was killed
YAML = (".yaml", ".yml")


@dataclass(frozen=True)
class Job:
    """What to launch.

    Attributes:
        repo: a folder or URL.
        ref: a commit, tag or branch.
        config: the file that the module is given: one here, or else one of the commit.
        module: `package.module`, or the path of a script inside the repository.
        overrides: KEY VALUE words passed on behind the config.
        arguments: more words for the module, before the overrides.
        config_flag: the option by which the module takes its config.
        branch: if not empty, the commit must be on it.
        allow_dirty: record uncommitted changes of a local source and apply them.
        environment: `current`, or `venv`: made from the commit's own lock file.
        caller: relative paths in the config start here.
    """

    repo: str
    ref: str
    config: Path
    module: str = "zoerefine.train"
    overrides: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    config_flag: str = "--config"
    branch: str = ""
    allow_dirty: bool = False
    environment: str = "current"
    caller: Path = field(default_factory=Path.cwd)


@dataclass(frozen=True)
class LaunchPlan:
    """A job with everything that could be looked up: what it is known by, and what it needs."""

    job: Job
    source: RepositoryAddress
    mirror: Path
    commit: str
    changes: Changes
    config: bytes
    tree: dict[str, Any]
    home: Path

    @property
    def identity(self) -> str:
        """The same job has the same one: SHA-256 of what decides what runs."""
        job = self.job
        config = self.tree or self.config.hex()
        what = [self.commit, self.changes.digest, config, job.module, job.overrides]
        return digest_json([*what, job.config_flag, job.arguments, job.environment])

    @property
    def name(self) -> str:
        """RUN.NAME as the job will see it, else the config file's name."""
        name = str(setting(self.tree, self.job.overrides, "RUN.NAME") or self.job.config.stem)
        if not name or "/" in name or name.startswith(".") or not name.isprintable():
            raise UserError(f"RUN.NAME {name!r} cannot be a folder's name")
        return name

    @property
    def seed(self) -> int:
        """SEED as the job will see it, else 0."""
        seed = setting(self.tree, self.job.overrides, "SEED")
        return seed if isinstance(seed, int) and not isinstance(seed, bool) else 0

    def run(self, runs: Path | None) -> RunDir:
        """Where this job's run lies: below `runs`, or RUN.ROOT, or ./runs."""
        root = setting(self.tree, self.job.overrides, "RUN.ROOT")
        runs = runs or self.job.caller / (root if isinstance(root, str) and root else "runs")
        return RunDir((runs / self.name / f"{self.commit[:8]}-{self.identity[:8]}").resolve())

    @property
    def input_name(self) -> str:
        """What the config is called in the run: input.yaml, or input with its own ending."""
        suffix = self.job.config.suffix
        return "input.yaml" if suffix in YAML else f"input{suffix}"


def default_home() -> Path:
    """Where mirrors and workspaces live: $ZOEREFINE_HOME, or the user's cache folder."""
    if home := os.environ.get("ZOEREFINE_HOME"):
        return Path(home).expanduser().resolve()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache).resolve() / "zoerefine"


def launch(job: Job, runs: Path | None, home: Path) -> tuple[RunDir, int]:
    """Run a job in a workspace at its commit; returns the run and the job's exit code.

    The same job finds its run again: a finished one is left as it is, another goes on.

    Raises:
        UserError: anything that is wrong before the job's first line runs.
    """
    with using(home):
        plan = make_plan(job, home)
        run = plan.run(runs)
        return run, start(plan, run, latest=True)


def make_plan(job: Job, home: Path) -> LaunchPlan:
    """Look everything up that a job needs, and fetch its commit; nothing is written but mirrors."""
    if len(job.overrides) % 2:
        raise UserError(f"overrides come as KEY VALUE pairs; {job.overrides[-1]!r} has no value")
    source = open_source(job.repo)
    config = read_local_config(job)
    mirror, commit = fetch_commit(source, job.ref, home, job.branch)
    if config is None:
        config = read_committed_config(job, mirror, commit)
    changes = take_changes(source, commit, job.allow_dirty, job.caller / job.config)
    return LaunchPlan(
        job, source, mirror, commit, changes, config, read_tree(job.config, config), home
    )


def read_local_config(job: Job) -> bytes | None:
    """The config's bytes; None where no such file is here."""
    try:
        return (job.caller / job.config).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"config {job.config} cannot be read: {error.strerror}") from None


def read_committed_config(job: Job, mirror: Path, commit: str) -> bytes:
    """The config's bytes as they are in the commit."""
    try:
        if job.config.is_absolute():
            raise GitError(str(job.config))
        return git_bytes("cat-file", "blob", f"{commit}:{job.config.as_posix()}", folder=mirror)
    except GitError:
        raise UserError(
            f"no config file {job.config}, here or in commit {commit[:12]}: give an existing file"
        ) from None


def read_tree(path: Path, data: bytes) -> dict[str, Any]:
    """What a YAML config holds; empty for a file of another kind.

    Raises `UserError` where it is broken, or holds a secret that every run would then keep.
    """
    name = find_secret(data)
    if name:
        raise UserError(f"config {path} holds the secret of {name}: read it from the environment")
    if path.suffix not in YAML:
        return {}
    try:
        tree = yaml.safe_load(data)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"config {path} is not YAML: {error}") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise UserError(f"config {path} must be a mapping of keys, not a {type(tree).__name__}")
    return {str(key): value for key, value in tree.items()}


def setting(tree: dict[str, Any], overrides: Sequence[str], key: str) -> Any:
    """A config key's value, the overrides considered; None where nothing sets it."""
    value: Any = tree
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    for name, text in zip(overrides[::2], overrides[1::2], strict=True):
        if name == key:
            try:
                value = yaml.safe_load(text)
            except yaml.YAMLError:
                value = text
    return value


def start(plan: LaunchPlan, run: RunDir, latest: bool = False) -> int:
    """Run a planned job into a run directory; returns its exit code.

    With `latest`, runs/<name>/latest names this run from now on.
    """
    if is_finished(run):
        return 0
    with ExitStack() as stack:
        lock = stack.enter_context(patient_lock(run))
        if is_finished(run):  # by whoever held the lock
            return 0
        stack.callback(remove_unstarted, run)
        work = (plan.source, plan.mirror, plan.commit, plan.changes, plan.home, run.path)
        place = stack.enter_context(workspace(*work))
        kind = (plan.job.environment, place.folder, plan.commit, plan.home)
        python = stack.enter_context(job_python(*kind))
        command = job_command(plan.job, place.folder, python, run.path / plan.input_name)
        record(plan, run, place.folder, python, command)
        say(f"commit {plan.commit[:12]} of {plan.source.url} runs in {place.folder}")
        say(f"writing to {run.path}")
        variables = job_environment(place.folder, run, plan.seed, plan.job.caller, python)
        if latest:
            point_to_latest(run)
        return run_child(command, place.folder, variables, run, (lock, place.lock))


def is_finished(run: RunDir) -> bool:
    """Whether there is nothing left to do; says so."""
    finished = run.status().state == "finished"
    if finished:
        say(f"{run.path} is finished: nothing to do")
    return finished


def remove_unstarted(run: RunDir) -> None:
    """Leave no run directory behind where nothing was started."""
    if not run.status_file.exists():
        for path in run.path.iterdir():
            path.unlink()
        run.path.rmdir()


@contextmanager
def patient_lock(run: RunDir) -> Iterator[int]:
    """The run's lock; where its launcher was killed, its job gets a moment to end."""
    deadline = time.monotonic() + PATIENCE_S
    with ExitStack() as stack:
        while True:
            try:
                lock = stack.enter_context(run.locked())
                break
            except UserError:
                if _is_alive(run.status().pid) or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        yield lock


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return pid > 0


def job_command(job: Job, folder: Path, python: Path, config: Path) -> list[str]:
    """The job's command line: a script of the workspace, or a module."""
    if job.module.endswith(".py"):
        script = folder / job.module
        inside = script.resolve().is_relative_to(folder.resolve())
        if not (inside and script.is_file()):
            raise UserError(f"the commit has no script {job.module}: check --module")
        program = [str(script)]
    elif all(part.isidentifier() for part in job.module.split(".")):
        program = ["-m", job.module]
    else:
        raise UserError(f"--module {job.module!r} is neither a script's path nor a module's name")
    words = [job.config_flag, str(config), *job.arguments, *job.overrides]
    return [str(python), *program, *words]


def record(
    plan: LaunchPlan, run: RunDir, folder: Path, python: Path, command: Sequence[str]
) -> None:
    """Write what is about to run: the config, the changes, the packages, provenance.json."""
    job = plan.job
    with replacing(run.path / plan.input_name) as path:
        path.write_bytes(plan.config)
    if plan.changes.patch:
        with replacing(run.path / "uncommitted.patch") as path:
            path.write_bytes(plan.changes.patch)
    facts = provenance.machine_facts(python)
    facts["environment_digest"] = provenance.write_environment(run, python)
    provenance.add(
        run,
        identity=plan.identity,
        repository=plan.source.url,
        ref=job.ref,
        branch=job.branch,
        commit=plan.commit,
        tree=plan.changes.tree or git("rev-parse", f"{plan.commit}^{{tree}}", folder=folder),
        dirty_digest=plan.changes.digest,
        dirty_files=list(plan.changes.files),
        module=job.module,
        config=str(job.caller / job.config),
        input=plan.input_name,
        input_digest=sha256(plan.config).hexdigest(),
        config_flag=job.config_flag,
        overrides=list(job.overrides),
        arguments=list(job.arguments),
        environment_kind=job.environment,
        caller=str(job.caller),
        launch_argv=sys.argv,
        command=shlex.join(command),
        workspace=str(folder),
        hash_seed=plan.seed % 2**32,
        **facts,
    )


def point_to_latest(run: RunDir) -> None:
    """Let runs/<name>/latest name this run."""
    link = run.path.parent / f".latest.{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(run.path.name)
    os.replace(link, run.path.parent / "latest")
