"""Time to make a job's virtual environment: `--environment venv`, `--environment uv`, MLflow's.

All install the same lock file, in turns: of 30 wheels made here (no network is used), or the one
that --lock names. "Again" is a second environment of the same packages, when they are in the
caches. The caches of uv start empty; pip's is the user's own.

`mlflow run --env-manager uv` is timed as a whole command, and `--env-manager local`, which makes no
environment, is subtracted. MLflow's environments have no pip. Its `--env-manager virtualenv` needs
pyenv, and is not measured.
"""

import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from common.mlflow_program import STORE_VARIABLES, install_mlflow
from common.report import Row, options, report, row

from zoerefine.base.files.atomic import digest_json
from zoerefine.lab.launch.environment import check_environment, job_python
from zoerefine.lab.launch.record.provenance import packages

KINDS = ("venv", "uv")
PACKAGES, FILES, FILE_BYTES = 30, 200, 20_000
AGAIN_S = 5.0
MLFLOW_UV = "mlflow run --env-manager uv"
PROJECT = """
name: job
python_env: python_env.yaml
entry_points: {main: {command: "true"}}
"""


def main() -> None:
    """Print the table, and write it where asked."""
    parser = options(__doc__)
    parser.add_argument("--lock", type=Path, metavar="FILE", help="a requirements.lock to install")
    args = parser.parse_args()
    check_environment("uv")
    with tempfile.TemporaryDirectory(prefix="environments-") as folder:
        root = Path(folder)
        os.environ["UV_CACHE_DIR"] = str(root / "uv-cache")
        workspace = root / "workspace"
        workspace.mkdir()
        text = args.lock.read_text() if args.lock else local_lock(root / "wheels")
        (workspace / "requirements.lock").write_text(text)
        rows = measure(workspace, root / "home", MlflowRun(root), rounds=2 if args.quick else 7)
    report(rows, args)


def local_lock(folder: Path) -> str:
    """Make wheels of incompressible files; returns a lock file of them."""
    folder.mkdir()
    for number in range(PACKAGES):
        about = f"thing{number}-1.0"
        with zipfile.ZipFile(folder / f"{about}-py3-none-any.whl", "w") as wheel:
            for index in range(FILES):
                wheel.writestr(f"thing{number}/data{index}.bin", os.urandom(FILE_BYTES))
            wheel.writestr(f"thing{number}/__init__.py", "")
            named = f"Metadata-Version: 2.1\nName: thing{number}\nVersion: 1.0\n"
            wheel.writestr(f"{about}.dist-info/METADATA", named)
            tag = "Wheel-Version: 1.0\nGenerator: b\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            wheel.writestr(f"{about}.dist-info/WHEEL", tag)
            wheel.writestr(f"{about}.dist-info/RECORD", "")
    lines = [f"thing{number}==1.0" for number in range(PACKAGES)]
    return "\n".join(["--no-index", f"--find-links {folder}", *lines]) + "\n"


class MlflowRun:
    """MLflow's environments of the same lock file."""

    def __init__(self, root: Path) -> None:
        self.root, self.program = root, install_mlflow()
        self.project = root / "workspace"
        (self.project / "MLproject").write_text(PROJECT)
        (self.project / "python_env.yaml").write_text(
            f"python: {platform.python_version()}\ndependencies: [-r requirements.lock]\n"
        )

    def environment_s(self) -> float:
        """Seconds that making an environment adds to `mlflow run`."""
        shutil.rmtree(self.root / "mlflow", ignore_errors=True)
        return self.command_s("uv") - self.command_s("local")

    def command_s(self, manager: str) -> float:
        """Seconds of `mlflow run`; ends the benchmark where it fails."""
        assert self.program is not None
        own = {
            "PATH": f"{self.program.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "MLFLOW_TRACKING_URI": f"file://{self.root}/mlruns",
            "MLFLOW_ENV_ROOT": str(self.root / "mlflow"),
            "UV_CACHE_DIR": str(self.root / "mlflow-uv-cache"),
            "UV_PYTHON_DOWNLOADS": "never",
        }
        words = [self.program, "run", self.project, "--env-manager", manager]
        start = time.perf_counter()
        done = subprocess.run(
            [*map(str, words)],
            cwd=self.root,
            env=os.environ | STORE_VARIABLES | own,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"mlflow run failed:\n{done.stderr}")
        return time.perf_counter() - start


def measure(workspace: Path, home: Path, mlflow: MlflowRun, rounds: int) -> list[Row]:
    """The first environment of each kind, medians of the later ones, and whether they are equal."""
    sides = [*KINDS, *([MLFLOW_UV] if mlflow.program else [])]
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    digests: set[str] = set()
    for _ in range(rounds + 1):
        for kind in KINDS:
            shutil.rmtree(home, ignore_errors=True)
            start = time.perf_counter()
            with job_python(kind, workspace, "", home) as python:
                seconds[kind].append(time.perf_counter() - start)
                digests.add(digest_json(packages(python)))
        if mlflow.program:
            seconds[MLFLOW_UV].append(mlflow.environment_s())
    again = {side: statistics.median(values[1:]) for side, values in seconds.items()}
    rows = [row(f"{side}: first environment", seconds[side][0], "s") for side in sides]
    for side, value in again.items():
        goal = AGAIN_S if side == "uv" else None
        rows.append(row(f"{side}: again", value, "s", at_most=goal, rounds=seconds[side][1:]))
    for side in sides:
        if side != "uv":
            rows.append(
                row(f"again, speed of uv relative to {side}", again[side] / again["uv"], "x")
            )
    one = row("different digests of the environments", len(digests), "", at_least=1, at_most=1)
    return [*rows, one]


if __name__ == "__main__":
    main()
