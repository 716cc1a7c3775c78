"""The script or module of a job, which must be the commit's own.

Python searches a module in many places, so a module that the commit does not have could come from
the installed packages, and its run would be recorded under a commit that it did not run.
"""

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.lab.launch.environment import CURRENT
from zoerefine.lab.launch.git.commands import GITLINK, LINK, git

# Finds a module as `python -m` does, and prints its file and its packages' files. It runs none of
# them: a package may be slow to import.
PROBE = """
import importlib.machinery, importlib.util, os, sys
parts, found = sys.argv[1].split("."), []
spec = importlib.util.find_spec(parts[0])
for number in range(1, len(parts) + 1):
    if spec is None:
        break
    if spec.origin not in (None, "namespace"):
        found.append(os.path.realpath(spec.origin) if spec.has_location else spec.origin)
    places = spec.submodule_search_locations
    if number == len(parts) and places is None:
        break
    name = ".".join([*parts[:number], *(parts[number:number + 1] or ["__main__"])])
    find = importlib.machinery.PathFinder.find_spec
    spec = None if places is None else find(name, places)
    if number == len(parts) and spec is not None:
        found.append(os.path.realpath(spec.origin))
print("\\0".join(found if spec is not None else [""]))
"""


def is_script(module: str) -> bool:
    """Whether --module names a script and not a module."""
    return module.endswith(".py")


def check_name(module: str) -> None:
    """Raises `UserError` for a text that names neither a script nor a module."""
    if not is_script(module) and not all(part.isidentifier() for part in module.split(".")):
        raise UserError(f"--module {module!r} is neither a script's path nor a module's name")


def check_commit_has(
    module: str, mirror: Path, commit: str, changed: Iterable[str], environment: str
) -> None:
    """Raises `UserError` where a commit does not have the job's script or module.

    Args:
        changed: files of uncommitted changes, which the job has as well.
        environment: a module may come from a virtual environment, which is made later.
    """
    check_name(module)
    if not is_script(module) and environment != CURRENT:
        return
    names = [os.path.normpath(module)] if is_script(module) else module_files(module)
    parents = {str(parent) for name in names for parent in Path(name).parents} - {".", "/"}
    if any(name.startswith(("/", "../")) for name in names):
        raise UserError(f"the commit has no script {module}: check --module")
    paths = sorted({*names, *parents})
    listing = git("--literal-pathspecs", "ls-tree", "-z", commit, "--", *paths, folder=mirror)
    modes = {
        name: facts.split()[0]
        for facts, _, name in (row.partition("\t") for row in listing.split("\0") if row)
    }
    if any(modes.get(parent) in (GITLINK, LINK) for parent in parents):
        return  # known once it is checked out
    if not {*names}.intersection(modes.keys() | set(changed)):
        what = "script" if is_script(module) else "module"
        close = path_of_name(Path(names[0]).name, mirror, commit) if is_script(module) else ""
        hint = f"did you mean {close}?" if close else "check --module"
        raise UserError(f"the commit has no {what} {module}: {hint}")


def path_of_name(name: str, mirror: Path, commit: str) -> str:
    """The first file of this name in a commit's subfolders; empty where there is none."""
    listing = git("ls-tree", "-r", "-z", "--name-only", commit, folder=mirror)
    return next((path for path in listing.split("\0") if Path(path).name == name), "")


def module_files(module: str) -> list[str]:
    """The files that `python -m` may run for a module."""
    base = module.replace(".", "/")
    return [f"{folder}{base}{end}" for folder in ("", "src/") for end in (".py", "/__main__.py")]


def job_program(module: str, folder: Path) -> list[str]:
    """Python's words for the job's script. Raises `UserError` where the commit has no such one."""
    check_name(module)
    if not is_script(module):
        return ["-m", module]
    script = folder / module
    if not (script.resolve().is_relative_to(folder.resolve()) and script.is_file()):
        raise UserError(f"the commit has no script {module}: check --module")
    return [str(script)]


def check_origin(
    program: Sequence[str],
    python: Path,
    cwd: Path,
    variables: Mapping[str, str],
    folder: Path,
    environment: str,
) -> None:
    """Raises `UserError` where the job's module would not come from its workspace.

    Args:
        program: Python's words for the script, as `job_program` gives them.
        folder: the workspace.
        environment: unless `current`, the module may come from the commit's virtual environment.
    """
    if program[0] != "-m":
        return
    command = [str(python), "-c", PROBE, program[1]]
    done = subprocess.run(
        command, cwd=cwd, env=dict(variables), stdin=subprocess.DEVNULL, capture_output=True
    )
    files = os.fsdecode(done.stdout).rstrip("\n").rpartition("\n")[2].split("\0")
    if done.returncode or not files[0]:
        raise UserError(f"the commit has no module {program[1]}: check --module")
    allowed = [folder.resolve()]
    if environment != CURRENT:
        allowed.append(python.parents[1].resolve())
    for file in files:
        if not any(Path(file).is_relative_to(place) for place in allowed):
            raise UserError(
                f"--module {program[1]} would run {file}, which is not in the commit: give a "
                "script or module of the commit, or --environment venv or uv for a module of its "
                "lock file"
            )
