"""torchrun, which starts the processes of a job and watches them on each machine.

It passes a stop signal on, and ends all processes where one fails. Where torchrun itself is killed,
they go on alone: `end_processes` ends them, so that a run never has two writers. The end of this
file reads what torchrun reports of a failed process.
"""

import os
import re
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGTERM

from zoerefine.base.run_dir import RUN_FOLDER, RunDir

# torchrun's options for one machine: it chooses a free port, on which the processes find one
# another.
ALONE = ("--standalone",)
ENDING_S = 5.0  # for killed processes to end
POLL_S = 0.01


def torchrun_words(processes: int, meeting: Sequence[str] = ALONE) -> list[str]:
    """Python's words before those of a job that torchrun starts N times.

    Args:
        processes: on this machine.
        meeting: torchrun's options for where the processes of all machines find one another.
    """
    return ["-m", "torch.distributed.run", *meeting, f"--nproc-per-node={processes}"]


def end_processes(run: RunDir, node: int = 0) -> None:
    """Kill what a killed torchrun has left of a run on this machine.

    Args:
        node: the number of this machine's node in the job.
    """
    deadline = time.monotonic() + ENDING_S
    while (found := [*processes_of(run, node)]) and time.monotonic() < deadline:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, SIGKILL)
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


# The first line of what torchrun says when a process has failed, or when it is asked to stop.
START = re.compile(r"(E|W(?=.* (closing|death) signal))\d{4} .*torch/distributed/elastic/.*")
ROOT = "Root Cause"
FIELD = re.compile(
    r"time *: (?P<time>\d{4}-\S+)|rank *: (?P<rank>\d+) \(local_rank.*"
    r"|exitcode *: (?P<code>-?\d+) \(pid.*"
)


@dataclass(frozen=True)
class RankEnd:
    """How a process of several has ended.

    Attributes:
        code: as Popen gives it: -N where signal N ended it.
        time: when torchrun saw it, to the second.
    """

    rank: int
    code: int
    time: str


class TorchrunReport:
    """Reads the report line by line.

    Attributes:
        begun: whether its first line was seen.
    """

    def __init__(self) -> None:
        self.begun = False
        self._root: RankEnd | None = None
        self._others: list[RankEnd] = []
        self._is_root = False
        self._time, self._rank = "", -1

    def read(self, line: str) -> bool:
        """Whether a line belongs to the report, which is the last that torchrun prints."""
        self.begun = self.begun or START.fullmatch(line) is not None
        if self.begun:
            self._is_root = self._is_root or line.startswith(ROOT)
            if found := FIELD.fullmatch(line):
                self._keep(found)
        return self.begun

    def _keep(self, found: re.Match[str]) -> None:
        if found["time"]:
            self._time = found["time"]
        elif found["rank"]:
            self._rank = int(found["rank"])
        else:
            end = RankEnd(self._rank, int(found["code"]), self._time)
            if self._is_root:
                self._root = end
            else:
                self._others.append(end)

    def cause(self, effects: Container[int] = ()) -> RankEnd | None:
        """The process that failed first; None without a report.

        Args:
            effects: ranks that failed because another one was gone. torchrun may have seen both
                ends at once, and then names either.
        """
        root = self._root
        if root is None or root.rank not in effects:
            return root
        # What ended later, or by SIGTERM, was ended by torchrun.
        same = [one for one in self._others if one.time == root.time and one.code != -SIGTERM]
        return next((one for one in same if one.rank not in effects), root)
