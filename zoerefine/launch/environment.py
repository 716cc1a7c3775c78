"""What a job runs in: its Python interpreter and its environment variables.

<home>/environments/<digest>/          a virtual environment made from a commit's lock file
<home>/environments/<digest>/.ready    written when it is complete
<home>/environments/<digest>.lock      held while it is made; held, shared, while it is used
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from zoerefine.errors import UserError
from zoerefine.files import write_text
from zoerefine.launch.repository_address import LOGIN_VARIABLES
from zoerefine.locks import lock
from zoerefine.progress import say
from zoerefine.run_dir import ATTEMPT, CALLER_FOLDER, RUN_FOLDER, SEED, RunDir

LOCK_FILES = ("requirements.lock", "requirements.txt")
# Lines that refer to other files, so that the lock file alone does not fix the packages.
REFERENCES = ("-r", "--requirement", "-c", "--constraint", "-e", "--editable", ".", "/", "file:")
# Variables that would change what the job runs, and those that an outer launch has set.
REMOVED_VARIABLES = {
    *("PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONPLATLIBDIR", "PYTHONOPTIMIZE"),
    *("PYTHONWARNINGS", "PYTHONDEBUG", "PYTHONSAFEPATH", "PYTHONNOUSERSITE", "__PYVENV_LAUNCHER__"),
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", *LOGIN_VARIABLES),
}


def environments_folder(home: Path) -> Path:
    """The folder of all virtual environments."""
    return home / "environments"


def job_environment(
    workspace: Path, run: RunDir, seed: int, caller: Path, python: Path, attempt: int = 1
) -> dict[str, str]:
    """The job's environment variables: the user's, with the workspace first on PYTHONPATH.

    Args:
        attempt: 1 for the run's first start, 2 for the second, ...
    """
    environment = {key: value for key, value in os.environ.items() if key not in REMOVED_VARIABLES}
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
        SEED: str(seed),
        ATTEMPT: str(attempt),
    }
    if (python.parent.parent / "pyvenv.cfg").exists():
        environment["VIRTUAL_ENV"] = str(python.parent.parent)
    return environment


def import_variables(cwd: str, workspace: Path, program: Sequence[str]) -> dict[str, str]:
    """Variables for a job that does not start in its workspace, but imports from there.

    Python searches the working directory first for `python -m`, where another version of the
    package may be. PYTHONSAFEPATH turns this off, for the job's own Python processes too. It also
    turns off the search of the script's folder, so that folder is named in PYTHONPATH.

    Args:
        program: Python's words for the script: its path, or -m and a module.
    """
    if cwd == "workspace":
        return {}
    script = [] if program[0] == "-m" else [str(Path(program[0]).resolve().parent)]
    paths = [*script, str(workspace), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}


@contextmanager
def job_python(kind: str, workspace: Path, commit: str, home: Path) -> Iterator[Path]:
    """Hold the job's Python interpreter.

    Args:
        kind: `current`, the interpreter of this process, or `venv`, a virtual environment made
            from the commit's lock file.

    Raises:
        UserError: the commit has no lock file, or it cannot be installed.
    """
    if kind == "current":
        yield Path(sys.executable)
        return
    file = find_lock_file(workspace)
    folder = environments_folder(home) / lock_file_digest(file.read_bytes(), commit)
    stamp = folder / ".ready"
    if not stamp.exists():
        with lock(Path(f"{folder}.lock")):
            if not stamp.exists():
                build_environment(folder, file, workspace)
    with lock(Path(f"{folder}.lock"), shared=True):
        os.utime(folder)  # --clean reads the time of the last use here
        yield folder / "bin" / "python"


def find_lock_file(workspace: Path) -> Path:
    """The file that pins a commit's packages."""
    for name in LOCK_FILES:
        path = workspace / name
        if path.is_file() and path.resolve().is_relative_to(workspace.resolve()):
            return path
    raise UserError(f"the commit has no {' or '.join(LOCK_FILES)} for --environment venv")


def lock_file_digest(data: bytes, commit: str) -> str:
    """The digest that names a virtual environment: of the lock file and of our Python version.

    A lock file that refers to other files counts together with its commit.
    """
    lines = data.decode(errors="replace").splitlines()
    has_references = any(line.strip().startswith(REFERENCES) or " @ ." in line for line in lines)
    about = f"{sys.version}\n{platform.machine()}\n{commit if has_references else ''}\n"
    return hashlib.sha256(about.encode() + data).hexdigest()[:16]


def build_environment(folder: Path, file: Path, workspace: Path) -> None:
    """Make a virtual environment from a lock file. What a killed launch left is removed first."""
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
            reason = next((line for line in lines if line.startswith("ERROR")), lines[-1])
            raise UserError(f"{file.name} of the commit cannot be installed: {reason}")
    write_text(folder / ".ready", f"{file.name}\n")


def package_folders(python: Path) -> list[Path]:
    """Where an interpreter looks for installed packages."""
    if python == Path(sys.executable):
        return [Path(place) for place in sys.path]
    return list(python.parents[1].glob("lib/python*/site-packages"))


def packages(python: Path) -> list[str]:
    """Every installed distribution of an interpreter, `name==version`, sorted.

    Names and versions come from the folders' names: reading all metadata would take longer than
    the rest of a launch.
    """
    found = set()
    for place in package_folders(python):
        for path in place.glob("*.dist-info"):
            name, _, version = path.stem.rpartition("-")
            found.add(f"{name.replace('_', '-')}=={version}")
    return sorted(found, key=str.lower)
