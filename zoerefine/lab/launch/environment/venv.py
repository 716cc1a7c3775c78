"""Virtual environments made by Python's venv and pip."""

import sys
from pathlib import Path

from zoerefine.lab.launch.environment.build import BuildSteps

LOCK_FILES = ("requirements.lock", "requirements.txt")
SETTINGS_FILES = ()
# Isolated: Python would find modules of the commit first, and pip count them as installed.
VENV = ("-I", "-m", "venv")
PIP_INSTALL = ("-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def check_requirements() -> None:
    """Python has everything."""


def build(folder: Path, file: Path, steps: BuildSteps) -> None:
    """Make the environment. Raises `StepFailed`."""
    steps.run(sys.executable, *VENV, folder)
    steps.run(folder / "bin" / "python", *PIP_INSTALL, "-r", file)


def reason(errors: str) -> str:
    """pip's first line that begins with ERROR, or the last line."""
    lines = errors.strip().splitlines() or [""]
    return next((line for line in lines if line.startswith("ERROR")), lines[-1])
