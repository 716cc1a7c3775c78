"""Virtual environments of the wheels in the commit's folder `wheels`, without a network."""

import sys
from pathlib import Path

from zoerefine.lab.launch.environment import venv
from zoerefine.lab.launch.environment.build import BuildSteps

LOCK_FILES = ("requirements.lock",)
SETTINGS_FILES = ()


def check_requirements() -> None:
    """Python has everything."""


def build(folder: Path, file: Path, steps: BuildSteps) -> None:
    """Make the environment. Raises `StepFailed`."""
    steps.run(sys.executable, *venv.VENV, folder)
    pip = (folder / "bin" / "python", *venv.PIP_INSTALL)
    steps.run(*pip, "--no-index", "--find-links", "wheels", "-r", file)


def reason(errors: str) -> str:
    """pip's first line that begins with ERROR."""
    return venv.reason(errors)
