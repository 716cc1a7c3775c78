"""The console script: `zoerefine COMMAND ...`, its exit code, and errors as one line.

The scripts in platform/ call the same commands.
"""

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence

from zoerefine import __version__
from zoerefine.base.errors import INTERRUPTED, USER_ERROR, UserError, missing_required
from zoerefine.base.files.storage_faults import storage_fault
from zoerefine.base.messages import be_quiet, visible

COMMANDS = {
    "run": "run a job from a git commit and a config, or a queue of jobs",
    "show": "print a page about a run or an engine bundle",
    "runs": "list, tag, archive and remove runs",
    "reproduce": "run a recorded job again and compare the results",
    "train": "train a refiner from this working tree",
    "search": "search hyper-parameters",
    "dashboard": "show a study in the browser: trials, Pareto front, curves",
    "export": "make an engine bundle from a run",
    "infer": "refine depth pictures with an engine bundle",
    "measure": "calibrate a room's depth by a few distances, measured once",
    "bag": "refine the depth camera of a ROS 2 bag with an engine bundle",
    "analyze": "compare many runs in one graph and one report",
    "diff": "print the differences between two runs",
    "config": "print every setting with its value, meaning and origin",
    "data": "make, inspect, split and pack data sets",
    "check": "check a training before it takes hours",
    "profile": "measure some training steps and name the bottleneck",
    "doctor": "list what this machine has and what is missing",
    "demo": "run everything once on a small synthetic world",
}

# Commands that share the file of another one, where a function has their name.
TOGETHER = {"diff": "analyze", "profile": "check"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the process exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--version"]:
        print(f"zoerefine {__version__}")
        return 0
    if words[:1] in (["-h"], ["--help"]):
        print(usage())
        return 0
    if not words:
        print(usage(), file=sys.stderr)
        return USER_ERROR
    return run_command(lambda: run_named(words[0], words[1:]))


def run_named(name: str, words: Sequence[str]) -> int:
    """Run a command. Raises `UserError` for an unknown one and where zoerefine cannot run."""
    be_quiet(False)
    if not sys.platform.startswith("linux"):
        raise UserError(f"zoerefine runs on Linux only, and this is {sys.platform}")
    if name not in COMMANDS:
        import difflib  # takes a millisecond to load

        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {close[0]}?" if close else "`zoerefine --help` lists the commands"
        raise UserError(f"no command {name}; {hint}")
    try:  # a command imports most packages when it needs them
        return load(name)(words)
    except ModuleNotFoundError as error:
        if not error.name or error.name.startswith("zoerefine"):
            raise
        raise missing_required(error.name) from None


def load(name: str) -> Callable[[Sequence[str]], int]:
    """The function of a command; its words are the argument, its exit code the result."""
    module = importlib.import_module(f"zoerefine.commands.{TOGETHER.get(name, name)}")
    function: Callable[[Sequence[str]], int] = getattr(module, name if name in TOGETHER else "main")
    return function


def usage() -> str:
    """The list of commands."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    last = "`zoerefine COMMAND --help` describes a command. zoerefine runs on Linux."
    return "\n".join(["usage: zoerefine COMMAND ...", "", *lines, "", last])


def run_command(main: Callable[[], int | None]) -> int:
    """Run a command line's `main` and return the process exit code."""
    threading.excepthook = _report_thread
    _open_closed_streams()
    try:
        # Who started this process may have blocked it until here: see `LaunchProcess`.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
        code = main() or 0
        sys.stdout.flush()
        return code
    except UserError as error:
        return _fail(str(error))
    except KeyboardInterrupt as error:
        print(str(error) or "interrupted; run the same command again to resume", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `zoerefine show RUN | head`
        _discard_output()
        return 0
    except Exception as error:
        if not (fault := storage_fault(error)):
            raise
        _discard_output()  # what is left in its buffer cannot be written either
        return _fail(fault)


def _open_closed_streams() -> None:
    """Give standard streams that the caller has closed (`>&-`) to /dev/null.

    Otherwise the next files would get their numbers, and child processes would write into those.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)  # noqa: SIM115
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def _report_thread(ended: threading.ExceptHookArgs) -> None:
    """Report the exception that ended a thread; a fault of a disk as a line."""
    if fault := storage_fault(ended.exc_value):
        print(f"warning: {fault}", file=sys.stderr)
    else:
        threading.__excepthook__(ended)


def _fail(message: str) -> int:
    """Print an error as one line; returns the exit code."""
    print(f"error: {visible(' '.join(message.split()))}", file=sys.stderr)
    return USER_ERROR


def _discard_output() -> None:
    """Standard output goes nowhere from here on, so that the interpreter's last flush succeeds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
