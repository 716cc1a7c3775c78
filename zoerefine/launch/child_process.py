"""The child process of a launch: its start, the signals it gets, and its end, recorded."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from zoerefine.launch.job_output import Log, Outputs
from zoerefine.launch.provenance import add, now
from zoerefine.launch.redaction import hide_secrets
from zoerefine.launch.result_files import digests
from zoerefine.run_dir import RunDir

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1
CANNOT_START = 126


def run_child(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    run: RunDir,
    locks: Sequence[int],
) -> int:
    """Run a job to its end and record in `status.json` how it ended; returns its exit code.

    The child inherits the descriptors of the locks, so they hold as long as either lives.
    """
    run.set_status("running")
    add(run, started=now(), ended="", exit_status=None)
    with open(run.log_file, "ab") as file:
        log = Log(file)
        outputs = Outputs(log)
        sys.stdout.flush()
        try:
            child = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=outputs.out.writer,
                stderr=outputs.err.writer,
                start_new_session=True,
                pass_fds=tuple(locks),
                preexec_fn=first_moment(),
            )
        except OSError as error:
            return record_end(run, CANNOT_START, 0, f"{command[0]} cannot be started: {error}")
        outputs.started()
        with Signals(child, outputs) as signals:
            outputs.copy_until_end(lambda: child.poll() is not None)
            code = child.wait()
    return record_end(run, code, signals.count, log.fault or log.last)


def record_end(run: RunDir, code: int, signals: int, said: str) -> int:
    """Write how a job ended; returns its exit code as a shell would give it."""
    code = 128 - code if code < 0 else code
    killed = signals > 0 or code > 128
    state = "killed" if killed else "failed" if code else "finished"
    reason = "" if state == "finished" else hide_secrets(said) or f"exit code {code}"
    run.set_status(state, reason)
    add(run, ended=now(), exit_status=code, outputs=digests(run))
    return code


def first_moment() -> Callable[[], None]:
    """What a child does before it becomes the job.

    It can be asked to stop, though a shell or Ray started us deaf to that; and should we be
    killed, it is asked by the system (on Linux), stops with a checkpoint and frees its locks.
    """
    parent = os.getpid()
    linux = sys.platform.startswith("linux")
    prctl = ctypes.CDLL(None).prctl if linux else None

    def prepare() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGTERM)

    return prepare


class Signals:
    """Passes Ctrl-C, SIGTERM and a closed terminal on to the child's group; the second kills it."""

    def __init__(self, child: "subprocess.Popen[bytes]", outputs: Outputs) -> None:
        self.child, self.outputs = child, outputs
        self.count = 0

    def __enter__(self) -> "Signals":
        self._old = {number: signal.getsignal(number) for number in (*STOPPING, signal.SIGWINCH)}
        for number in STOPPING:
            if self._old[number] != signal.SIG_IGN:  # nohup's wish
                signal.signal(number, self._pass_on)
        signal.signal(signal.SIGWINCH, self._resize)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _pass_on(self, number: int, _: object) -> None:
        self.count += 1
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid, number if self.count == 1 else signal.SIGKILL)

    def _resize(self, *_: object) -> None:
        for stream in self.outputs.streams:
            stream.resize()
