"""A job, and the plan of its launch: everything that can be looked up before it starts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoerefine.errors import UserError
from zoerefine.files import digest_json
from zoerefine.identity import launch_settings
from zoerefine.launch.changes import Changes, read_changes
from zoerefine.launch.git_commands import GitError, git_bytes
from zoerefine.launch.mirror import fetch_commit
from zoerefine.launch.redaction import find_secret
from zoerefine.launch.repository_address import RepositoryAddress, parse_address
from zoerefine.run_dir import RunDir, run_name_fault
from zoerefine.yaml_text import Document, YamlError, load_yaml, parse_mapping

YAML_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class Job:
    """What to launch.

    Attributes:
        repo: a folder or URL.
        ref: a commit, tag or branch.
        config: the config file for the module. If there is no such file, the commit's is used.
        module: `package.module`, or the path of a script inside the repository.
        overrides: KEY VALUE words, given to the module last.
        arguments: more words for the module, before the overrides.
        config_flag: the module's option for its config.
        branch: if not empty, the commit must be on this branch.
        allow_dirty: record uncommitted changes of a local repository, and apply them.
        environment: `current`, or `venv`: made from the commit's own lock file.
        caller: the user's folder. Relative paths of zoerefine's config keys start here.
    """

    repo: str
    ref: str
    config: Path
    module: str = "zoerefine.train"
    overrides: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    config_flag: str = "--config"
    branch: str = ""
    allow_dirty: bool = False
    environment: str = "current"
    caller: Path = field(default_factory=Path.cwd)


@dataclass(frozen=True)
class Setting:
    """A value of a config and, for a scalar, its characters."""

    value: Any = None
    text: str | None = None

    def as_text(self) -> str:
        """The value as a text, as it is written: `051` stays. Empty where it is not set."""
        if self.value is None or isinstance(self.value, str):
            return self.value or ""
        return self.text or str(self.value)


@dataclass(frozen=True)
class LaunchPlan:
    """A job and everything that was looked up for it.

    Attributes:
        mirror: the folder of the mirror, which has the commit.
        commit: 40 hex digits.
        config: the config's bytes.
        document: the config's keys; empty where it is not YAML.
        home: the folder of mirrors and workspaces.
    """

    job: Job
    address: RepositoryAddress
    mirror: Path
    commit: str
    changes: Changes
    config: bytes
    document: Document
    home: Path

    @property
    def identity(self) -> str:
        """SHA-256 of everything that decides what runs: equal jobs have equal identities."""
        job = self.job
        config = self.document.tree or self.config.hex()
        settings = launch_settings(config, job.overrides, job.module)
        what = [self.commit, self.changes.digest, settings, job.module]
        return digest_json([*what, job.config_flag, job.arguments, job.environment])

    @property
    def name(self) -> str:
        """RUN.NAME of the config, else the config file's name."""
        name = self._setting("RUN.NAME").as_text() or self.job.config.stem
        if fault := run_name_fault(name):
            raise UserError(f"RUN.NAME {name!r} cannot be a folder's name: {fault}")
        return name

    @property
    def seed(self) -> int:
        """SEED of the config, else 0."""
        seed = self._setting("SEED").value
        return seed if isinstance(seed, int) and not isinstance(seed, bool) else 0

    def run(self, runs: Path | None) -> RunDir:
        """The job's run directory: below `runs`, or RUN.ROOT, or ./runs."""
        runs = runs or self.job.caller / (self._setting("RUN.ROOT").as_text() or "runs")
        return RunDir((runs / self.name / self.run_name).resolve())

    def _setting(self, key: str) -> Setting:
        return read_setting(self.document, self.job.overrides, key)

    @property
    def run_name(self) -> str:
        """The name of the run's folder: the commit's and the identity's first digits."""
        return f"{self.commit[:8]}-{self.identity[:8]}"

    @property
    def input_name(self) -> str:
        """The file name of the config in the run: input.yaml, or input with its own suffix."""
        suffix = self.job.config.suffix
        return "input.yaml" if suffix in YAML_SUFFIXES else f"input{suffix}"


def make_plan(job: Job, home: Path) -> LaunchPlan:
    """Look up everything that a job needs, and fetch its commit. Only mirrors are written.

    Raises `UserError` for everything that can be wrong before the job starts.
    """
    if len(job.overrides) % 2:
        raise UserError(f"overrides are KEY VALUE pairs; {job.overrides[-1]!r} has no value")
    address = parse_address(job.repo)
    config = read_local_config(job)
    mirror, commit = fetch_commit(address, job.ref, home, job.branch)
    if config is None:
        config = read_committed_config(job, mirror, commit)
    changes = read_changes(address, commit, job.allow_dirty, job.caller / job.config)
    document = parse_config(job.config, config)
    return LaunchPlan(job, address, mirror, commit, changes, config, document, home)


def read_local_config(job: Job) -> bytes | None:
    """The config's bytes; None where there is no such file."""
    try:
        return (job.caller / job.config).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"config {job.config} cannot be read: {error.strerror}") from None


def read_committed_config(job: Job, mirror: Path, commit: str) -> bytes:
    """The config's bytes in the commit. Raises `UserError` where it has no such file."""
    try:
        if job.config.is_absolute():
            raise GitError(str(job.config))
        return git_bytes("cat-file", "blob", f"{commit}:{job.config.as_posix()}", folder=mirror)
    except GitError:
        raise UserError(
            f"no config file {job.config} in {job.caller} or in commit {commit[:12]}: give an "
            "existing file"
        ) from None


def parse_config(path: Path, data: bytes) -> Document:
    """The keys of a YAML config; empty for a file of another kind.

    Raises `UserError` where it is not valid, or contains a secret that every run would keep.
    """
    name = find_secret(data)
    if name:
        raise UserError(
            f"config {path} contains the secret of {name}: let the job read it from the environment"
        )
    if path.suffix not in YAML_SUFFIXES:
        return Document({}, {})
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"config {path} is not valid YAML: {error}") from None
    return parse_mapping(text, path)


def read_setting(document: Document, overrides: Sequence[str], key: str) -> Setting:
    """A config key with the overrides applied."""
    for name, text in reversed(list(zip(overrides[::2], overrides[1::2], strict=True))):
        if name == key:
            try:
                return Setting(load_yaml(text), text.strip())
            except YamlError:
                return Setting(text, text)
    value: Any = document.tree
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return Setting(value, document.text(key))
