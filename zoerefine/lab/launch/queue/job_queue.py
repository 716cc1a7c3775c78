"""A queue: every combination of commits, configs and seeds, N jobs at a time."""

import os
import re
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from zoerefine.base.config_roles import OWN_MODULES
from zoerefine.base.errors import INTERRUPTED, UserError
from zoerefine.base.files.atomic import removing_new_folders
from zoerefine.base.messages import warn
from zoerefine.base.run_dir import RunDir
from zoerefine.base.yaml.script_overrides import NEW_KEY
from zoerefine.lab.launch.git.changes import warn_of_untracked_files
from zoerefine.lab.launch.git.mirror import mirrors_in_use
from zoerefine.lab.launch.job import NO_CONFIG, Job, launch_words
from zoerefine.lab.launch.launcher import create_run_root
from zoerefine.lab.launch.plan import LaunchPlan, make_plan, next_execution, plan_file
from zoerefine.lab.launch.process.child import StopForwarding
from zoerefine.lab.launch.queue.executor import Executor, ExecutorBusy, cluster_settings
from zoerefine.lab.launch.queue.table import QueueRow, live_table
from zoerefine.lab.launch.record.comparison import have_same_numbers

POLL_S = 0.25


@dataclass
class QueuedJob(QueueRow):
    """A job of the queue: its row in the table, the launcher's arguments, and its ticket.

    Attributes:
        plan: what the launcher need not look up again.
        seed, seed_key: the seed of `--seeds`, and its key.
        cluster: the fields of `Resources` that its config sets.
        was_taken: whether an executor has taken it.
        code: its exit code, once it has ended.
    """

    words: tuple[str, ...] = ()
    plan: LaunchPlan | None = None
    seed: int | None = None
    seed_key: str = ""
    cluster: dict[str, Any] = field(default_factory=dict)
    was_taken: bool = False
    ticket: Any = None
    started_s: float = 0.0
    code: int | None = None

    @property
    def has_ended(self) -> bool:
        return self.state not in ("waiting", "running")

    @property
    def is_submitted(self) -> bool:
        """Whether an executor has it: it runs, or waits there for its turn."""
        return self.was_taken and not self.has_ended


def make_queue(
    job: Job,
    commits: Sequence[str],
    configs: Sequence[Path],
    seeds: Sequence[int],
    runs: Path | None,
    home: Path,
    again: bool = False,
) -> list[QueuedJob]:
    """Every combination of commits, configs and seeds; equal jobs once.

    Args:
        again: run finished jobs once more, beside their first runs.

    Raises `UserError` where something is wrong with one of them. No job has been started then.
    """
    if job.allow_dirty:
        raise UserError("a queue cannot use --allow-dirty: commit the changes first")
    jobs: dict[Path, QueuedJob] = {}
    warned: set[tuple[str, ...]] = set()
    all_seeds: list[int | None] = [*seeds] or [None]
    for commit, config, seed in product(commits, configs, all_seeds):
        overrides = job.overrides if seed is None else (*job.overrides, job.seed_key, str(seed))
        one = replace(job, ref=commit, config=config, overrides=overrides)
        with mirrors_in_use(home):
            plan = make_plan(one, home)
        if plan.changes.untracked not in warned:
            warn_of_untracked_files(plan.address, plan.changes)
            warned.add(plan.changes.untracked)
        if again:
            plan = next_execution(plan, runs)
        run = plan.run(runs)
        ours = job.module.startswith(OWN_MODULES)
        cluster = cluster_settings(plan.document, plan.override_arguments) if ours else {}
        what = job.module if config == NO_CONFIG else config.name
        title = " ".join(filter(None, [commit[:12], what, seed_title(seed)]))
        queued = QueuedJob(title, run, words=launcher_words(plan, run), plan=plan, seed=seed,
                           seed_key=job.seed_key, cluster=cluster)  # fmt: skip
        if run.status().state == "finished":
            queued.state = "finished before"
        jobs.setdefault(run.path, queued)
    return list(jobs.values())


def seed_title(seed: int | None) -> str:
    """A seed as the table shows it."""
    return "" if seed is None else f"seed {seed}"


def launcher_words(plan: LaunchPlan, run: RunDir) -> tuple[str, ...]:
    """The arguments of `zoerefine run` for a planned job and its run directory.

    They name the exact commit, since a branch may move before the job starts. They contain no
    credentials, since other users can read a process's arguments: these go into our environment.
    """
    job = plan.job
    os.environ.update({name: value for name, value in plan.address.login().items() if value})
    config = job.caller / job.config
    config = config if config.exists() else job.config
    exact = replace(job, repo=plan.address.url, ref=plan.commit, config=config, name=plan.name)
    others = ("--runs", str(run.path.parents[1]), "--caller", str(job.caller))
    return tuple(launch_words(exact, *others, "--planned", str(plan_file(run))))


def run_queue(
    jobs: Sequence[QueuedJob], executor: Executor, parallel: int, fail_fast: bool = False
) -> int:
    """Run what is not finished, `parallel` jobs at a time; 0 only if all finish.

    Ctrl-C asks every job to save a checkpoint and stop; a second Ctrl-C kills them. The same
    command resumes the queue. Jobs that a cluster keeps go on after a logout.

    Args:
        parallel: 0: one at a time, or all at once where the cluster queues them.
        fail_fast: the first failed job stops the others.

    Raises `UserError` where the first job is refused.
    """
    parallel = parallel or (len(jobs) if executor.keeps_jobs else 1)
    is_failing = False

    def stop(number: int, _: int) -> None:
        leave_to_cluster(executor.keeps_jobs, number)
        cancel_running(jobs, executor)

    stops = StopForwarding(stop)
    with live_table(jobs) as show, stops:
        while not all(job.has_ended for job in jobs):
            for job in jobs:
                if job.is_submitted:
                    update(job, executor)
            if fail_fast and not is_failing and any(job.state == "failed" for job in jobs):
                is_failing = True
                cancel_running(jobs, executor)
            if not is_failing:
                submit_next(jobs, executor, stops, parallel)
            show()
            if (stops.count or is_failing) and not any(job.is_submitted for job in jobs):
                break
            time.sleep(POLL_S)
    for note in (*unread_seeds(jobs), *refused_seeds(jobs)):
        warn(note)
    if all(job.state.startswith("finished") for job in jobs):
        return 0
    return INTERRUPTED if stops.count else 1


def unread_seeds(jobs: Sequence[QueuedJob]) -> Iterator[str]:
    """A sentence for each commit and config whose runs are the same with every seed."""
    groups: dict[str, list[QueuedJob]] = {}
    for job in jobs:
        if job.seed is not None and job.state.startswith("finished"):
            groups.setdefault(job.title.removesuffix(seed_title(job.seed)).strip(), []).append(job)
    for title, found in groups.items():
        with suppress(UserError):  # a damaged run is named elsewhere
            if have_same_numbers([job.run for job in found]):
                yield (
                    f"{title}: the runs of {len(found)} seeds have exactly the same metrics; does "
                    f"the script read {found[0].seed_key.removeprefix(NEW_KEY)}?"
                )


def refused_seeds(jobs: Sequence[QueuedJob]) -> Iterator[str]:
    """A sentence where a script does not know the key of the seed."""
    for job in jobs:
        if job.seed is not None and job.state == "failed":
            key = job.seed_key.removeprefix(NEW_KEY)
            with suppress(UserError):
                if re.search(rf"\b{re.escape(key)}\b", job.run.status().reason):
                    yield (
                        f"{job.title}: does the script call its seed {key}? --seed-key NAME gives "
                        "it by another name"
                    )
                    return


def submit_next(
    jobs: Sequence[QueuedJob], executor: Executor, stops: StopForwarding, parallel: int
) -> None:
    """Submit jobs while fewer than `parallel` are."""
    free = parallel - sum(job.is_submitted for job in jobs)
    others = [job for job in jobs if not job.was_taken and not job.has_ended]
    for job in others[: max(0, free)]:
        with stops.held():
            if stops.count:
                return
            try:
                submit(job, executor)
            except ExecutorBusy:
                return
            except UserError as error:
                if not any(other.was_taken for other in jobs):
                    raise  # nothing has been started
                job.state, job.message = "failed", str(error)


def submit(job: QueuedJob, executor: Executor) -> None:
    """Give a job to the executor. One that is refused leaves no folder."""
    with removing_new_folders(job.run.path.parent, ".gitignore"):
        create_run_root(job.run)  # here: several nodes of a job would do it at the same time
        job.run.path.mkdir(parents=True, exist_ok=True)
        assert job.plan is not None
        is_first = not plan_file(job.run).exists()  # else an attempt has left it
        job.plan.hand_over(plan_file(job.run))
        try:
            job.ticket = executor.submit(job.words, job.run.path)
        except (ExecutorBusy, UserError):
            if is_first:
                remove_plan(job.run)
            raise
    job.was_taken = True
    show_state(job)


def remove_plan(run: RunDir) -> None:
    """Remove the plan of a launch that was refused, and its folder where it has nothing else."""
    plan_file(run).unlink(missing_ok=True)
    with suppress(OSError):
        run.path.rmdir()


def update(job: QueuedJob, executor: Executor) -> None:
    """Record what a submitted job does, and whether it has ended."""
    outcome = executor.poll(job.ticket)
    if job.state == "running":
        job.seconds = time.monotonic() - job.started_s
    if outcome is None:
        show_state(job)
        return
    job.code = outcome.code
    if not job.run.provenance_file.exists():
        remove_plan(job.run)
    job.state = "finished" if job.code == 0 else "killed" if job.code > 128 else "failed"
    status = job.run.status()
    recorded = status.reason if status.started and not outcome.by_cluster else ""
    job.message = recorded or outcome.message


def show_state(job: QueuedJob) -> None:
    """Show whether a submitted job runs, or waits for its turn in a cluster."""
    is_waiting = getattr(job.ticket, "is_waiting", False)
    if not is_waiting and job.state == "waiting":
        job.started_s = time.monotonic()
    job.state = "waiting" if is_waiting else "running"
    job.note = getattr(job.ticket, "note", "")


def leave_to_cluster(keeps_jobs: bool, number: int) -> None:
    """End this command, and not its jobs, after a logout or where its machine stops.

    Raises `KeyboardInterrupt` where the cluster keeps jobs, and the signal is not Ctrl-C.
    """
    if keeps_jobs and number != signal.SIGINT:
        raise KeyboardInterrupt("the jobs go on in the cluster; the same command finds them again")


def cancel_running(jobs: Sequence[QueuedJob], executor: Executor) -> None:
    """Ask every submitted job to save a checkpoint and stop; a second call kills them."""
    for job in jobs:
        if job.is_submitted:
            executor.cancel(job.ticket)
