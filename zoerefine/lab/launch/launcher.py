"""Launch: a commit, a config and a module become one recorded run."""

import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from zoerefine.base.files.atomic import create_ignored_folder, replacing, write_json
from zoerefine.base.files.file_lock import Wait
from zoerefine.base.machine.cores import share_cores
from zoerefine.base.messages import say
from zoerefine.base.run_dir import ATTEMPT, NODE, RunDir, link_latest
from zoerefine.lab.launch import job_module
from zoerefine.lab.launch.environment import CURRENT, job_python
from zoerefine.lab.launch.git.changes import warn_of_untracked_files
from zoerefine.lab.launch.git.mirror import mirrors_in_use
from zoerefine.lab.launch.identity import refuse_another_job
from zoerefine.lab.launch.job import GIB, LIMIT_BYTES, Job, job_words, recorded_options
from zoerefine.lab.launch.plan import (
    LaunchPlan,
    handed_over,
    make_plan,
    next_execution,
    plan_file,
)
from zoerefine.lab.launch.process import child
from zoerefine.lab.launch.process.nodes import NODE_LOST, FirstNode, OtherNode
from zoerefine.lab.launch.process.torchrun import end_processes, torchrun_words
from zoerefine.lab.launch.record import provenance
from zoerefine.lab.launch.variables import (
    deciding_variables,
    import_folders,
    import_variables,
    job_environment,
    set_again,
)
from zoerefine.lab.launch.workspace import left
from zoerefine.lab.launch.workspace.checkout import commit_tree
from zoerefine.lab.launch.workspace.workspace import INPUTS_FILE, place_files, workspace

MADE_BY_LAUNCH = (
    *(".lock", ".provenance.lock", "provenance.json", "environment.txt", "uncommitted.patch"),
    *("included.json", "inputs.json"),
)


def launch(
    job: Job, runs: Path | None, home: Path, again: bool = False, planned: Path | None = None
) -> tuple[RunDir, int]:
    """Run a job in a workspace at its commit; returns the run and the job's exit code.

    The same job finds its run again. A finished run is left as it is; an unfinished one resumes.

    Args:
        runs: where run directories are made; None: RUN.ROOT of the config, or ./runs.
        again: run a finished job once more, into a run directory beside the first.
        planned: the file of the plan that a queue hands over.

    Raises `UserError` for anything that is wrong before the job's first line runs.
    """
    with mirrors_in_use(home):
        plan = handed_over(job, planned, home) if planned else make_plan(job, home)
        if again:
            plan = next_execution(plan, runs)
        warn_of_untracked_files(plan.address, plan.changes)
        run = plan.run(runs)
        create_run_root(run)
        code = start(plan, run, latest=True)
        if planned and run.status().state == "finished":
            planned.unlink(missing_ok=True)
        return run, code


def start(
    plan: LaunchPlan,
    run: RunDir,
    latest: bool = False,
    watch: child.Watch | None = None,
    recorded: Mapping[str, str] | None = None,
) -> int:
    """Run a planned job into a run directory; returns its exit code.

    Args:
        latest: let the link runs/<name>/latest name this run.
        watch: entered while the job runs.
        recorded: variables of the run that this one repeats, which are set again.
    """
    node = node_of(run, plan.job.processes)
    own = node.own
    refuse_another_job(plan.identity, own)
    if left.pending_workspace(own) is None and is_finished(run, plan.job):
        return 0
    with ExitStack() as stack:
        stack.enter_context(node.taking_part())
        had_lock = own.lock_file.exists()
        # A queue that was killed leaves its plan, and launches that live until their jobs stop.
        by_queue = plan_file(run).exists()
        wait = Wait.FOR_WRITER if by_queue or node.place.nodes > 1 else Wait.FOR_CHILD
        run_lock = stack.enter_context(own.locked(wait))
        stack.enter_context(leaving_nothing_unless_started(own, plan.input_name, had_lock))
        left.complete_collection(own)
        if is_finished(run, plan.job):  # by the process that held the lock
            return 0
        source = (plan.address, plan.mirror, plan.commit, plan.changes, plan.home)
        place = stack.enter_context(workspace(*source, own.path))
        python = Path(sys.executable)
        if (kind := plan.job.environment) != CURRENT:
            made = job_python(kind, place.folder, plan.version, plan.home)
            python = stack.enter_context(made)
        program = job_module.job_program(plan.job.module, place.folder)
        folder = working_folder(plan.job, place.folder, run)
        imported = import_folders(place.folder, plan.address.folder)
        variables = job_environment(imported, run, plan.seed, plan.job.caller, python)
        variables |= import_variables(plan.job.cwd, imported, program)
        if node.with_torchrun:
            share_cores(variables, node.processes)
            end_processes(run, node.place.number)  # of a launcher killed with its torchrun
        variables |= dict(word.split("=", 1) for word in plan.job.record_env)
        if recorded is not None:
            set_again(variables, recorded)
        origin = (folder, variables, place.folder, plan.job.environment)
        job_module.check_origin(program, python, *origin)
        found = provenance.library_facts(place.folder, variables, python)
        meeting = node.meet(attempts(own) + 1)
        variables[ATTEMPT] = str(meeting.attempt)
        by_torchrun = torchrun_words(node.processes, meeting.words) if node.with_torchrun else []
        in_place = plan.included.place
        config = place.folder / in_place if in_place else own.path / plan.input_name
        command = [str(python), *by_torchrun, *program, *job_words(plan.job, config)]
        found |= {"variables": deciding_variables(variables, plan.job.record_env)}
        record(plan, node, place.folder, python, command, meeting.attempt, found)
        place_files(own.path / plan.input_name, plan.included, plan.inputs, place.folder)
        left.put_back(own, place.folder)
        say(f"running commit {plan.commit[:12]} of {plan.address.url} in {place.folder}")
        say(f"writing to {own.path}")
        if latest and own == run:
            link_latest(run)
        locks = (run_lock, place.lock_fd)

        @contextmanager
        def watching(stops: child.StopForwarding) -> Iterator[None]:
            with node.watching(stops), watch(place.folder, stops) if watch else nullcontext():
                yield

        code = child.run_child(command, folder, variables, own, locks, watching, node.with_torchrun)
        if node.with_torchrun:
            end_processes(run, node.place.number)
        if code and node.is_alone:
            code = NODE_LOST
        left.collect_after(own, place.folder)
        return code


def node_of(run: RunDir, processes: int) -> child.OneNode:
    """This machine's part in a launch.

    Args:
        processes: on all nodes together.
    """
    given = os.environ.get(NODE)
    place = child.NodePlace(**json.loads(given)) if given else child.ONLY
    if place.nodes == 1:
        return child.OneNode(run, place, processes)
    return (OtherNode if place.number else FirstNode)(run, place, processes)


def working_folder(job: Job, workspace: Path, run: RunDir) -> Path:
    """The folder that a job starts in."""
    script = workspace / Path(job.module).parent if job_module.is_script(job.module) else workspace
    folders = {"workspace": workspace, "script": script, "caller": job.caller, "run": run.path}
    return folders[job.cwd]


def record(
    plan: LaunchPlan,
    node: child.OneNode,
    folder: Path,
    python: Path,
    command: Sequence[str],
    attempt: int,
    found: Mapping[str, Any],
) -> None:
    """Write what is about to run: the config, the changes, the packages, provenance.json."""
    job, run, logs = plan.job, node.own, {}
    if attempt > 1:
        from zoerefine.lab.runs.metrics.run_logs import logs_so_far  # late: it needs regex

        logs = logs_so_far(run)
    with replacing(run.path / plan.input_name) as path:
        path.write_bytes(plan.config)
    plan.included.save(run.path)
    if plan.inputs:
        write_json(run.path / INPUTS_FILE, plan.inputs)
    if plan.changes.patch:
        with replacing(run.path / "uncommitted.patch") as path:
            path.write_bytes(plan.changes.patch)
    facts = provenance.machine_facts(python) | dict(found)
    provenance.write_environment(run, python)
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
        config=str(job.caller / job.config),
        input=plan.input_name,
        input_digest=sha256(plan.config).hexdigest(),
        overrides=list(job.overrides),
        arguments=list(job.arguments),
        caller=str(job.caller),
        **recorded_options(job),
        attempt=attempt,
        log_bytes_before={
            path.name: path.stat().st_size
            for path in (run.log_file, run.metrics_file)
            if path.is_file()
        },
        logs_before=logs,
        nodes=node.place.nodes,
        launch_argv=sys.argv,
        command=shlex.join(command),
        workspace=str(folder),
        hash_seed=plan.seed % 2**32,
        seed_known=plan.known_seed is not None,
        **facts,
    )


def attempts(run: RunDir) -> int:
    """How many times a run has been started."""
    if not run.provenance_file.exists():
        return 0
    return int(run.read_json(run.provenance_file).get("attempt", 1))


# A launch's run directory: of this job, and nothing left behind unless the job starts.


def create_run_root(run: RunDir) -> None:
    """Create the folders above a run. Git ignores the outermost one that we create."""
    folder, root = run.path.parent, run.path.parents[1]
    create_ignored_folder(root)
    if not (root / ".gitignore").exists():  # it is the user's
        create_ignored_folder(folder)


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


def is_finished(run: RunDir, job: Job) -> bool:
    """Whether a run is finished; if so, says it, and what becomes of options of the job that make
    it no other job.
    """
    if run.status().state != "finished":
        return False
    say(f"{run.path} is finished: nothing to do")
    if job.metric_patterns and take_patterns(run, job.metric_patterns):
        say(f"{run.path}: its metrics are now those of this --metric-pattern")
    limit_bytes = run.recorded().get("left_limit_bytes", LIMIT_BYTES)
    if job.left_limit_bytes not in (LIMIT_BYTES, limit_bytes):
        say(f"{run.path}: --left-limit was {limit_bytes / GIB:g}; --again runs it with another one")
    return True


def take_patterns(run: RunDir, patterns: Sequence[str]) -> bool:
    """Record other metric patterns in a run that has ended; returns whether they are others."""
    from zoerefine.lab.runs.metrics import recorded_patterns  # late: it needs regex

    recorded = run.recorded()
    differ = bool(recorded) and recorded_patterns(recorded) != tuple(patterns)
    if differ:
        provenance.add(run, metric_patterns=list(patterns))
    return differ
