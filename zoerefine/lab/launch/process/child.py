"""The child process of a launch: starts the job, passes signals on, and records how it ended."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

from zoerefine.base.run_dir import RunDir
from zoerefine.base.secrets import hide_secrets
from zoerefine.lab.launch.process.ending import JobEnd
from zoerefine.lab.launch.process.output import OutputLog, Outputs
from zoerefine.lab.launch.process.stops import StopForwarding, kill_tree
from zoerefine.lab.launch.record.provenance import add, now

# Given the workspace and what stops the job, a context that is entered while the job runs.
Watch = Callable[[Path, StopForwarding], AbstractContextManager[None]]
PR_SET_PDEATHSIG = 1
CANNOT_START = 126


def unwatched(stops: StopForwarding) -> AbstractContextManager[None]:
    """Does nothing."""
    return nullcontext()


def run_child(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    run: RunDir,
    lock_fds: Sequence[int],
    watching: Callable[[StopForwarding], AbstractContextManager[None]] = unwatched,
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
    end = log.last_words.end(code, forwarding, by_torchrun)
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
