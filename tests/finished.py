"""A command that was run in the tests' own process."""

from typing import NamedTuple

from zoerefine.cli import main


class Finished(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


def run_here(capsys, *words, code=0):
    """Run a command, with what it prints from its start to its end: run_here(...) -> Finished.

    It must have the exit code 0, or `code`; None: any.
    """
    capsys.readouterr()
    done = Finished(main([str(word) for word in words]), *capsys.readouterr())
    assert code in (None, done.code), done.err
    return done
