"""How what we started ends: stop signals are passed on to it, and trees of processes are killed."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from zoerefine.base.run_dir import RUN_FOLDER, RunDir

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopForwarding:
    """While entered, a stop signal is handed to `forward` and does not end this process.

    `forward(number, count)` gets the signal's number and how many came so far, this one included:
    by convention the first asks the children to stop with a checkpoint, the second kills them.
    A signal that this process was started to ignore (nohup) stays ignored.

    Attributes:
        count: how many stop signals came.
        number: of the first one; 0 before that.
        failure: why the job has failed elsewhere; empty where it has not.
    """

    def __init__(self, forward: Callable[[int, int], None]) -> None:
        self.count = self.number = 0
        self.failure = ""
        self.forward = forward
        self._failures = 0
        self._waiting: list[int] | None = None

    def __enter__(self) -> "StopForwarding":
        self._previous = {
            number: signal.signal(number, self._receive)
            for number in STOP_SIGNALS
            if signal.getsignal(number) != signal.SIG_IGN
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """While entered, signals wait, so that they reach what is being started."""
        self._waiting = []
        try:
            yield
        finally:
            waiting, self._waiting = self._waiting, None
            for number in waiting:
                self._receive(number, None)

    def stop(self) -> None:
        """Do what Ctrl-C would; from any thread."""
        self._receive(signal.SIGINT, None)

    def fail(self, reason: str) -> None:
        """Do what Ctrl-C would, for a job that has failed elsewhere; from any thread."""
        self.failure = reason
        self._failures += 1
        self.forward(signal.SIGINT, self.count + self._failures)

    def _receive(self, number: int, _: object) -> None:
        if self._waiting is not None:
            self._waiting.append(number)
            return
        self.count += 1
        self.number = self.number or number
        self.forward(number, self.count + self._failures)


def kill_tree(pid: int) -> None:
    """Kill a process, and all below it."""
    with suppress(OSError):  # it has ended, or has become another user's
        os.kill(pid, signal.SIGSTOP)  # it starts no other one now
    children = [*children_of(pid)]  # before they get another parent
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    for child in children:
        kill_tree(child)


def children_of(pid: int) -> Iterator[int]:
    """The processes that a process has started and that run."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if (entry / "stat").read_text().rpartition(")")[2].split()[1] == str(pid):
                yield int(entry.name)


# Jobs of several processes, which torchrun starts and watches on each machine.
#
# torchrun passes a stop signal on, and ends all processes where one fails. Where torchrun itself
# is killed, they go on alone: `end_processes` ends them, so that a run never has two writers.

# torchrun's options for one machine: it chooses a free port, on which the processes find one
# another.
ALONE = ("--standalone",)
ENDING_S = 5.0  # for killed processes to end
POLL_S = 0.01


def job_command(
    python: Path, program: Sequence[str], processes: int, meeting: Sequence[str] = ALONE
) -> list[str]:
    """Python and its words for the job: the job itself, or torchrun, which starts it N times.

    Args:
        program: as `job_module.job_program` gives it.
        processes: on this machine.
        meeting: torchrun's options for where the processes of all machines find one another.
    """
    if processes == 1 and meeting == ALONE:
        return [str(python), *program]
    start = ["-m", "torch.distributed.run", *meeting, f"--nproc-per-node={processes}"]
    return [str(python), *start, *program]


def end_processes(run: RunDir, node: int = 0) -> None:
    """Kill what a killed torchrun has left of a run on this machine.

    Args:
        node: the number of this machine's node in the job.
    """
    deadline = time.monotonic() + ENDING_S
    while (found := [*processes_of(run, node)]) and time.monotonic() < deadline:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_S)


def processes_of(run: RunDir, node: int = 0) -> Iterator[int]:
    """This user's processes that torchrun has started for a run, by their environment.

    Several nodes may be on one machine; torchrun calls a node's number GROUP_RANK.
    """
    ours = {f"{RUN_FOLDER}={run.path}".encode(errors="surrogateescape"), b"GROUP_RANK=%d" % node}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's, or it has ended
            if ours <= set((entry / "environ").read_bytes().split(b"\0")):
                yield int(entry.name)
