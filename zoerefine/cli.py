"""The console script: `zoerefine VERB ...`, the same commands as the scripts in platform/."""

import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

from zoerefine import __version__
from zoerefine.errors import UserError, run_command

VERBS = {
    "run": "a commit and a config become a run (platform/run_from_commit.py)",
    "show": "what a run was, and the command that runs it again",
    "reproduce": "a run becomes the same run again, compared",
    "train": "train a refiner from this tree",
    "search": "search what the config lists",
    "dashboard": "a study in the browser: trials, Pareto front, curves",
    "export": "a run becomes an engine bundle",
    "infer": "an engine bundle refines depth pictures",
    "analyze": "many runs become one clear graph",
    "diff": "what differs between two runs",
    "data": "make, check, split and pack a data set",
    "check": "what to know of a training before hours are spent on it",
    "profile": "a few dozen training steps as a picture, and the bottleneck",
    "doctor": "what this machine has and lacks",
    "demo": "the whole way on a small synthetic world",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns the process exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--version"]:
        print(f"zoerefine {__version__}")
        return 0
    if not words or words[0] not in VERBS:
        asked_for_help = words[:1] in (["-h"], ["--help"])
        print(usage(), file=sys.stdout if asked_for_help else sys.stderr)
        return 0 if asked_for_help else 2
    return run_command(lambda: load(words[0]).main(words[1:]))


def load(verb: str) -> ModuleType:
    """The module of a verb. Raises `UserError` where its requirements are not installed."""
    try:
        return importlib.import_module(f"zoerefine.commands.{verb}")
    except ModuleNotFoundError as error:
        if not error.name or error.name.startswith("zoerefine"):
            raise
        raise UserError(
            f"{sys.executable} has no package {error.name}: run `make install` once in zoerefine's "
            "folder, then `. .venv/bin/activate`"
        ) from None


def usage() -> str:
    """The list of verbs."""
    width = max(map(len, VERBS))
    lines = [f"  {verb:<{width}}  {text}" for verb, text in VERBS.items()]
    return "\n".join(["usage: zoerefine VERB ...  (zoerefine VERB --help says more)", "", *lines])
