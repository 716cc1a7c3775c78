"""MLflow in a virtual environment of its own, which a benchmark makes once."""

import shutil
import subprocess
import sys
from pathlib import Path

from zoerefine.base.messages import say
from zoerefine.lab.launch.home import home_folder

MLFLOW = "mlflow-skinny==3.17.2"
NOT_INSTALLED = "mlflow cannot be installed here"
UV = "uv==0.13.9"  # for `mlflow run --env-manager uv`
STORE_VARIABLES = {"MLFLOW_ALLOW_FILE_STORE": "true", "GIT_PYTHON_REFRESH": "quiet"}


def install_mlflow() -> Path | None:
    """Install mlflow and uv from PyPI; returns the program, None where that fails."""
    folder = home_folder() / "benchmarks" / f"{MLFLOW}-{UV}"
    program = folder / "bin" / "mlflow"
    if not (folder / ".ready").exists():
        say(f"installing {MLFLOW} and {UV} into {folder}, once")
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", MLFLOW, UV]
        if subprocess.run(pip, stderr=subprocess.DEVNULL, check=False).returncode:
            say(f"left out: {NOT_INSTALLED}")
            return None
        (folder / ".ready").touch()
    return program
