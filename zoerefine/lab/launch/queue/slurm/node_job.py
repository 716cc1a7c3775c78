"""What a Slurm job runs on its node: the launcher, and what Slurm's signals ask for.

- SIGUSR1 comes before the time limit: the launch stops with a checkpoint, and the job is queued
  again under its own number.
- SIGINT is the user's wish to stop: the launch stops with a checkpoint, and the job ends.
- SIGTERM is preemption, `scancel`, or the limit itself. Slurm sends it to every process of the job,
  so the training has it, too; Slurm decides whether the job is queued again.

A job on several nodes runs its script on node 0, with the launch that has the run, and from there a
step (srun) that runs the launcher on each other node. Only the launch on node 0 is asked to stop;
it passes this on (`launch/process/nodes.py`). A node that dies ends the whole job, which Slurm puts
back in its queue.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from zoerefine.lab.launch.process.child import ONLY, NodePlace
from zoerefine.lab.launch.process.nodes import NODE_LOST
from zoerefine.lab.launch.queue.executor import JobOutcome, LaunchProcess
from zoerefine.lab.launch.queue.slurm.commands import SlurmError, requeue, run_slurm
from zoerefine.lab.launch.queue.slurm.submission import NODE_PROGRAM, SlurmFiles

POLL_S = 0.1
MARGIN_S = 10.0  # before the limit, in which a job that did not stop is killed and queued again
TERM_WAIT_S = 2.0
TIME_LIMIT = 124
ENDING_S = 100.0  # for node 0 to end after the others, and for them to end after it
ADDRESS = re.compile(r"\bNodeAddr=(\S+)")


def main() -> int:
    """Run the job of a folder, the first argument; with its group, its launch on another node."""
    files = SlurmFiles(Path(sys.argv[1]))
    if len(sys.argv) > 2:
        return run_other(files, sys.argv[2])
    return NodeJob(files, os.environ["SLURM_JOB_ID"]).run()


def first_place(number: str, nodes: int) -> NodePlace:
    """The place of the node that runs the script of a job."""
    group = f"{number}-{os.environ.get('SLURM_RESTART_COUNT', '0')}"
    return NodePlace(group, 0, nodes, node_address())


def node_address() -> str:
    """How other nodes reach this one: as Slurm's daemons do."""
    name = os.environ.get("SLURMD_NODENAME", os.uname().nodename)
    try:
        found = ADDRESS.search(run_slurm("scontrol", "--oneliner", "show", "node", name))
    except SlurmError:
        found = None
    return found[1] if found else name


class OtherNodes:
    """The step that runs the launches on all nodes but the first."""

    def __init__(self, files: SlurmFiles, place: NodePlace) -> None:
        others = place.nodes - 1
        command = ["srun", "--relative=1", f"--nodes={others}", f"--ntasks={others}"]
        command += ["--ntasks-per-node=1", f"--cpus-per-task={os.environ['SLURM_CPUS_PER_TASK']}"]
        command += ["--kill-on-bad-exit=0", sys.executable, "-P", "-m", NODE_PROGRAM]
        self._step = subprocess.Popen(
            [*command, str(files.folder), place.group], stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        self._ended_s = 0.0

    def wanted_stops(self) -> int:
        """How often to stop node 0's launch, because it goes on although the others have failed.

        Where they have succeeded it may go on: rank 0 often evaluates alone, or collects files.
        """
        if not self._step.poll():  # they run, or have succeeded
            return 0
        self._ended_s = self._ended_s or time.monotonic()
        return min(2, int((time.monotonic() - self._ended_s) / ENDING_S))

    def wait(self, seconds: float = ENDING_S) -> None:
        """Wait for the other launches after node 0's has ended; end what does not."""
        try:
            self._step.wait(seconds)
        except subprocess.TimeoutExpired:
            self._step.kill()
            self._step.wait()


class NodeJob:
    """A launch inside a Slurm job."""

    def __init__(self, files: SlurmFiles, number: str) -> None:
        self.files, self.number = files, number
        job = json.loads(files.job_file.read_text(encoding="utf-8"))
        self.words: list[str] = job["words"]
        self.nodes: int = job["nodes"]
        self.grace_s: int = job["grace"]
        self.requeues: int = job["requeues"]
        self.came: Counter[int] = Counter()  # signals, by number
        self.asked = 0  # how often the launch was asked to stop; the second time kills it
        self.limit_s = 0.0

    def run(self) -> int:
        """Run the launch to its end, then record its outcome or queue the job again."""
        for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)
        print(f"job {self.number} on {os.uname().nodename}", file=sys.stderr, flush=True)
        place = first_place(self.number, self.nodes) if self.nodes > 1 else ONLY
        launch = LaunchProcess(self.words, ignores_sigterm=True, place=place)
        others = OtherNodes(self.files, place) if self.nodes > 1 else None
        while (outcome := launch.poll()) is None:
            while self.asked < self._wanted_stops(others):
                self.asked += 1
                launch.stop()
            time.sleep(POLL_S)
        print(launch.messages(), file=sys.stderr, flush=True)
        if others and others.wanted_stops():
            reason = "the other nodes' launches have failed; see the job's log"
            outcome = JobOutcome(1, reason, by_cluster=True)
        if others and outcome.code == NODE_LOST:  # node 0's launch has waited for it
            others.wait(0)
        elif others:
            others.wait()
        return self._end(outcome)

    def _note(self, number: int, _: object) -> None:
        self.came[number] += 1
        if number == signal.SIGUSR1 and not self.limit_s:
            self.limit_s = time.monotonic() + self.grace_s

    def _wanted_stops(self, others: OtherNodes | None) -> int:
        """0: go on; 1: save a checkpoint and stop; 2: end at once."""
        if self.came[signal.SIGINT]:
            return 2 if self.came[signal.SIGINT] > 1 or self.came[signal.SIGTERM] else 1
        if self.limit_s:
            return 2 if time.monotonic() > self.limit_s - MARGIN_S else 1
        return others.wanted_stops() if others else 0

    def _end(self, outcome: JobOutcome) -> int:
        if outcome.code == 0 or self.came[signal.SIGINT]:
            self.files.write_outcome(self.number, outcome)
        elif self.came[signal.SIGTERM]:
            pass  # the job runs again, or Slurm's list says that it was cancelled
        elif self.limit_s:
            self._queue_again("it reached its time limit")
        elif outcome.code == NODE_LOST:
            self._queue_again("one of its nodes was lost")
        else:
            self.files.write_outcome(self.number, outcome)
        return outcome.code

    def _queue_again(self, why: str) -> None:
        """Put the job back in Slurm's queue, which ends this process."""
        times = self.files.requeued(self.number)
        reason = f"{why}, and it was queued again {times} times (--requeues {self.requeues})"
        if times < self.requeues:
            self.files.count_requeue(self.number)
            try:
                requeue(self.number)
                return
            except SlurmError as error:
                time.sleep(TERM_WAIT_S)  # Slurm may have ended the command with the job
                if self.came[signal.SIGTERM]:
                    return
                reason = f"{why}, and it cannot be queued again: {error}"
        self.files.write_outcome(self.number, JobOutcome(TIME_LIMIT, reason, True))


def run_other(files: SlurmFiles, group: str) -> int:
    """Run the launch of one other node; returns its exit code."""
    # Slurm sends it to every process of the job, so the training has it, too.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    job = json.loads(files.job_file.read_text(encoding="utf-8"))
    place = NodePlace(group, int(os.environ["SLURM_PROCID"]) + 1, job["nodes"])
    launch = LaunchProcess(job["words"], ignores_sigterm=True, place=place)
    outcome = launch.wait()
    print(launch.messages(), file=sys.stderr, flush=True)
    return outcome.code


if __name__ == "__main__":
    sys.exit(main())
