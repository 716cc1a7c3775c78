"""provenance.json: everything that is needed to run a job again, without secrets."""

import hashlib
import importlib.machinery
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from zoerefine.base.config_roles import OWN_MODULES
from zoerefine.base.files.atomic import digest_files, digest_json, write_json, write_text
from zoerefine.base.files.file_lock import lock
from zoerefine.base.machine.processor import INSTRUCTIONS, cpu_name
from zoerefine.base.run_dir import RunDir
from zoerefine.base.secrets import without_secrets
from zoerefine.base.yaml.keys import mapped
from zoerefine.lab.launch.git.changes import index_copy, uncommitted_files
from zoerefine.lab.launch.git.commands import checkout_commit, git_bytes

RESULT_VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG",
    "PYTHONHASHSEED",
    "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    *INSTRUCTIONS,
)
LIBRARY = "zoerefine"
VERSION = re.compile(r"__version__ = \"(.+?)\"")


def add(run: RunDir, **facts: Any) -> None:
    """Merge facts into the run's provenance.json; other facts in it stay.

    The launcher and its job both write the file. A lock lets one wait for the other.
    """
    run.path.mkdir(parents=True, exist_ok=True)
    with lock(run.path / ".provenance.lock"):
        write_json(run.provenance_file, printable(without_secrets(run.recorded() | facts)))


def is_own_training(recorded: Mapping[str, Any]) -> bool:
    """Whether a launcher started our own training, or our training wrote these facts itself.

    A script may have called our training, so the launcher's module alone does not tell.
    """
    launched = str(recorded.get("module", "")).startswith(OWN_MODULES)
    return launched or "config_digest" in recorded


def seed_of(recorded: Mapping[str, Any]) -> Any:
    """The seed of a run; None where the launcher did not know it."""
    known = recorded.get("seed_known", True)
    return recorded.get("seed", recorded.get("hash_seed") if known else None)


def source_facts(folder: Path) -> dict[str, Any]:
    """Commit and uncommitted changes of a working tree, for a run without a launcher.

    Untracked files of the package belong to the changes; without a commit, as of an installed
    package, all of its files do.
    """
    commit = checkout_commit(folder)
    dirty = uncommitted_files(folder) if commit else []
    facts: dict[str, Any] = {"repository": str(folder), "commit": commit, "dirty_files": dirty}
    package = folder / LIBRARY
    if not commit:
        facts["dirty_digest"] = digest_sources(package)
    if dirty:
        words = ("diff", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", "HEAD")
        with index_copy(folder) as env:
            patch = git_bytes(*words, folder=folder, env=env, foreign=True)
        changed = [path for path in map(folder.joinpath, dirty) if path.is_relative_to(package)]
        own = [path for path in changed if path.is_file() and not path.is_symlink()]
        facts["dirty_digest"] = digest_json([patch.hex(), digest_files(package, own)])
    return facts


def machine_facts(python: Path = Path(sys.executable)) -> dict[str, Any]:
    """Python, packages and machine, without importing torch."""
    return {
        "python": platform.python_version(),
        "environment_digest": digest_json(packages(python)),
        "host": socket.gethostname(),
        "platform": " ".join((os.uname().sysname, os.uname().release, os.uname().machine)),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
    }


def device_facts() -> dict[str, Any]:
    """The torch version and the devices that torch uses."""
    import torch

    facts: dict[str, Any] = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    if torch.cuda.is_available():
        facts |= {
            "cuda": torch.version.cuda,
            "driver": next(iter(query_gpus("driver_version")), ""),
            "gpu": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        }
    return facts


def query_gpus(field: str) -> list[str]:
    """One field (`name`, `driver_version`) of each NVIDIA GPU, without CUDA; empty without GPUs."""
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


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


def write_environment(run: RunDir, python: Path) -> None:
    """Write the packages to environment.txt in pip's format."""
    write_text(run.path / "environment.txt", "\n".join(packages(python)) + "\n")


def library_facts(folder: Path, variables: Mapping[str, str], python: Path) -> dict[str, Any]:
    """Version and digest of the zoerefine that a script imports from outside its workspace.

    Empty where the commit has its own, or where there is none.

    Args:
        variables: the job's environment.
        python: the job's interpreter.
    """
    if (folder / LIBRARY / "__init__.py").exists():
        return {}
    listed = [Path(place) for place in variables.get("PYTHONPATH", "").split(os.pathsep) if place]
    for place in [
        *(place / LIBRARY for place in (*listed, *package_folders(python))),
        *hooked_packages(),
    ]:
        init = place / "__init__.py"
        if init.is_file():
            version = VERSION.search(init.read_text(encoding="utf-8", errors="replace"))
            digest = digest_sources(place)
            return {"library": {"version": version[1] if version else "", "digest": digest}}
    return {}


def hooked_packages() -> Iterator[Path]:
    """Where an editable installation's import hook finds the package."""
    usual = (importlib.machinery.BuiltinImporter, importlib.machinery.FrozenImporter)
    for finder in sys.meta_path:
        if finder in (*usual, importlib.machinery.PathFinder):
            continue
        spec = finder.find_spec(LIBRARY, None) if hasattr(finder, "find_spec") else None
        if spec is not None and spec.origin:
            yield Path(spec.origin).parent


def digest_sources(package: Path) -> str:
    """SHA-256 over the names and contents of a package's modules."""
    digest = hashlib.sha256()
    root = str(package)
    folders = os.walk(root)  # Path.rglob takes three times as long
    files = [f"{folder}/{name}" for folder, _, names in folders for name in names]
    sources = (file[len(root) + 1 :] for file in files if file.endswith(".py"))
    for name in sorted(sources, key=lambda name: name.split("/")):
        with open(f"{root}/{name}", "rb") as file:
            content = file.read()
        digest.update(f"{name}\0{len(content)}\0".encode(errors="surrogateescape") + content)
    return digest.hexdigest()


def job_facts() -> dict[str, Any]:
    """The job's command line, and the environment variables that can change results."""
    return {
        "job_argv": list(sys.argv),
        "environment": {key: os.environ[key] for key in RESULT_VARIABLES if key in os.environ},
    }


def now() -> str:
    """The time in UTC, in seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def printable(value: Any) -> Any:
    """Escape file names that are not valid UTF-8, which JSON cannot contain."""

    def escaped(one: Any) -> Any:
        return one.encode("utf-8", "backslashreplace").decode() if isinstance(one, str) else one

    return mapped(value, escaped)
