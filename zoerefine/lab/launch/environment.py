"""The Python that a job runs: a virtual environment made from its commit's lock file.

<home>/environments/<digest>/          a virtual environment
<home>/environments/<digest>/.ready    written when it is complete
<home>/environments/<digest>.lock      held while it is made; held, shared, while it is used

A row of `registries.ENVIRONMENTS` is a class like `Venv`.

Commits share an environment where their lock files are equal and lead to no other file of the
commit. Only what surely leads to none counts as such: a form that is not known here is taken for a
reference. The environment is then made for each commit, and is never a wrong one.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from zoerefine.base.errors import UserError, missing_package
from zoerefine.base.files.atomic import write_text
from zoerefine.base.files.file_lock import lock
from zoerefine.base.messages import say
from zoerefine.base.registries import ENVIRONMENTS
from zoerefine.base.yaml.keys import texts_in
from zoerefine.lab.launch.variables import build_variables

CURRENT = "current"  # the kind that makes nothing: the interpreter of this process
NO_VARIABLES: Mapping[str, str] = {}


class StepFailed(Exception):
    """A command of a build failed; the text is its standard error."""


@dataclass(frozen=True)
class BuildSteps:
    """Runs the commands of a build.

    Attributes:
        folder: the working directory.
        lock_fd: the held lock. Commands inherit it, so that it stays held after a kill of the
            launcher alone, for as long as they write.
        environment: the variables of the commands.
    """

    folder: Path
    lock_fd: int
    environment: Mapping[str, str]

    def run(self, *words: str | Path, variables: Mapping[str, str] = NO_VARIABLES) -> None:
        """Run a command to its end. Raises `StepFailed` where it fails.

        Args:
            variables: set for the command besides.
        """
        done = subprocess.run(
            [*map(str, words)],
            cwd=self.folder,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            pass_fds=[self.lock_fd],
        )
        if done.returncode:
            raise StepFailed(done.stderr)


# Isolated: Python would find modules of the commit first, and pip count them as installed.
VENV = ("-I", "-m", "venv")
PIP_INSTALL = ("-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")


class Venv:
    """Makes virtual environments with Python's venv and pip; other kinds change what differs.

    Attributes:
        LOCK_FILES: the lock files that it reads; a commit's first one is used.
        SETTINGS_FILES: other files of a commit that decide what is installed.
    """

    LOCK_FILES: tuple[str, ...] = ("requirements.lock", "requirements.txt")
    SETTINGS_FILES: tuple[str, ...] = ()

    def check_requirements(self) -> None:
        """Raises `UserError` where something that the builder needs is not installed."""

    def build(self, folder: Path, file: Path, steps: BuildSteps) -> None:
        """Make the environment in a folder that does not exist. Raises `StepFailed`."""
        steps.run(sys.executable, *VENV, folder)
        steps.run(folder / "bin" / "python", *PIP_INSTALL, "-r", file)

    def reason(self, errors: str) -> str:
        """One line that says why a command failed, from its standard error.

        pip's first line that begins with ERROR, or the last line.
        """
        lines = errors.strip().splitlines() or [""]
        return next((line for line in lines if line.startswith("ERROR")), lines[-1])


UV_LOCK = "uv.lock"
QUIET = ("--quiet", "--no-progress", "--color", "never")
LONGEST_REASON = 500


class Uv(Venv):
    """Makes virtual environments with uv, which links packages from its cache.

    They have what those of `Venv` would have: Python's own venv makes the folder, and the pip and
    setuptools that come with Python are installed first.
    """

    LOCK_FILES = (UV_LOCK, "pylock.toml", "requirements.lock")
    SETTINGS_FILES = ("pyproject.toml", "uv.toml")

    def check_requirements(self) -> None:
        if find_spec("uv") is None:
            raise missing_package("--environment uv needs uv", "uv")

    def build(self, folder: Path, file: Path, steps: BuildSteps) -> None:
        """The network is used only where uv's cache does not have everything."""
        steps.run(sys.executable, *VENV, "--without-pip", folder)
        uv = uv_program()
        into = ("--python", folder / "bin" / "python", *QUIET)
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

    def reason(self, errors: str) -> str:
        """uv's message in one line, without its warnings."""
        lines = [line.strip() for line in errors.splitlines()]
        text = " ".join(line for line in lines if line and not line.startswith("warning:"))
        text = text.removeprefix("error: ")
        return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."


def uv_program() -> str:
    """The program in the PyPI package uv."""
    import uv

    program: str = uv.find_uv_bin()
    return program


def bundled_wheels() -> list[Path]:
    """The packages that come with Python and that its venv installs."""
    import ensurepip

    place = sysconfig.get_config_var("WHEEL_PKG_DIR")
    folder = Path(place) if place else Path(ensurepip.__file__).parent / "_bundled"
    names = ("pip", "setuptools") if sys.version_info < (3, 12) else ("pip",)
    return [wheel for name in names for wheel in folder.glob(f"{name}-*.whl")]


def environments_folder(home: Path) -> Path:
    """The folder of all virtual environments."""
    return home / "environments"


def is_ready(folder: Path) -> bool:
    """Whether a virtual environment is complete, and the Python that it links to is still there."""
    return (folder / ".ready").exists() and os.access(folder / "bin" / "python", os.X_OK)


def check_environment(kind: str) -> None:
    """Raises `UserError` where environments of this kind cannot be made here."""
    ENVIRONMENTS.check(kind, "--environment")
    builder_of(kind).check_requirements()


def builder_of(kind: str) -> Venv:
    """The builder of a name in `registries.ENVIRONMENTS`."""
    builder: Venv = ENVIRONMENTS.load(kind)()
    return builder


def find_lock_file(kind: str, workspace: Path) -> Path:
    """The file that pins a commit's packages. Raises `UserError` where it has none."""
    for name in lock_files(kind):
        path = workspace / name
        if path.is_file() and path.resolve().is_relative_to(workspace.resolve()):
            return path
    raise no_lock_file(kind)


def lock_files(kind: str) -> tuple[str, ...]:
    """The names of files that may pin a commit's packages."""
    return builder_of(kind).LOCK_FILES


def no_lock_file(kind: str) -> UserError:
    """The error of a commit that has none of them."""
    return UserError(f"the commit has no {' or '.join(lock_files(kind))} for --environment {kind}")


@contextmanager
def job_python(kind: str, workspace: Path, version: str, home: Path) -> Iterator[Path]:
    """Hold the Python of a virtual environment, which is made from the commit's lock file first.

    Args:
        kind: a name of `registries.ENVIRONMENTS`.
        version: names the workspace's files: the commit, and the digest of its changes.

    Raises `UserError` where the commit has no lock file, or it cannot be installed.
    """
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


def build_environment(kind: str, folder: Path, file: Path, lock_fd: int) -> None:
    """Make a virtual environment from a lock file. What cannot be used there is removed first.

    Args:
        lock_fd: the held lock of the folder.
    """
    say(f"installing {file.name} into {folder} (kept for later launches)")
    shutil.rmtree(folder, ignore_errors=True)
    builder = builder_of(kind)
    try:
        builder.build(folder, file, BuildSteps(file.parent, lock_fd, build_variables()))
    except StepFailed as error:
        shutil.rmtree(folder, ignore_errors=True)
        reason = builder.reason(str(error)) or "no message"
        raise UserError(f"{file.name} of the commit cannot be installed: {reason}") from None
    write_text(folder / ".ready", f"{file.name}\n")


def environment_name(kind: str, file: Path, version: str) -> str:
    """The name of the virtual environment that a lock file gives.

    Args:
        version: names the files beside the lock file: the commit, and the digest of its changes.
    """
    settings = [file.parent / name for name in builder_of(kind).SETTINGS_FILES]
    settings = [path for path in settings if path.is_file()]
    has_references = not all(map(stands_alone, [file, *settings]))
    about = f"{sys.version}\n{platform.machine()}\n{version if has_references else ''}\n"
    about += "" if kind == "venv" else f"{kind} {file.name}\n"
    texts = [f"{path.name}\n".encode() + path.read_bytes() for path in settings]
    return hashlib.sha256(b"".join([about.encode(), *texts, file.read_bytes()])).hexdigest()[:16]


# Servers and absolute paths are not the commit's. A variable may be: uv knows ${PROJECT_ROOT}.
SERVER = r"(?:git\+)?(?:https?|ssh)://\S+"
ELSEWHERE = re.compile(rf"{SERVER}|(?:file://)?/[^\s$]*")
NAME = r"[A-Za-z0-9][\w.-]* ?(?:\[[\w ,.-]*\] ?)?"
VERSION = r"(?:===?|~=|!=|<=?|>=?) ?[\w.*+!-]+"
REQUIREMENT = re.compile(
    rf"(?P<what>{NAME}(?:{VERSION}(?: ?, ?{VERSION})*)?|(?:{NAME}@ ?)?{SERVER})"
    r"(?: ?;.*|(?: --hash[= ]\S+)*)"
)
OPTION = (
    rf"(?:--index-url|--extra-index-url|--find-links|-i|-f)[= ](?:{ELSEWHERE.pattern})"
    r"|(?:--only-binary|--no-binary|--trusted-host)[= ][\w.:,\[\]-]+"
    r"|--no-index|--pre|--prefer-binary|--require-hashes"
)
OPTIONS = re.compile(rf"(?:{OPTION})(?: (?:{OPTION}))*")
COMMENT = re.compile(r"(?:^|\s)#.*$")
# In pylock.toml and the settings of uv: where packages are.
PLACES = {"url", "index-url", "extra-index-url", "find-links", "path", "git"}


def stands_alone(file: Path) -> bool:
    """Whether no other file of the commit counts for what a file says."""
    text = file.read_bytes().decode(errors="replace")
    is_alone = TOML_FILES.get(file.name)
    if is_alone is None:
        return all(line_is_alone(line, file.parent) for line in requirement_lines(text))
    try:
        return all(is_alone(keys, value) for keys, value in texts_in(tomllib.loads(text)))
    except tomllib.TOMLDecodeError:
        return False


def requirement_lines(text: str) -> Iterator[str]:
    """The lines of a requirements file: without comments, continued ones as one, single spaces."""
    lines = "\n".join(COMMENT.sub("", line) for line in text.splitlines())
    for line in lines.replace("\\\n", " ").split("\n"):
        if words := line.split():
            yield " ".join(words)


def line_is_alone(line: str, folder: Path) -> bool:
    """Whether a line has options, or a requirement by name or URL, that need no file."""
    if OPTIONS.fullmatch(line):
        return True
    requirement = REQUIREMENT.fullmatch(line)
    # `tiny-1.0.zip` has the form of a name, and is installed where it is a file.
    return requirement is not None and not os.path.exists(folder / requirement["what"].strip())


def uv_lock_is_alone(keys: tuple[str, ...], value: str) -> bool:
    """Whether an entry of uv.lock is no package of the commit. Its own project is not installed."""
    if keys[:2] != ("package", "source"):
        return True
    if keys[2:] in (("virtual",), ("editable",), ("directory",)):
        return value == "."
    return keys[2:] == ("git",) or (keys[2:] in (("registry",), ("url",)) and is_elsewhere(value))


def project_is_alone(keys: tuple[str, ...], value: str) -> bool:
    """Whether an entry of pyproject.toml is no setting of uv that leads to the commit's files."""
    return keys[:2] != ("tool", "uv") or places_are_alone(keys[2:], value)


def places_are_alone(keys: tuple[str, ...], value: str) -> bool:
    """Whether an entry leads to no file of the commit: as a place, or by `name @ place`."""
    if PLACES.intersection(keys[-1:]):
        return is_elsewhere(value)
    return "@" not in value or REQUIREMENT.fullmatch(" ".join(value.split())) is not None


def is_elsewhere(address: str) -> bool:
    """Whether an address is a server's, or an absolute path."""
    return ELSEWHERE.fullmatch(address) is not None


TOML_FILES = {
    "uv.lock": uv_lock_is_alone,
    "pylock.toml": places_are_alone,
    "pyproject.toml": project_is_alone,
    "uv.toml": places_are_alone,
}
