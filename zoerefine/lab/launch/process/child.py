"""The child process of a launch: starts the job, passes signals on, and records how it ended.

A first stop signal is passed on; at a second one the job's whole tree of processes is killed.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from zoerefine.base.run_dir import NODE, RunDir
from zoerefine.base.secrets import hide_secrets
from zoerefine.lab.launch.process.end_reason import JobEnd
from zoerefine.lab.launch.process.output import OutputLog, Outputs
from zoerefine.lab.launch.process.torchrun import ALONE
from zoerefine.lab.launch.record.provenance import add, now

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopForwarding:
    """While entered, a stop signal is handed to `forward` and does not end this process.

    `forward(number, count)` gets the signal's number and how many came so far, this one included:
    by convention the first asks the children to stop with a checkpoint, the second kills them.
    A signal that this process was started to ignore (nohup) stays ignored. In a thread other than
    the main one no signal is received.

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
        in_main_thread = threading.current_thread() is threading.main_thread()
        self._previous = {
            number: signal.signal(number, self._receive)
            for number in (STOP_SIGNALS if in_main_thread else ())
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


# Given the workspace and what stops the job, a context that is entered while the job runs.
Watch = Callable[[Path, StopForwarding], AbstractContextManager[None]]
PR_SET_PDEATHSIG = 1
CANNOT_START = 126


def run_child(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    run: RunDir,
    lock_fds: Sequence[int],
    watching: Callable[[StopForwarding], AbstractContextManager[object]] = nullcontext,
    by_torchrun: bool = False,
) -> int:
    """Run a job to its end and record in `status.json` how it ended; returns its exit code.

    The child inherits the descriptors of the locks, so they stay locked until both processes end.

    Args:
        by_torchrun: whether the child is torchrun: the exit code is that of the process that
            failed, or 128 + N after signal N.
    """
    forwarding = StopForwarding(interrupt)
    with forwarding, open(run.log_file, "ab") as file:
        log = OutputLog(file)
        outputs = Outputs(log)
        sys.stdout.flush()
        with forwarding.held():
            run.set_status("running")
            add(run, started=now(), ended="", exit_status=None)
            try:
                child = subprocess.Popen(
                    command,
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=outputs.out.writer,
                    stderr=outputs.err.writer,
                    start_new_session=True,
                    pass_fds=tuple(lock_fds),
                    preexec_fn=child_setup(),
                )
            except OSError as error:
                reason = f"{command[0]} cannot be started: {error}"
                return record_end(run, JobEnd(CANNOT_START, reason))
            forwarding.forward = partial(stop_group, child)
        outputs.close_writers()
        with following_terminal_size(outputs), watching(forwarding):
            outputs.copy_until_end(lambda: child.poll() is not None)
            code = child.wait()
    end = log.last_words.end(code, forwarding.number, forwarding.failure, by_torchrun)
    return record_end(run, end, was_stopped=forwarding.count > 0)


def record_end(run: RunDir, end: JobEnd, was_stopped: bool = False) -> int:
    """Record how a job ended; returns its exit code as a shell would give it.

    Args:
        was_stopped: whether we passed a stop signal on.
    """
    code = 128 - end.code if end.code < 0 else end.code
    killed = was_stopped or code > 128
    state = "killed" if killed else "failed" if code else "finished"
    run.set_status(state, "" if state == "finished" else hide_secrets(end.reason))
    add(run, ended=now(), exit_status=code)
    return code


def child_setup() -> Callable[[], None]:
    """A function for `preexec_fn` that ties a child to us before its program starts.

    The child can be interrupted, even where a shell or Ray started us with SIGINT ignored. When
    we are killed, the system sends it SIGTERM: it saves a checkpoint, stops and frees its locks.
    """
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # we were killed before prctl
            os.kill(os.getpid(), signal.SIGTERM)

    return prepare


def interrupt(number: int, count: int) -> None:
    """What a stop signal does before there is a child. Raises `KeyboardInterrupt`."""
    raise KeyboardInterrupt


def stop_group(child: "subprocess.Popen[bytes]", number: int, count: int) -> None:
    """Pass the first stop signal on to the child's process group.

    At the second, kill the group, and what the child has started in sessions of their own: the
    processes of torchrun, or the jobs of a search.
    """
    if count > 1 and child.poll() is None:  # else its number may be another process's
        kill_tree(child.pid)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, number if count == 1 else signal.SIGKILL)


@contextmanager
def following_terminal_size(outputs: Outputs) -> Iterator[None]:
    """While entered, the job's terminal is resized with ours."""

    def resize(*_: object) -> None:
        for stream in outputs.streams:
            stream.resize()

    previous = signal.signal(signal.SIGWINCH, resize)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, previous)


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


# A job on this machine. Where it runs on several, nodes.py has what each does.


@dataclass(frozen=True)
class NodePlace:
    """A node's place in a job.

    Attributes:
        group: a name of its own for each time that the job is started.
        number: 0 for the node that has the run.
        nodes: how many there are.
        address: by which the other nodes reach node 0; only node 0 needs it.
    """

    group: str = ""
    number: int = 0
    nodes: int = 1
    address: str = ""

    def variables(self) -> dict[str, str]:
        """The environment of the launch on this node."""
        return {NODE: json.dumps(asdict(self))} if self.nodes > 1 else {}


ONLY = NodePlace()


@dataclass(frozen=True)
class Meeting:
    """How the processes of all nodes find one another.

    Attributes:
        words: torchrun's options.
        attempt: how often the run was started, this time included.
    """

    words: tuple[str, ...]
    attempt: int


class OneNode:
    """The launch of a job on one machine.

    Attributes:
        own: the run directory that this launch writes to.
        processes: on this machine.
        is_alone: whether another node did not say that its part had ended, and nobody has asked
            the job to stop.
    """

    is_alone = False

    def __init__(self, run: RunDir, place: NodePlace, processes: int) -> None:
        self.run, self.place = run, place
        self.own = run
        self.processes = processes // place.nodes

    @property
    def with_torchrun(self) -> bool:
        return self.processes > 1 or self.place.nodes > 1

    def taking_part(self) -> AbstractContextManager[None]:
        """Entered before the launch prepares anything, left when it has ended."""
        return nullcontext()

    def meet(self, attempt: int) -> Meeting:
        """Wait until every node has prepared the job.

        Args:
            attempt: how often this node's launch was started; node 0 decides.

        Raises `UserError` where another node cannot start it.
        """
        return Meeting(ALONE, attempt)

    def watching(self, stops: StopForwarding) -> AbstractContextManager[None]:
        """Entered while the job runs; stops it where it has failed or is stopped on others."""
        return nullcontext()
