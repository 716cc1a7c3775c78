"""Launch: a commit, a config and a module become one recorded run."""

import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from zoerefine.errors import UserError
from zoerefine.files import create_ignored_folder, replacing
from zoerefine.launch import provenance
from zoerefine.launch.changes import warn_of_untracked_files
from zoerefine.launch.child_process import Watch, run_child, unwatched
from zoerefine.launch.environment import (
    import_variables,
    job_environment,
    job_python,
    package_folders,
)
from zoerefine.launch.git_objects import commit_tree
from zoerefine.launch.job_module import check_origin, job_program, library_facts
from zoerefine.launch.job_words import NO_CONFIG, config_words, override_words
from zoerefine.launch.launch_plan import Job, LaunchPlan, make_plan, next_execution
from zoerefine.launch.left import (
    collect_after,
    complete_collection,
    pending_workspace,
    put_back,
)
from zoerefine.launch.mirror import OTHER_HOME, mirrors_in_use
from zoerefine.launch.several_processes import end_processes, job_command
from zoerefine.launch.workspace import workspace
from zoerefine.processor_use import share_cores
from zoerefine.progress import say
from zoerefine.run_dir import RunDir

MADE_BY_LAUNCH = (
    *(".lock", ".provenance.lock", "provenance.json", "environment.txt", "uncommitted.patch"),
)
LOCK_WAIT_S = 15.0  # for a job to end whose launcher was killed


def home_folder(given: Path | None) -> Path:
    """The folder that --home names, else the default. Raises `UserError` for an unknown user's."""
    return expanded(given, "--home") if given else default_home()


def default_home() -> Path:
    """The folder of mirrors and workspaces: $ZOEREFINE_HOME, or zoerefine in the user's cache.

    Raises `UserError` where the user has no home folder, or the variable names an unknown user's.
    """
    if home := os.environ.get("ZOEREFINE_HOME"):
        return expanded(Path(home), "ZOEREFINE_HOME")
    if cache := os.environ.get("XDG_CACHE_HOME"):
        return Path(cache).resolve() / "zoerefine"
    return expanded(Path("~/.cache/zoerefine"), "the home folder")


def expanded(folder: Path, source: str) -> Path:
    """A folder with its `~` replaced. Raises `UserError` where there is no such user."""
    try:
        return folder.expanduser().resolve()
    except (RuntimeError, OSError) as error:
        reason = getattr(error, "strerror", None) or "there is no such user"
        raise UserError(f"{source} {folder}: {reason}; {OTHER_HOME}") from None


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
    refuse_another_job(plan, run)
    if pending_workspace(run) is None and is_finished(run):
        return 0
    with ExitStack() as stack:
        had_lock = run.lock_file.exists()
        run_lock = stack.enter_context(wait_for_lock(run))
        stack.enter_context(leaving_nothing_unless_started(run, plan.input_name, had_lock))
        complete_collection(run)
        if is_finished(run):  # by the process that held the lock
            return 0
        source = (plan.address, plan.mirror, plan.commit, plan.changes, plan.home)
        place = stack.enter_context(workspace(*source, run.path))
        environment = (plan.job.environment, place.folder, plan.commit, plan.home)
        python = stack.enter_context(job_python(*environment))
        program = job_program(plan.job.module, place.folder)
        start_words = job_command(python, program, plan.job.processes)
        command = [*start_words, *job_words(plan, run)]
        attempt = attempts(run) + 1
        folder = working_folder(plan.job, place.folder, run)
        facts = (plan.seed, plan.job.caller, python, attempt)
        variables = job_environment(place.folder, run, *facts)
        variables |= import_variables(plan.job.cwd, place.folder, program)
        if plan.job.processes > 1:
            share_cores(variables, plan.job.processes)
            end_processes(run)  # of a launcher that was killed together with its torchrun
        origin = (folder, variables, place.folder, plan.job.environment)
        check_origin(program, python, *origin)
        library = library_facts(place.folder, variables, package_folders(python))
        record(plan, run, place.folder, python, command, attempt, library)
        put_back(run, place.folder)
        say(f"running commit {plan.commit[:12]} of {plan.address.url} in {place.folder}")
        say(f"writing to {run.path}")
        if latest:
            link_latest(run)
        watching = partial(watch, place.folder) if watch else unwatched
        locks = (run_lock, place.lock_fd)
        code = run_child(command, folder, variables, run, locks, watching)
        if plan.job.processes > 1:
            end_processes(run)
        collect_after(run, place.folder)
        return code


def refuse_another_job(plan: LaunchPlan, run: RunDir) -> None:
    """Raises `UserError` where the folder holds the run of another job."""
    if not run.provenance_file.exists():
        return
    recorded = run.read_json(run.provenance_file).get("identity")
    if recorded is not None and recorded != plan.identity:
        raise UserError(
            f"{run.path} belongs to another job: its commit, config or words differ; remove that "
            "folder, or give another --name"
        )


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


@contextmanager
def leaving_nothing_unless_started(run: RunDir, input_name: str, had_lock: bool) -> Iterator[None]:
    """Remove what the launch made in the run directory if it ends before the job starts.

    Files that were there before stay. The caller holds the run's lock.

    Args:
        had_lock: whether the lock's file was there before the launch.
    """
    before = set(os.listdir(run.path)) - (set() if had_lock else {run.lock_file.name})
    made = {*MADE_BY_LAUNCH, input_name} - before
    state = read_bytes(run.status_file)
    try:
        yield
    except BaseException:
        if read_bytes(run.status_file) == state:
            for name in made:
                (run.path / name).unlink(missing_ok=True)
            with suppress(OSError):  # it is not empty
                run.path.rmdir()
        raise


def read_bytes(path: Path) -> bytes | None:
    """A file's bytes; None where there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


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
    library: Mapping[str, Any],
) -> None:
    """Write what is about to run: the config, the changes, the packages, provenance.json."""
    job = plan.job
    with replacing(run.path / plan.input_name) as path:
        path.write_bytes(plan.config)
    if plan.changes.patch:
        with replacing(run.path / "uncommitted.patch") as path:
            path.write_bytes(plan.changes.patch)
    facts = provenance.machine_facts(python) | dict(library)
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
        processes=job.processes,
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
    """Let runs/<name>/latest name this run, unless that is a file or folder of the user's."""
    latest = run.path.parent / "latest"
    if latest.exists() and not latest.is_symlink():
        say(f"{latest} is not our link: it stays as it is")
        return
    link = run.path.parent / f".latest.{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(run.path.name)
    os.replace(link, latest)
