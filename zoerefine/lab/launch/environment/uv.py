"""Virtual environments made by uv, which links packages from its cache.

The environment has what the `venv` kind would have: Python's own venv makes the folder, and the pip
and setuptools that come with Python are installed first.
"""

import ensurepip
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.lab.launch.environment.build import BuildSteps, StepFailed
from zoerefine.lab.launch.environment.venv import VENV

UV_LOCK = "uv.lock"
LOCK_FILES = (UV_LOCK, "pylock.toml", "requirements.lock")
SETTINGS_FILES = ("pyproject.toml", "uv.toml")
INSTALL = "pip install 'zoerefine[uv]'"
QUIET = ("--quiet", "--no-progress", "--color", "never")
LONGEST_REASON = 500


def check_requirements() -> None:
    """Raises `UserError` where uv is not installed."""
    if find_spec("uv") is None:
        raise UserError(f"--environment uv needs uv: {INSTALL}")


def build(folder: Path, file: Path, steps: BuildSteps) -> None:
    """Make the environment. Raises `StepFailed`.

    The network is used only where uv's cache does not have everything.
    """
    steps.run(sys.executable, *VENV, "--without-pip", folder)
    python = folder / "bin" / "python"
    uv = uv_program()
    into = ("--python", python, *QUIET)
    own = bundled_wheels()
    if own:
        alone = ("--offline", "--no-index", "--no-deps", "--no-config")
        unhashed = {"UV_REQUIRE_HASHES": "false"}  # the user may require hashes of the commit's
        steps.run(uv, "pip", "install", *into, *alone, *own, variables=unhashed)
    # The commit's own project is in the workspace. --inexact keeps pip.
    sync = ("sync", "--frozen", "--inexact", "--no-install-project", "--no-editable")
    # Settings files may turn the comparison of hashes off. `uv sync` always compares them.
    install = ("pip", "install", "--verify-hashes", "-r", file)
    words = sync if file.name == UV_LOCK else install
    variables = {"UV_PROJECT_ENVIRONMENT": str(folder)}
    try:
        steps.run(uv, *words, *into, "--offline", variables=variables)
    except StepFailed:
        steps.run(uv, *words, *into, variables=variables)


def uv_program() -> str:
    """The program in the PyPI package uv."""
    import uv

    program: str = uv.find_uv_bin()
    return program


def bundled_wheels() -> list[Path]:
    """The packages that come with Python and that its venv installs."""
    place = sysconfig.get_config_var("WHEEL_PKG_DIR")
    folder = Path(place) if place else Path(ensurepip.__file__).parent / "_bundled"
    names = ("pip", "setuptools") if sys.version_info < (3, 12) else ("pip",)
    return [wheel for name in names for wheel in folder.glob(f"{name}-*.whl")]


def reason(errors: str) -> str:
    """uv's message in one line, without its warnings."""
    lines = [line.strip() for line in errors.splitlines()]
    text = " ".join(line for line in lines if line and not line.startswith("warning:"))
    text = text.removeprefix("error: ")
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."
