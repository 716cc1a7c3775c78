"""A queue: commits x configs x seeds, so many at a time, what is finished never again."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from zoerefine.errors import UserError
from zoerefine.launch.executor import Executor
from zoerefine.launch.launcher import Job, LaunchPlan, make_plan
from zoerefine.launch.queue_table import QueueRow, live_table
from zoerefine.launch.repository import using
from zoerefine.launch.stop_forwarding import StopForwarding
from zoerefine.run_dir import RunDir

POLL_S = 0.25


@dataclass
class Entry(QueueRow):
    """A job of the queue: its row in the table, the launcher's words, and its ticket."""

    words: tuple[str, ...] = ()
    ticket: Any = None
    started: float = 0.0


def make_queue(
    job: Job,
    commits: Sequence[str],
    configs: Sequence[Path],
    seeds: Sequence[int],
    seed_key: str,
    runs: Path | None,
    home: Path,
) -> list[Entry]:
    """The product of commits, configs and seeds, each job once.

    Raises:
        UserError: what is wrong with any of them, before one is started.
    """
    if job.allow_dirty:
        raise UserError("a queue runs commits as they are: commit first, without --allow-dirty")
    entries: dict[Path, Entry] = {}
    each: list[int | None] = [*seeds] or [None]
    for commit, config, seed in product(commits, configs, each):
        overrides = job.overrides if seed is None else (*job.overrides, seed_key, str(seed))
        one = replace(job, ref=commit, config=config, overrides=overrides)
        with using(home):
            plan = make_plan(one, home)
        run = plan.run(runs)
        title = " ".join(filter(None, [commit[:12], config.name, seed_title(seed)]))
        entry = Entry(title, run, words=launcher_words(plan, run))
        if run.status().state == "finished":
            entry.state = "finished before"
        entries.setdefault(run.path, entry)
    return list(entries.values())


def seed_title(seed: int | None) -> str:
    """A seed in a table."""
    return "" if seed is None else f"seed {seed}"


def launcher_words(plan: LaunchPlan, run: RunDir) -> tuple[str, ...]:
    """The launcher's arguments for a planned job whose run lies at `run`.

    They name the exact commit, since a branch may move before the job's turn comes, and no
    credentials, since every process can read another's arguments.
    """
    job = plan.job
    os.environ.update({name: value for name, value in plan.source.login().items() if value})
    config = job.caller / job.config
    words = ["--repo", plan.source.url, "--commit", plan.commit]
    words += ["--config", str(config if config.exists() else job.config)]
    words += ["--module", job.module, f"--config-flag={job.config_flag}"]
    words += ["--environment", job.environment, "--runs", str(run.path.parents[1])]
    words += ["--caller", str(job.caller), *job.overrides]
    return (*words, "--", *job.arguments) if job.arguments else tuple(words)


def run_queue(entries: Sequence[Entry], executor: Executor, parallel: int) -> int:
    """Run what is not finished, `parallel` at a time; 0 only where all are finished.

    Ctrl-C asks every job to save a checkpoint and stop; a second Ctrl-C kills them. The same
    command resumes the queue.
    """
    stops = StopForwarding(lambda *_: cancel_running(entries, executor))
    with live_table(entries) as show, stops:
        while any(entry.state in ("waiting", "running") for entry in entries):
            step(entries, executor, 0 if stops.count else parallel)
            show()
            if stops.count and not any(entry.state == "running" for entry in entries):
                break
            time.sleep(POLL_S)
    if all(entry.state.startswith("finished") for entry in entries):
        return 0
    return 130 if stops.count else 1


def step(entries: Sequence[Entry], executor: Executor, parallel: int) -> None:
    """See who has ended, and start who may."""
    for entry in entries:
        if entry.state == "running":
            look(entry, executor)
    room = parallel - sum(entry.state == "running" for entry in entries)
    for entry in [entry for entry in entries if entry.state == "waiting"][: max(0, room)]:
        entry.ticket = executor.submit(entry.words)
        entry.state, entry.started = "running", time.monotonic()


def look(entry: Entry, executor: Executor) -> None:
    """Bring an entry up to date."""
    entry.seconds = time.monotonic() - entry.started
    outcome = executor.poll(entry.ticket)
    if outcome is None:
        return
    code, entry.note = outcome.code, outcome.message
    entry.state = "finished" if code == 0 else "killed" if code > 128 else "failed"


def cancel_running(entries: Sequence[Entry], executor: Executor) -> None:
    """Ask every running job to stop; a second time kills it."""
    for entry in entries:
        if entry.state == "running":
            executor.cancel(entry.ticket)
