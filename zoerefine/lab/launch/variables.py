"""A job's environment variables: which of the user's it gets, and which of them are recorded.

Also those that the build of a virtual environment gets.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.base.machine.cores import SETTINGS, forget_choice
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


OWN_FOLDER = Path(__file__).resolve().parents[3]  # the folder of this package
PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")


def import_folders(workspace: Path, tree: Path | None) -> list[Path]:
    """Where a job finds the commit's packages: its workspace, `src` of a project, and each folder
    of the commit that this Python imports from in a working tree. Otherwise these packages would
    come from an editable installation, or from the user's PYTHONPATH: another version.

    Args:
        tree: the repository's working tree; None where it is not on this machine.
    """
    mapped = mapped_packages()
    warn_of_renamed(workspace, mapped)
    own = tree and Path(os.path.realpath(tree))
    folders = [workspace, *source_folder(workspace)]
    for place, top in in_working_trees([*sys.path[1:], *map(os.path.dirname, mapped.values())]):
        name = place.relative_to(top)
        if have_common_names(place, workspace / name):
            folders.append(workspace / name)
        elif top == own:
            warn(f"Python imports from {place}, and the commit has no {name}: {AS_IT_IS}")
    return list(dict.fromkeys(folders))


def source_folder(workspace: Path) -> list[Path]:
    """The `src` of a project that has its packages there; none of another project."""
    source = workspace / "src"
    is_project = any((workspace / name).is_file() for name in PROJECT_FILES)
    has_packages = any(source.glob("*/__init__.py")) and not any(source.glob("*.py"))
    return [source] if is_project and has_packages else []


def warn_of_renamed(workspace: Path, mapped: Mapping[str, str]) -> None:
    """Warn of the commit's packages that are imported by a name other than their folder's."""
    for package, path in mapped.items():
        is_renamed = package.split(".")[-1] != os.path.basename(path)
        trees = in_working_trees([path] if is_renamed else [])
        if any((workspace / place.relative_to(top)).is_dir() for place, top in trees):
            warn(f"Python imports {package} from {path}, whose name is another one: {AS_IT_IS}")


def have_common_names(one: Path, other: Path) -> bool:
    """Whether two folders have files or folders of one name; the second one may not exist."""
    return other.is_dir() and not set(os.listdir(one)).isdisjoint(os.listdir(other))


AS_IT_IS = "the job gets what is there now"


def mapped_packages() -> dict[str, str]:
    """The packages of editable installations that setuptools' finders map, with their folders."""
    finders = [one for name, one in sys.modules.items() if name.startswith("__editable__")]
    return {k: path for one in finders for k, path in getattr(one, "MAPPING", {}).items()}


def in_working_trees(places: Iterable[str]) -> Iterator[tuple[Path, Path]]:
    """Those of some folders that lie in a git working tree, each with the top of that tree.

    What is installed into this Python is left out, also where its environment lies in a tree.
    """
    installed = os.path.realpath(sys.prefix)
    for place in dict.fromkeys(Path(os.path.realpath(one)) for one in places if one):
        tops = [one for one in (place, *place.parents) if os.path.lexists(one / ".git")]
        if tops and place.is_dir() and not place.is_relative_to(installed):
            yield place, tops[0]


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
