"""A job's environment variables: which of the user's it gets, and which of them are recorded.

Also those that the build of a virtual environment gets.
"""

import os
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.base.machine.openmp import SETTINGS, forget_choice
from zoerefine.base.machine.processor import INSTRUCTIONS
from zoerefine.base.messages import warn
from zoerefine.base.run_dir import CALLER_FOLDER, NODE, RUN_FOLDER, SEED, RunDir
from zoerefine.base.secrets import find_secret
from zoerefine.lab.launch.git.address import LOGIN_VARIABLES

# Variables that would change what the job runs, and those that an outer launch has set.
REMOVED_VARIABLES = {
    *("PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONPLATLIBDIR", "PYTHONOPTIMIZE"),
    *("PYTHONWARNINGS", "PYTHONDEBUG", "PYTHONSAFEPATH", "PYTHONNOUSERSITE", "__PYVENV_LAUNCHER__"),
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", *LOGIN_VARIABLES, NODE),
}
# Variables that decide the bits of a result, whoever sets them. They are recorded with every job.
DECIDING_VARIABLES = (
    *("PYTHONHASHSEED", "CUBLAS_WORKSPACE_CONFIG", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    *SETTINGS,
    *INSTRUCTIONS,
)
LAUNCHER_VARIABLES = {
    *("PATH", "PYTHONPATH", "PYTHONHASHSEED", "PYTHONUNBUFFERED", "VIRTUAL_ENV"),
    *REMOVED_VARIABLES,
}
# pip counts the packages on PYTHONPATH as installed.
REMOVED_FROM_BUILDS = {*REMOVED_VARIABLES, "PYTHONPATH", "VIRTUAL_ENV"}
# An installer's settings that say from where and how packages come. Every other one could decide
# what is installed or where, so that later launches would find an environment made otherwise.
INSTALLERS = ("PIP_", "UV_")
INSTALLER_SETTINGS = {
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_CONFIG_FILE"),
    *("PIP_TRUSTED_HOST", "PIP_CERT", "PIP_CLIENT_CERT", "PIP_PROXY", "PIP_KEYRING_PROVIDER"),
    *("PIP_TIMEOUT", "PIP_DEFAULT_TIMEOUT", "PIP_RETRIES", "PIP_NO_INPUT", "PIP_USE_FEATURE"),
    *("PIP_CACHE_DIR", "PIP_NO_CACHE_DIR", "PIP_REQUIRE_HASHES"),
    *("UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_OFFLINE", "UV_CONFIG_FILE"),
    *("UV_INSECURE_HOST", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_KEYRING_PROVIDER"),
    *("UV_CREDENTIALS_DIR", "UV_GITHUB_TOKEN", "UV_REQUEST_TIMEOUT", "UV_LOCK_TIMEOUT"),
    *("UV_CACHE_DIR", "UV_NO_CACHE", "UV_LINK_MODE", "UV_REQUIRE_HASHES"),
}
# UV_INDEX_URL, UV_INDEX_<NAME>_PASSWORD, UV_HTTP_TIMEOUT, UV_CONCURRENT_DOWNLOADS, ...
INSTALLER_FAMILIES = ("UV_INDEX", "UV_HTTP_", "UV_CONCURRENT_")


def job_variables() -> dict[str, str]:
    """The user's variables, without those that would change what a job runs."""
    return {name: value for name, value in os.environ.items() if name not in REMOVED_VARIABLES}


def deciding_variables(variables: Mapping[str, str], named: Sequence[str]) -> dict[str, str]:
    """The variables of a job that decide its result.

    Args:
        named: those that the job names itself, as `NAME=VALUE`.
    """
    names = (*DECIDING_VARIABLES, *(word.partition("=")[0] for word in named))
    return {name: variables[name] for name in names if name in variables}


def set_again(variables: MutableMapping[str, str], recorded: Mapping[str, str]) -> None:
    """Give a job the deciding variables that were recorded, and no others of them."""
    forget_choice(variables)
    for name in DECIDING_VARIABLES:
        variables.pop(name, None)
    variables.update(recorded)


def read_named(words: Sequence[str]) -> tuple[str, ...]:
    """`NAME` or `NAME=VALUE` as `NAME=VALUE`.

    Raises `UserError` where it is not set, the launcher sets it itself, or it holds a secret.
    """
    pairs = ((name, value) for name, _, value in (word.partition("=") for word in words))
    return tuple(f"{name}={value_of(name, value)}" for name, value in pairs)


def value_of(name: str, given: str) -> str:
    """The value of a named variable. Raises `UserError` as `read_named`."""
    value = given or os.environ.get(name)
    if value is None:
        fault = "it is not set; set it, or give NAME=VALUE"
    elif name in LAUNCHER_VARIABLES or name.startswith("ZOEREFINE_"):
        fault = "zoerefine sets it for every job; leave it out"
    elif find_secret(value.encode(errors="surrogateescape")):
        fault = "it holds a secret, which every run would keep; leave it out"
    else:
        return value
    raise UserError(f"--record-env {name}: {fault}")


def build_variables() -> dict[str, str]:
    """The user's variables, without those that would decide what an environment has."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in REMOVED_FROM_BUILDS
        and (
            not name.startswith(INSTALLERS)
            or name in INSTALLER_SETTINGS
            or name.startswith(INSTALLER_FAMILIES)
        )
    }


LIBRARY = Path(__file__).resolve().parents[3]  # the folder of this package
PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")


def import_folders(workspace: Path, tree: Path | None) -> list[Path]:
    """Where a job finds the commit's packages: its workspace, `src` of a project, and every folder
    of the repository that this Python imports from. Otherwise these packages would come from an
    editable installation, or from the user's PYTHONPATH: another version.

    Args:
        tree: the repository's working tree; None where it is not on this machine.
    """
    folders = [workspace]
    source = workspace / "src"
    is_project = any((workspace / name).is_file() for name in PROJECT_FILES)
    if is_project and any(source.glob("*/__init__.py")) and not any(source.glob("*.py")):
        folders.append(source)
    for place in imported_from(tree) if tree else ():
        if (folder := workspace / place).is_dir():
            folders.append(folder)
        else:
            warn(f"Python imports from {tree}/{place}, and the commit has no {place}: the job gets "
                 "what is there now")  # fmt: skip
    return list(dict.fromkeys(folders))


def imported_from(tree: Path) -> list[Path]:
    """The folders of a working tree that this Python imports from, by their paths there.

    What setuptools installs in editable form is either on `sys.path` or in a finder's MAPPING.
    The first part of `sys.path` is the folder of the program that runs.
    """
    finders = [one for name, one in sys.modules.items() if name.startswith("__editable__")]
    mapped = (path for one in finders for path in getattr(one, "MAPPING", {}).values())
    places = [*sys.path[1:], *(os.path.dirname(path) for path in mapped)]
    top, installed = os.path.realpath(tree), os.path.realpath(sys.prefix)
    real = [Path(os.path.realpath(place)) for place in places if place]
    own = [one for one in real if one.is_relative_to(top) and not one.is_relative_to(installed)]
    return [one.relative_to(top) for one in dict.fromkeys(own)]


def python_path(environment: Mapping[str, str], *folders: Path) -> str:
    """A PYTHONPATH with some folders before those of an environment.

    An empty part (`PYTHONPATH=:/x`) would be the job's working directory, which nobody meant.
    """
    given = environment.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([*map(str, folders), *filter(None, given)])


def job_environment(
    folders: Sequence[Path], run: RunDir, seed: int, caller: Path, python: Path
) -> dict[str, str]:
    """The job's environment variables: the user's, with `import_folders` first on PYTHONPATH."""
    environment = job_variables()
    bin_folder = str(python.parent)
    environment |= {
        "PYTHONPATH": python_path(environment, *folders),
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


def import_variables(cwd: str, folders: Sequence[Path], program: Sequence[str]) -> dict[str, str]:
    """Variables for a job that does not start in its workspace, but imports from `folders`.

    Python searches the working directory first for `python -m`, where another version of the
    package may be. PYTHONSAFEPATH turns this off, for the job's own Python processes too. It also
    turns off the search of the script's folder, so that folder is named in PYTHONPATH.

    Args:
        program: Python's words for the script: its path, or -m and a module.
    """
    if cwd in ("workspace", "script"):
        return {}
    script = [] if program[0] == "-m" else [Path(program[0]).resolve().parent]
    path = python_path(os.environ, *script, *folders)
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": path}
