"""torchrun's report on the processes of a job that have failed, read from the job's output."""

import re
from collections.abc import Container
from dataclasses import dataclass
from signal import SIGTERM

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
