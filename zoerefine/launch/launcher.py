"""Launch: a commit, a config and a module become one recorded run."""

import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path

from zoerefine.errors import UserError
from zoerefine.files import create_ignored_folder, replacing
from zoerefine.launch import provenance
from zoerefine.launch.changes import warn_of_untracked_files
from zoerefine.launch.child_process import Watch, run_child, unwatched
from zoerefine.launch.environment import import_variables, job_environment, job_python
from zoerefine.launch.git_objects import commit_tree
from zoerefine.launch.job_words import NO_CONFIG, config_words, override_words
from zoerefine.launch.launch_plan import Job, LaunchPlan, make_plan, next_execution
from zoerefine.launch.left import (
    collect_after,
    complete_collection,
    pending_workspace,
    put_back,
)
from zoerefine.launch.mirror import mirrors_in_use
from zoerefine.launch.workspace import workspace
from zoerefine.progress import say
from zoerefine.run_dir import RunDir

LOCK_WAIT_S = 15.0  # for a job to end whose launcher was killed


def default_home() -> Path:
    """The folder of mirrors and workspaces: $ZOEREFINE_HOME, or zoerefine in the user's cache."""
    if home := os.environ.get("ZOEREFINE_HOME"):
        return Path(home).expanduser().resolve()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache).resolve() / "zoerefine"


def launch(job: Job, runs: Path | None, home: Path, again: bool = False) -> tuple[RunDir, int]:
    """Run a job in a workspace at its commit; returns the run and the job's exit code.

    The same job finds its run again. A finished run is left as it is; an unfinished one resumes.

    Args:
        runs: where run directories are made; None: RUN.ROOT of the config, or ./runs.
        again: run a finished job once more, into a run directory beside the first.

    Raises:
        UserError: anything that is wrong before the job's first line runs.
    """
    with mirrors_in_use(home):
        plan = make_plan(job, home)
        if again:
            plan = next_execution(plan, runs)
        warn_of_untracked_files(plan.address, plan.changes)
        run = plan.run(runs)
        create_run_root(run)
        return run, start(plan, run, latest=True)


def start(plan: LaunchPlan, run: RunDir, latest: bool = False, watch: Watch | None = None) -> int:
    """Run a planned job into a run directory; returns its exit code.

    Args:
        latest: let the link runs/<name>/latest name this run.
        watch: entered while the job runs.
    """
    if pending_workspace(run) is None and is_finished(run):
        return 0
    with ExitStack() as stack:
        run_lock = stack.enter_context(wait_for_lock(run))
        complete_collection(run)
        if is_finished(run):  # by the process that held the lock
            return 0
        stack.callback(remove_if_not_started, run)
        source = (plan.address, plan.mirror, plan.commit, plan.changes, plan.home)
        place = stack.enter_context(workspace(*source, run.path))
        environment = (plan.job.environment, place.folder, plan.commit, plan.home)
        python = stack.enter_context(job_python(*environment))
        program = job_program(plan.job.module, place.folder)
        command = [str(python), *program, *job_words(plan, run)]
        attempt = attempts(run) + 1
        record(plan, run, place.folder, python, command, attempt)
        put_back(run, place.folder)
        say(f"running commit {plan.commit[:12]} of {plan.address.url} in {place.folder}")
        say(f"writing to {run.path}")
        facts = (plan.seed, plan.job.caller, python, attempt)
        variables = job_environment(place.folder, run, *facts)
        variables |= import_variables(plan.job.cwd, place.folder, program)
        folder = working_folder(plan.job, place.folder, run)
        if latest:
            link_latest(run)
        watching = partial(watch, place.folder) if watch else unwatched
        locks = (run_lock, place.lock_fd)
        code = run_child(command, folder, variables, run, locks, watching)
        collect_after(run, place.folder)
        return code


def create_run_root(run: RunDir) -> None:
    """Create the folders above a run. Git ignores the outermost one that we create."""
    folder, root = run.path.parent, run.path.parents[1]
    create_ignored_folder(root)
    if not (root / ".gitignore").exists():  # it is the user's
        create_ignored_folder(folder)


def working_folder(job: Job, workspace: Path, run: RunDir) -> Path:
    """The folder that a job starts in."""
    return {"workspace": workspace, "caller": job.caller, "run": run.path}[job.cwd]


def is_finished(run: RunDir) -> bool:
    """Whether a run is finished; if so, says it."""
    finished = run.status().state == "finished"
    if finished:
        say(f"{run.path} is finished: nothing to do")
    return finished


def remove_if_not_started(run: RunDir) -> None:
    """Remove the run directory of a job that was never started."""
    if not run.status_file.exists() and not run.left.exists():
        for path in run.path.iterdir():
            path.unlink()
        run.path.rmdir()


@contextmanager
def wait_for_lock(run: RunDir) -> Iterator[int]:
    """Hold the run's lock. Where its launcher was killed, its job gets a moment to end.

    Raises `UserError` where another launcher runs it.
    """
    deadline = time.monotonic() + LOCK_WAIT_S
    with ExitStack() as stack:
        while True:
            try:
                lock_fd = stack.enter_context(run.locked())
                break
            except UserError:
                if _is_alive(run.status().pid) or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        yield lock_fd


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return pid > 0


def job_program(module: str, folder: Path) -> list[str]:
    """Python's words for the job's script. Raises `UserError` where the commit has no such one."""
    if module.endswith(".py"):
        script = folder / module
        inside = script.resolve().is_relative_to(folder.resolve())
        if not (inside and script.is_file()):
            raise UserError(f"the commit has no script {module}: check --module")
        return [str(script)]
    if all(part.isidentifier() for part in module.split(".")):
        return ["-m", module]
    raise UserError(f"--module {module!r} is neither a script's path nor a module's name")


def job_words(plan: LaunchPlan, run: RunDir) -> list[str]:
    """The job's own words: its config, its arguments, the overrides."""
    job = plan.job
    has_config = job.config != NO_CONFIG
    config = config_words(job.config_flag, run.path / plan.input_name) if has_config else []
    return [*config, *job.arguments, *override_words(job.overrides, job.overrides_in)]


def record(
    plan: LaunchPlan,
    run: RunDir,
    folder: Path,
    python: Path,
    command: Sequence[str],
    attempt: int,
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
        repository=plan.address.url,
        ref=job.ref,
        branch=job.branch,
        commit=plan.commit,
        tree=plan.changes.tree or commit_tree(plan.mirror, plan.commit),
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
        cwd=job.cwd,
        overrides_in=job.overrides_in,
        again=job.again,
        attempt=attempt,
        left_limit_bytes=job.left_limit_bytes,
        metric_pattern=job.metric_pattern,
        seed_key=job.seed_key,
        launch_argv=sys.argv,
        command=shlex.join(command),
        workspace=str(folder),
        hash_seed=plan.seed % 2**32,
        **facts,
    )


def attempts(run: RunDir) -> int:
    """How many times a run has been started."""
    if not run.provenance_file.exists():
        return 0
    return int(run.read_json(run.provenance_file).get("attempt", 1))


def link_latest(run: RunDir) -> None:
    """Let runs/<name>/latest name this run."""
    link = run.path.parent / f".latest.{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(run.path.name)
    os.replace(link, run.path.parent / "latest")
