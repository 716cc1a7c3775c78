"""Packages that are missing: which extra of zoerefine installs each, as one line for the user."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zoerefine.base.errors import UserError


def install(extra: str) -> str:
    """The command that installs an extra of pyproject.toml."""
    return f"pip install 'zoerefine[{extra}]'"


def missing_package(need: str, extra: str) -> UserError:
    """The error where a package of an extra is missing; `need` says what needs which one."""
    return UserError(f"{need}: {install(extra)}")


@contextmanager
def needed(need: str, extra: str) -> Iterator[None]:
    """Import packages of an extra. Raises `UserError` as `missing_package` where one is missing."""
    try:
        yield
    except ImportError:
        raise missing_package(need, extra) from None


def missing_required(package: str) -> UserError:
    """The error where a package is missing that zoerefine requires."""
    return UserError(f"{sys.executable} has no package {package}: {how_to_install()}")


def how_to_install() -> str:
    """How to get what zoerefine requires, in a checkout or without one."""
    folder = Path(__file__).resolve().parents[2]
    if (folder / "Makefile").exists():
        return f"run `make install` once in {folder}, then `. .venv/bin/activate`"
    return "`pip install zoerefine` installs what is missing"
