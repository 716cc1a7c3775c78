"""Watches a launched trial: reports its metric to the study as it comes, and stops pruned jobs.

A job is stopped as Ctrl-C stops it: SIGINT first, and SIGKILL after a grace time.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zoerefine.launch.stop_forwarding import StopForwarding
from zoerefine.run_dir import RunDir
from zoerefine.run_metrics import MetricFollower
from zoerefine.searching.trial_runner import TrialMonitor

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

    def __init__(self, run: RunDir, name: str, pattern: str, monitor: TrialMonitor) -> None:
        self.run, self.name, self.pattern, self.monitor = run, name, pattern, monitor
        self.pruned = ""
        self.last: float | None = None
        self.fault: Exception | None = None
        self.interrupted = False
        self._seen: set[int] = set()
        self._ended = threading.Event()
        self._stopped_s = 0.0
        self._sent = 0

    @contextmanager
    def watching(self, workspace: Path, stops: StopForwarding) -> Iterator[None]:
        """Watch the job that was just started in a workspace, until it has ended."""
        follower = MetricFollower(self.run, workspace, self.name, self.pattern)
        thread = threading.Thread(target=self._follow, args=(follower, stops), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            self._guarded(follower)  # what the job wrote last
            self.interrupted = stops.count > self._sent

    def _follow(self, follower: MetricFollower, stops: StopForwarding) -> None:
        checked = time.monotonic()
        while not self._ended.wait(POLL_S):
            check = time.monotonic() - checked > CHECK_S
            if check:
                checked = time.monotonic()
            self._guarded(follower, check)
            if self.pruned or self.fault:
                self._stop(stops)

    def _guarded(self, follower: MetricFollower, check: bool = False) -> None:
        """Report what is new; keep what goes wrong for the main thread."""
        try:
            if check:
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
            ended = self.pruned or self.fault or self._ended.is_set()
            if is_reported(len(self._seen)) and not self.pruned and not self.fault:
                stop = self.monitor.is_pruned(self.name, number, value)
                if stop and not ended:
                    self.pruned = f"pruned at step {step:g}, {self.name} {value:.4g}"

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
