"""How a job ended and why, from its last words and torchrun's report."""

import re
from collections.abc import Container
from dataclasses import dataclass
from signal import SIGABRT, SIGKILL, SIGTERM, Signals

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


# Hydra's advice after its errors.
ADVICE = re.compile(r"Set the environment variable HYDRA_FULL_ERROR|See https://hydra\.cc/")
ERROR_LINE = re.compile(
    r"(error\b.*|Could not override .*|[\w./-]+: error: .*|"
    r"[\w.]*(Error|Exception|Interrupt)\b(: .*)?)",
    re.IGNORECASE,
)
# Errors of a process whose connection to another one is lost. The other's error says why.
LOST_CONNECTION = re.compile(r"gloo|nccl", re.IGNORECASE)
NODE_ENDED = "the job has ended there"
EFFECT = re.compile(rf"{LOST_CONNECTION.pattern}|KeyboardInterrupt|{NODE_ENDED}$", re.IGNORECASE)
RANK = re.compile(r"\[rank(\d+)\]: ")  # PyTorch puts it before the errors of a process of several
# A process that ends while gloo's threads run may abort in the interpreter's shutdown. It has said
# before why it ends, and its exit code is lost.
SHUTDOWN_ABORT = "terminate called without an active exception"
FAILED = 1  # the exit code after an exception, or of sys.exit("message")


@dataclass(frozen=True)
class JobEnd:
    """How a job has ended.

    Attributes:
        code: as Popen gives it: -N where signal N ended it.
        reason: why it has failed or was stopped.
    """

    code: int
    reason: str


class LastWords:
    """What the lines of a job say about its end."""

    def __init__(self) -> None:
        self._report = TorchrunReport()
        self._error = ""  # the last line that names an error, but for lost connections
        self._lost = ""  # the first lost connection
        self._lost_ranks: set[int] = set()
        self._last = self._last_of_stderr = ""
        self._aborted = False

    def hear(self, line: str, is_stderr: bool) -> None:
        """Note a line."""
        if self._report.read(line):
            return
        prefix = RANK.match(line)
        text = line[prefix.end() :] if prefix else line
        if text == SHUTDOWN_ABORT:
            self._aborted = True
        elif text and not ADVICE.match(text):
            self._last = text
            if is_stderr and not prefix:  # with it, it is a line of a traceback
                self._last_of_stderr = text
            if ERROR_LINE.fullmatch(text):
                self._note_error(text, prefix)

    def _note_error(self, text: str, prefix: re.Match[str] | None) -> None:
        if not LOST_CONNECTION.search(text):
            self._error = text
            return
        self._lost = self._lost or text
        if prefix:
            self._lost_ranks.add(int(prefix[1]))

    def end(self, code: int, stopped: int, failure: str, by_torchrun: bool = False) -> JobEnd:
        """How the job has ended.

        Args:
            code: of the process that we started, as Popen gives it.
            stopped: the first stop signal that was passed on; 0: none.
            failure: why the job has failed elsewhere; empty where it has not.
            by_torchrun: whether that is torchrun, which exits with 1 for every failure.
        """
        if stopped:
            return self._stopped(code, stopped, by_torchrun)
        if not by_torchrun:
            return self._alone(code)
        cause = self._report.cause(self._lost_ranks)
        own = self._of_rank(cause) if code and cause else self._of_torchrun(code)
        return self._cause_of_all(own, cause, failure) if failure else own

    def _stopped(self, code: int, number: int, by_torchrun: bool) -> JobEnd:
        reason = f"stopped by {signal_name(number)}"
        if by_torchrun:
            return JobEnd(-number if code == FAILED else code, reason)
        has_failed = code == FAILED and self._error and not EFFECT.search(self._error)
        return JobEnd(code, self._error if has_failed else reason)

    def _alone(self, code: int) -> JobEnd:
        said = self._error or self._lost or self._last
        return JobEnd(code, said if said and code != -SIGKILL else how_ended(code))

    def _of_torchrun(self, code: int) -> JobEnd:
        """The end of torchrun itself, without a report: it could not start, or was killed."""
        said = self._error or self._lost or self._last_of_stderr
        return JobEnd(code, said if said and code >= 0 else how_ended(code, "torchrun"))

    def _of_rank(self, rank: RankEnd) -> JobEnd:
        code = FAILED if rank.code == -SIGABRT and self._aborted else rank.code
        said = self._error
        if code == FAILED:  # of an exception, or of sys.exit with a message
            own = self._lost if rank.rank in self._lost_ranks else self._last_of_stderr
            said = said or own
        return JobEnd(
            code, said if said and code != -SIGKILL else how_ended(code, f"rank {rank.rank}")
        )

    def _cause_of_all(self, own: JobEnd, cause: RankEnd | None, elsewhere: str) -> JobEnd:
        """The end of a job that has failed on another node, too: by what came first."""
        has_error = self._error and not EFFECT.search(self._error)
        is_first = has_error or (cause and (own.code != FAILED or EFFECT.search(elsewhere)))
        return own if own.code and is_first else JobEnd(FAILED, elsewhere)


def how_ended(code: int, who: str = "") -> str:
    """An end in words: `rank 1 was killed by SIGKILL`, `exit code 7`."""
    if code < 0:
        return f"{who} was killed by {signal_name(-code)}".removeprefix(" was ")
    return f"{who} ended with exit code {code}".removeprefix(" ended with ")


def signal_name(number: int) -> str:
    """SIGKILL for 9."""
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"
