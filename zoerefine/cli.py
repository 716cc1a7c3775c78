"""The console script: `zoerefine COMMAND ...`. The scripts in platform/ call the same commands."""

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from zoerefine import __version__
from zoerefine.base.errors import UserError
from zoerefine.base.exit_codes import run_command
from zoerefine.base.progress import be_quiet

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
        return 2
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
        raise UserError(
            f"{sys.executable} has no package {error.name}: {how_to_install()}"
        ) from None


def load(name: str) -> Callable[[Sequence[str]], int]:
    """The function of a command; its words are the argument, its exit code the result."""
    module = importlib.import_module(f"zoerefine.commands.{TOGETHER.get(name, name)}")
    function: Callable[[Sequence[str]], int] = getattr(module, name if name in TOGETHER else "main")
    return function


def how_to_install() -> str:
    """How to get what zoerefine requires, in a checkout or without one."""
    folder = Path(__file__).resolve().parents[1]
    if (folder / "Makefile").exists():
        return f"run `make install` once in {folder}, then `. .venv/bin/activate`"
    return "`pip install zoerefine` installs what is missing"


def usage() -> str:
    """The list of commands."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    last = "`zoerefine COMMAND --help` describes a command. zoerefine runs on Linux."
    return "\n".join(["usage: zoerefine COMMAND ...", "", *lines, "", last])
