"""What a job runs in: its Python, and its environment variables.

<home>/environments/<digest>/          a virtual environment made from a commit's lock file
<home>/environments/<digest>/.ready    written last
<home>/environments/<digest>.lock      held while it is made, shared by those who use it
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from zoerefine.config import CALLER_FOLDER
from zoerefine.errors import UserError
from zoerefine.files import write_text
from zoerefine.launch.repository_address import LOGIN
from zoerefine.locks import lock
from zoerefine.progress import say
from zoerefine.run_dir import RUN_FOLDER, RunDir

LOCK_FILES = ("requirements.lock", "requirements.txt")
# Lines that lead out of the lock file: to other files, so its own bytes do not say it all.
LEADS_ON = ("-r", "--requirement", "-c", "--constraint", "-e", "--editable", ".", "/", "file:")
# What would make the job another one than the recorded, and what belongs to an outer launch.
LEFT_OUT = {
    *("PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONPLATLIBDIR", "PYTHONOPTIMIZE"),
    *("PYTHONWARNINGS", "PYTHONDEBUG", "PYTHONSAFEPATH", "PYTHONNOUSERSITE", "__PYVENV_LAUNCHER__"),
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", *LOGIN),
}


def environments_of(home: Path) -> Path:
    """The folder of all virtual environments."""
    return home / "environments"


def job_environment(
    workspace: Path, run: RunDir, seed: int, caller: Path, python: Path
) -> dict[str, str]:
    """The job's variables: the user's, the workspace before their own module path, the seed."""
    environment = {key: value for key, value in os.environ.items() if key not in LEFT_OUT}
    paths = [str(workspace), environment.get("PYTHONPATH", "")]
    bin_folder = str(python.parent)
    environment |= {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PATH": os.pathsep.join(filter(None, [bin_folder, environment.get("PATH", "")])),
        "PYTHONUNBUFFERED": "1",
        "PYTHONHASHSEED": str(seed % 2**32),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        CALLER_FOLDER: str(caller),
        RUN_FOLDER: str(run.path),
    }
    if (python.parent.parent / "pyvenv.cfg").exists():
        environment["VIRTUAL_ENV"] = str(python.parent.parent)
    return environment


@contextmanager
def job_python(kind: str, workspace: Path, commit: str, home: Path) -> Iterator[Path]:
    """The interpreter of `current` (ours) or `venv` (made from the commit's own lock file).

    Raises:
        UserError: the commit has no lock file, or it cannot be installed.
    """
    if kind == "current":
        yield Path(sys.executable)
        return
    file = find_lock_file(workspace)
    folder = environments_of(home) / lock_file_digest(file.read_bytes(), commit)
    stamp = folder / ".ready"
    if not stamp.exists():
        with lock(Path(f"{folder}.lock")):
            if not stamp.exists():
                build(folder, file, workspace)
    with lock(Path(f"{folder}.lock"), shared=True):
        os.utime(folder)  # --clean goes by the time of the last use
        yield folder / "bin" / "python"


def find_lock_file(workspace: Path) -> Path:
    """The file that pins a commit's packages."""
    for name in LOCK_FILES:
        path = workspace / name
        if path.is_file() and path.resolve().is_relative_to(workspace.resolve()):
            return path
    raise UserError(f"the commit has no {' or '.join(LOCK_FILES)} for --environment venv")


def lock_file_digest(data: bytes, commit: str) -> str:
    """What a virtual environment is known by: the lock, and the Python that it is for."""
    lines = data.decode(errors="replace").splitlines()
    leads_on = any(line.strip().startswith(LEADS_ON) or " @ ." in line for line in lines)
    about = f"{sys.version}\n{platform.machine()}\n{commit if leads_on else ''}\n"
    return hashlib.sha256(about.encode() + data).hexdigest()[:16]


def build(folder: Path, file: Path, workspace: Path) -> None:
    """A virtual environment with what a lock file names; one that a kill left is made anew."""
    say(f"installing {file.name} into {folder} (once for this lock file)")
    shutil.rmtree(folder, ignore_errors=True)
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", file)
    steps = ((sys.executable, "-m", "venv", folder), (folder / "bin" / "python", *install))
    for command in steps:
        words = list(map(str, command))
        done = subprocess.run(words, cwd=workspace, capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            lines = done.stderr.strip().splitlines() or ["no message"]
            wrong = next((line for line in lines if line.startswith("ERROR")), lines[-1])
            raise UserError(f"{file.name} of the commit cannot be installed: {wrong}")
    write_text(folder / ".ready", f"{file.name}\n")


def packages(python: Path) -> list[str]:
    """Every installed distribution of an interpreter, `name==version`, sorted.

    The folders' names say it all; reading each one's metadata would take a launch's whole time.
    """
    places: Iterable[Path] = map(Path, sys.path)
    if python != Path(sys.executable):
        places = python.parents[1].glob("lib/python*/site-packages")
    found = set()
    for place in places:
        for path in place.glob("*.dist-info"):
            name, _, version = path.stem.rpartition("-")
            found.add(f"{name.replace('_', '-')}=={version}")
    return sorted(found, key=str.lower)
