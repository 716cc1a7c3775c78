"""Virtual environments of the wheels in the commit's folder `wheels`, without a network."""

import sys
from pathlib import Path

from zoerefine.lab.launch.environment import PIP_INSTALL, VENV, BuildSteps, Venv


class Wheelhouse(Venv):
    """Makes virtual environments from the commit's own wheels."""

    LOCK_FILES = ("requirements.lock",)

    def build(self, folder: Path, file: Path, steps: BuildSteps) -> None:
        """Make the environment. Raises `StepFailed`."""
        steps.run(sys.executable, *VENV, folder)
        pip = (folder / "bin" / "python", *PIP_INSTALL)
        steps.run(*pip, "--no-index", "--find-links", "wheels", "-r", file)
