"""Runs a study's trials as launches: each at the study's commit, in a workspace of its own."""

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

from zoerefine.base.errors import KILLED, UserError
from zoerefine.base.messages import say
from zoerefine.base.run_dir import RunDir
from zoerefine.base.threads import repeating
from zoerefine.base.yaml.equal_values import differing
from zoerefine.lab.launch.git.mirror import fetch_commit, mirrors_in_use
from zoerefine.lab.launch.launcher import start, take_patterns
from zoerefine.lab.launch.plan import LaunchPlan
from zoerefine.lab.launch.process.child import StopForwarding
from zoerefine.lab.launch.record.comparison import AT_STEP, compared_numbers
from zoerefine.lab.launch.workspace.left import committed_logs
from zoerefine.lab.runs.metrics import MetricFollower, read_metrics
from zoerefine.lab.runs.metrics.steps import is_telling
from zoerefine.lab.runs.record import PRUNED
from zoerefine.lab.search.space.space import Values
from zoerefine.lab.search.subject import NoSuchMetric, TrialMonitor, TrialOutcome

# Watches a launched trial: reports its metric to the study as it comes, and stops pruned jobs.
#
# A job is stopped as Ctrl-C stops it: SIGINT first, and SIGKILL after a grace time.

POLL_S = 0.5  # between looks at the files of a job
CHECK_S = 5.0  # between questions to the database whether the trial is still this worker's
GRACE_S = 30.0  # that a job has to stop


class TrialWatch:
    """Follows one job while it runs.

    Attributes:
        pruned: why the job was stopped by the pruner; empty where it was not.
        last: the metric's last value; None where there was none.
        fault: what the study or the metric's files raised. The job was stopped then.
        interrupted: whether a signal from outside asked to stop.
    """

    def __init__(
        self, run: RunDir, name: str, patterns: Sequence[str], monitor: TrialMonitor
    ) -> None:
        self.run, self.name, self.patterns, self.monitor = run, name, patterns, monitor
        self.pruned = ""
        self.last: float | None = None
        self.fault: Exception | None = None
        self.interrupted = False
        self._seen: set[int] = set()
        self._has_ended = False
        self._checked_s = self._stopped_s = 0.0
        self._sent = 0

    @contextmanager
    def watching(self, workspace: Path, stops: StopForwarding) -> Iterator[None]:
        """Watch the job that was just started in a workspace, until it has ended."""
        committed = committed_logs(workspace)
        follower = MetricFollower(self.run, workspace, self.name, self.patterns, committed)
        self._checked_s = time.monotonic()
        try:
            with repeating(partial(self._look, follower, stops), POLL_S):
                try:
                    yield
                finally:
                    self._has_ended = True
        finally:
            self._guarded(follower)  # what the job wrote last
            self.interrupted = stops.count > self._sent

    def _look(self, follower: MetricFollower, stops: StopForwarding) -> None:
        self._guarded(follower)
        if self.pruned or self.fault:
            self._stop(stops)

    def _guarded(self, follower: MetricFollower) -> None:
        """Report what is new; keep what goes wrong for the main thread."""
        try:
            if time.monotonic() - self._checked_s > CHECK_S and not self._has_ended:
                self._checked_s = time.monotonic()
                self.monitor.check_held()
            self._report(follower)
        except Exception as error:
            self.fault = self.fault or error

    def _report(self, follower: MetricFollower) -> None:
        for step, value in follower.new():
            self.last = value
            number = int(step)
            if number in self._seen:  # logged again after a restart
                continue
            self._seen.add(number)
            ended = self.pruned or self.fault or self._has_ended
            if is_reported(len(self._seen)) and not self.pruned and not self.fault:
                stop = self.monitor.is_pruned(number, {self.name: value})
                if stop and not ended:
                    self.pruned = f"{PRUNED} {step:g}, {self.name} {value:.4g}"

    def _stop(self, stops: StopForwarding) -> None:
        """Ask the job to stop; kill it after the grace time."""
        if self._sent == 0:
            self._stopped_s = time.monotonic()
        elif self._sent > 1 or time.monotonic() - self._stopped_s < GRACE_S:
            return
        self._sent += 1
        stops.stop()


def is_reported(count: int) -> bool:
    """Whether the value of this count is reported to the study: each of the first hundred, then
    every tenth, from the thousandth on every hundredth, and so on.

    Each report is a write to the database, and a script may log each of a million steps.
    """
    return count % 10 ** max(0, len(str(count)) - 2) == 0


NAMED = 20  # metrics that a message lists


def run_launch(
    plan_of: Callable[[Values], LaunchPlan],
    metric: str,
    run: RunDir,
    values: Values,
    monitor: TrialMonitor,
) -> TrialOutcome:
    """Launch a script with a trial's values, follow its metric, and read its last value.

    Args:
        plan_of: the launch of a trial with these values.
        metric: whose final value is the trial's.

    Raises `SystemExit` where a process of the script was killed by SIGKILL, which is no fault of
    its own: as if this one was, another worker can go on.
    """
    plan = plan_of(values)
    run.path.parent.mkdir(exist_ok=True)  # the launcher would add a .gitignore
    watch = TrialWatch(run, metric, plan.job.metric_patterns, monitor)
    with mirrors_in_use(plan.home), output_to_log():
        fetch_commit(plan.address, plan.commit, plan.home)  # --clean may have removed it
        code = start(plan, run, watch=watch.watching)
    take_patterns(run, plan.job.metric_patterns)
    if watch.interrupted:
        raise KeyboardInterrupt
    if watch.fault:
        raise watch.fault
    if watch.pruned:
        run.set_status("killed", watch.pruned)
        figures = {} if watch.last is None else {metric: watch.last}
        return TrialOutcome(figures, watch.pruned, metrics_note(run, "pruned"))
    if code == KILLED:
        say(f"the trial's script was killed: {run.status().reason}")
        raise SystemExit(KILLED)
    if code:
        raise UserError(run.status().reason or f"exit code {code}")
    return TrialOutcome({metric: final_value(run, metric)}, note=metrics_note(run, "finished"))


@contextmanager
def output_to_log() -> Iterator[None]:
    """The job's output goes to its run's log.txt alone, not to the worker's log too."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def unread_values(study: RunDir, metric: str) -> str:
    """A question where trials of different values have the same metrics; empty where none have.

    Args:
        metric: what the trials are compared by, which counts also if it is a time.
    """
    paths = (path for path in study.path.glob("trials/[0-9]*") if path.name.isdecimal())
    ended = [run for run in map(RunDir, paths) if run.status().state == "finished"]
    numbers = [sorted(deciding_numbers(run, metric).items()) for run in ended]
    trials = [(values_of(run), repr(one)) for run, one in zip(ended, numbers, strict=True)]
    count, keys = unread_keys([one for one in trials if one[1] != "[]"])
    return keys and (
        f"{count} of {len(ended)} finished trials have exactly the same metrics as another; does "
        f"the script read {keys}?"
    )


def deciding_numbers(run: RunDir, metric: str) -> dict[str, float]:
    """The metric at every step; where that may be equal by chance, every number that is no time."""
    numbers = compared_numbers(run, [metric])
    own = {k: one for k, one in numbers.items() if k.partition(AT_STEP)[0] == metric}
    return own if is_telling(own.values()) else numbers


def values_of(run: RunDir) -> dict[str, str]:
    """The KEY VALUE words of a launched trial."""
    words = run.read_json(run.provenance_file)["overrides"]
    return dict(zip(words[::2], words[1::2], strict=True))


def unread_keys(trials: Sequence[tuple[Mapping[str, str], str]]) -> tuple[int, str]:
    """How many trials have the metrics of another one, and the keys that may not be read.

    A key is read where two trials that differ in it alone have different metrics.

    Args:
        trials: the values and the metrics of each.
    """
    first: dict[str, Mapping[str, str]] = {}
    found = [differing(first.setdefault(metrics, values), values) for values, metrics in trials]
    suspects = dict.fromkeys(key for differ in found for key in differ)
    keys = [key for key in suspects if not is_read(key, trials)]
    alike = [metrics for (_, metrics), differ in zip(trials, found, strict=True)
             if not set(keys).isdisjoint(differ)]  # fmt: skip
    return len(alike) + len(set(alike)), " and ".join(keys)


def is_read(key: str, trials: Sequence[tuple[Mapping[str, str], str]]) -> bool:
    """Whether two trials that differ in this key alone have different metrics."""
    rest: dict[frozenset[tuple[str, str]], str] = {}
    return any(
        rest.setdefault(frozenset((k, v) for k, v in values.items() if k != key), metrics)
        != metrics
        for values, metrics in trials
    )


def final_value(run: RunDir, name: str) -> float:
    """A metric's final value. Raises `NoSuchMetric`, naming the metrics that the run has, or
    `UserError` where it is not finite.
    """
    found = read_metrics(run)
    if name not in found.final:
        names = sorted(found.final)
        if not names:
            raise NoSuchMetric(
                f"the run has no metric {name}: it has none; --metric-pattern finds metrics in the "
                "output"
            )
        raise NoSuchMetric(f"the run has no metric {name}: it has {', '.join(names[:NAMED])}")
    value = found.final[name]
    if not math.isfinite(value):
        raise UserError(f"{name} is {value} at the end")
    return value


def metrics_note(run: RunDir, state: str) -> str:
    """How a trial ended and its final metrics, in Markdown."""
    final = read_metrics(run).final
    rows = [f"| {name} | {value:.6g} |" for name, value in sorted(final.items())]
    return "\n".join([f"**{state}**", "", "| metric | final |", "|---|---:|", *rows])
