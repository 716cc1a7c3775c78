"""A command that was run in the tests' own process."""

from dataclasses import dataclass

from zoerefine.cli import main


@dataclass
class Finished:
    """A command that has ended."""

    code: int
    out: str
    err: str


def run_here(capsys, *words):
    """Run a command, with what it prints from its start to its end: run_here(...) -> Finished."""
    capsys.readouterr()
    code = main([str(word) for word in words])
    return Finished(code, *capsys.readouterr())
