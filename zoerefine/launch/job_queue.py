"""A queue: every combination of commits, configs and seeds, N jobs at a time."""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from zoerefine.errors import UserError
from zoerefine.identity import OWN_MODULES
from zoerefine.launch.changes import warn_of_untracked_files
from zoerefine.launch.executor import Executor
from zoerefine.launch.executor.cluster_settings import cluster_settings
from zoerefine.launch.job_words import NO_CONFIG
from zoerefine.launch.launch_plan import Job, LaunchPlan, make_plan, next_execution
from zoerefine.launch.left import GIB
from zoerefine.launch.mirror import mirrors_in_use
from zoerefine.launch.queue_table import QueueRow, live_table
from zoerefine.launch.run_hold import create_run_root
from zoerefine.launch.stop_forwarding import StopForwarding
from zoerefine.run_dir import RunDir

POLL_S = 0.25


@dataclass
class QueuedJob(QueueRow):
    """A job of the queue: its row in the table, the launcher's arguments, and its ticket.

    Attributes:
        cluster: the fields of `Resources` that its config sets.
    """

    words: tuple[str, ...] = ()
    cluster: dict[str, Any] = field(default_factory=dict)
    ticket: Any = None
    started_s: float = 0.0


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

    Raises:
        UserError: something is wrong with one of them. No job has been started then.
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
        queued = QueuedJob(title, run, words=launcher_words(plan, run), cluster=cluster)
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
    words = ["--repo", plan.address.url, "--commit", plan.commit]
    if job.config != NO_CONFIG:
        words += ["--config", str(config if config.exists() else job.config)]
    words += ["--module", job.module, f"--config-flag={job.config_flag}"]
    words += ["--environment", job.environment, "--runs", str(run.path.parents[1])]
    words += ["--caller", str(job.caller), "--cwd", job.cwd, "--overrides", job.overrides_in]
    words += ["--name", plan.name, f"--seed-key={job.seed_key}", "--again-number", str(job.again)]
    words += [f"--metric-pattern={job.metric_pattern}", "--processes", str(job.processes)]
    words += ["--left-limit", str(job.left_limit_bytes / GIB), *job.overrides]
    return (*words, "--", *job.arguments) if job.arguments else tuple(words)


def run_queue(jobs: Sequence[QueuedJob], executor: Executor, parallel: int) -> int:
    """Run what is not finished, `parallel` jobs at a time; 0 only if all finish.

    Ctrl-C asks every job to save a checkpoint and stop; a second Ctrl-C kills them. The same
    command resumes the queue. Jobs that a cluster keeps go on after a logout.

    Args:
        parallel: 0: one at a time, or all at once where the cluster queues them.
    """
    parallel = parallel or (len(jobs) if executor.keeps_jobs else 1)
    stops = StopForwarding(partial(stop_queue, jobs, executor))
    with live_table(jobs) as show, stops:
        while any(job.state in ("waiting", "running") for job in jobs):
            advance(jobs, executor, stops, parallel)
            show()
            if stops.count and not any(job.state == "running" for job in jobs):
                break
            time.sleep(POLL_S)
    if all(job.state.startswith("finished") for job in jobs):
        return 0
    return 130 if stops.count else 1


def advance(
    jobs: Sequence[QueuedJob], executor: Executor, stops: StopForwarding, parallel: int
) -> None:
    """Update the running jobs, and start waiting ones while fewer than `parallel` run."""
    for job in jobs:
        if job.state == "running":
            update(job, executor)
    free = parallel - sum(job.state == "running" for job in jobs)
    for job in [job for job in jobs if job.state == "waiting"][: max(0, free)]:
        with stops.held():
            if stops.count:
                return
            create_run_root(job.run)  # here: several nodes of a job would do it at the same time
            job.ticket = executor.submit(job.words, job.run.path)
            job.state, job.started_s = "running", time.monotonic()


def update(job: QueuedJob, executor: Executor) -> None:
    """Record how long a running job has run, and whether it has ended."""
    job.seconds = time.monotonic() - job.started_s
    outcome = executor.poll(job.ticket)
    job.note = getattr(job.ticket, "note", "")
    if outcome is None:
        return
    code, job.message = outcome.code, outcome.message
    job.state = "finished" if code == 0 else "killed" if code > 128 else "failed"


def stop_queue(jobs: Sequence[QueuedJob], executor: Executor, number: int, count: int) -> None:
    """Pass a stop signal on to the running jobs; leave them where the cluster keeps them.

    Raises `KeyboardInterrupt` where they are left.
    """
    leave_to_cluster(executor.keeps_jobs, number)
    cancel_running(jobs, executor)


def leave_to_cluster(keeps_jobs: bool, number: int) -> None:
    """End this command, and not its jobs, after a logout or where its machine stops.

    Raises `KeyboardInterrupt` where the cluster keeps jobs, and the signal is not Ctrl-C.
    """
    if keeps_jobs and number != signal.SIGINT:
        raise KeyboardInterrupt


def cancel_running(jobs: Sequence[QueuedJob], executor: Executor) -> None:
    """Ask every running job to save a checkpoint and stop; a second call kills them."""
    for job in jobs:
        if job.state == "running":
            executor.cancel(job.ticket)
