"""What a job runs in: its Python interpreter and its environment variables.

`build.py` says where virtual environments are and makes them.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from zoerefine.base.files.locks import lock
from zoerefine.base.run_dir import CALLER_FOLDER, RUN_FOLDER, SEED, RunDir
from zoerefine.lab.launch.environment.build import (
    CURRENT,
    build_environment,
    environment_name,
    environments_folder,
    find_lock_file,
    is_ready,
)
from zoerefine.lab.launch.environment.variables import import_folders, job_variables, python_path


def job_environment(
    workspace: Path, run: RunDir, seed: int, caller: Path, python: Path
) -> dict[str, str]:
    """The job's environment variables: the user's, with the workspace first on PYTHONPATH."""
    environment = job_variables()
    bin_folder = str(python.parent)
    environment |= {
        "PYTHONPATH": python_path(environment, *import_folders(workspace)),
        "PATH": os.pathsep.join(filter(None, [bin_folder, environment.get("PATH", "")])),
        "PYTHONUNBUFFERED": "1",
        "PYTHONHASHSEED": str(seed % 2**32),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        CALLER_FOLDER: str(caller),
        RUN_FOLDER: str(run.path),
        SEED: str(seed),
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
    if cwd in ("workspace", "script"):
        return {}
    script = [] if program[0] == "-m" else [Path(program[0]).resolve().parent]
    path = python_path(os.environ, *script, *import_folders(workspace))
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": path}


@contextmanager
def job_python(kind: str, workspace: Path, version: str, home: Path) -> Iterator[Path]:
    """Hold the job's Python interpreter.

    Args:
        kind: `current`, the interpreter of this process, or a name of `registries.ENVIRONMENTS`: a
            virtual environment made from the commit's lock file.
        version: names the workspace's files: the commit, and the digest of its changes.

    Raises:
        UserError: the commit has no lock file, or it cannot be installed.
    """
    if kind == CURRENT:
        yield Path(sys.executable)
        return
    file = find_lock_file(kind, workspace)
    folder = environments_folder(home) / environment_name(kind, file, version)
    lock_file = Path(f"{folder}.lock")
    while True:
        if not is_ready(folder):
            with lock(lock_file) as lock_fd:
                if not is_ready(folder):
                    build_environment(kind, folder, file, lock_fd)
        with lock(lock_file, shared=True):
            if is_ready(folder):  # a clean-up may have removed it before it was held
                os.utime(folder)  # --clean reads the time of the last use here
                yield folder / "bin" / "python"
                return


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
