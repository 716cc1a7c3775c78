"""A command that was run in the tests' own process."""

from typing import NamedTuple

from zoerefine.cli import main


class Finished(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


def run_here(capsys, *words):
    """Run a command, with what it prints from its start to its end: run_here(...) -> Finished."""
    capsys.readouterr()
    code = main([str(word) for word in words])
    return Finished(code, *capsys.readouterr())
