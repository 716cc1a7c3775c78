"""Runs a study's trials as launches: each at the study's commit, in a workspace of its own."""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

from zoerefine.errors import UserError
from zoerefine.launch.launch_plan import LaunchPlan
from zoerefine.launch.launcher import start
from zoerefine.launch.mirror import fetch_commit, mirrors_in_use
from zoerefine.progress import say
from zoerefine.run_dir import RunDir
from zoerefine.run_metrics import read_metrics
from zoerefine.searching.space import Values
from zoerefine.searching.trial_runner import KILLED, TrialMonitor, TrialOutcome
from zoerefine.searching.trial_watch import TrialWatch

NAMED = 20  # metrics that a message lists


class LaunchedRunner:
    """Runs a script once for each trial.

    Args:
        plan_of: the launch of a trial with these values.
        metric: whose final value is the trial's.
    """

    def __init__(self, plan_of: Callable[[Values], LaunchPlan], metric: str) -> None:
        self.plan_of, self.metric = plan_of, metric

    def run(self, run: RunDir, values: Values, monitor: TrialMonitor) -> TrialOutcome:
        """Launch the script with a trial's values, follow its metric, and read its last value.

        Raises:
            SystemExit: a process of the script was killed by SIGKILL, which is no fault of its
                own; as if this one was, another worker can go on.
        """
        plan = self.plan_of(values)
        run.path.parent.mkdir(exist_ok=True)  # the launcher would add a .gitignore
        watch = TrialWatch(run, self.metric, plan.job.metric_pattern, monitor)
        with mirrors_in_use(plan.home), output_to_log():
            fetch_commit(plan.address, plan.commit, plan.home)  # --clean may have removed it
            code = start(plan, run, watch=watch.watching)
        if watch.interrupted:
            raise KeyboardInterrupt
        if watch.fault:
            raise watch.fault
        if watch.pruned:
            run.set_status("killed", watch.pruned)
            figures = {} if watch.last is None else {self.metric: watch.last}
            return TrialOutcome(figures, watch.pruned, metrics_note(run, "pruned"))
        if code == KILLED:
            say(f"the trial's script was killed: {run.status().reason}")
            raise SystemExit(KILLED)
        if code:
            raise UserError(run.status().reason or f"exit code {code}")
        return TrialOutcome(
            {self.metric: final_value(run, self.metric)}, note=metrics_note(run, "finished")
        )


@contextmanager
def output_to_log() -> Iterator[None]:
    """The job's output goes to its run's log.txt alone, not to the worker's log too."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def final_value(run: RunDir, name: str) -> float:
    """A metric's final value. Raises `UserError`, naming the metrics that the run has."""
    found = read_metrics(run)
    if name not in found.final:
        names = sorted(found.final)
        known = f"it has {', '.join(names[:NAMED])}" if names else "it has no metrics at all"
        raise UserError(f"the run has no metric {name}: {known}")
    value = found.final[name]
    if not math.isfinite(value):
        raise UserError(f"{name} is {value} at the end")
    return value


def metrics_note(run: RunDir, state: str) -> str:
    """How a trial ended and its final metrics, in Markdown."""
    final = read_metrics(run).final
    rows = [f"| {name} | {value:.6g} |" for name, value in sorted(final.items())]
    return "\n".join([f"**{state}**", "", "| metric | final |", "|---|---:|", *rows])
