"""A job, and the plan of its launch: everything that can be looked up before it starts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from zoerefine.errors import UserError
from zoerefine.files import digest_json
from zoerefine.launch.changes import Changes, read_changes
from zoerefine.launch.git_commands import GitError, git_bytes
from zoerefine.launch.mirror import fetch_commit
from zoerefine.launch.redaction import find_secret
from zoerefine.launch.repository_address import RepositoryAddress, parse_address
from zoerefine.run_dir import RunDir

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
class LaunchPlan:
    """A job and everything that was looked up for it.

    Attributes:
        mirror: the folder of the mirror, which has the commit.
        commit: 40 hex digits.
        config: the config's bytes.
        tree: the config's keys; empty where it is not YAML.
        home: the folder of mirrors and workspaces.
    """

    job: Job
    address: RepositoryAddress
    mirror: Path
    commit: str
    changes: Changes
    config: bytes
    tree: dict[str, Any]
    home: Path

    @property
    def identity(self) -> str:
        """SHA-256 of everything that decides what runs: equal jobs have equal identities."""
        job = self.job
        config = self.tree or self.config.hex()
        what = [self.commit, self.changes.digest, config, job.module, job.overrides]
        return digest_json([*what, job.config_flag, job.arguments, job.environment])

    @property
    def name(self) -> str:
        """RUN.NAME of the config, else the config file's name."""
        name = str(config_value(self.tree, self.job.overrides, "RUN.NAME") or self.job.config.stem)
        if not name or "/" in name or name.startswith(".") or not name.isprintable():
            raise UserError(f"RUN.NAME {name!r} cannot be a folder's name")
        return name

    @property
    def seed(self) -> int:
        """SEED of the config, else 0."""
        seed = config_value(self.tree, self.job.overrides, "SEED")
        return seed if isinstance(seed, int) and not isinstance(seed, bool) else 0

    def run(self, runs: Path | None) -> RunDir:
        """The job's run directory: below `runs`, or RUN.ROOT, or ./runs."""
        root = config_value(self.tree, self.job.overrides, "RUN.ROOT")
        runs = runs or self.job.caller / (root if isinstance(root, str) and root else "runs")
        return RunDir((runs / self.name / self.run_name).resolve())

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
    tree = parse_config(job.config, config)
    return LaunchPlan(job, address, mirror, commit, changes, config, tree, home)


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


def parse_config(path: Path, data: bytes) -> dict[str, Any]:
    """The keys of a YAML config; empty for a file of another kind.

    Raises `UserError` where it is not valid, or contains a secret that every run would keep.
    """
    name = find_secret(data)
    if name:
        raise UserError(
            f"config {path} contains the secret of {name}: let the job read it from the environment"
        )
    if path.suffix not in YAML_SUFFIXES:
        return {}
    try:
        tree = yaml.safe_load(data)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"config {path} is not valid YAML: {error}") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise UserError(f"config {path} must be a mapping of keys, not a {type(tree).__name__}")
    return {str(key): value for key, value in tree.items()}


def config_value(tree: dict[str, Any], overrides: Sequence[str], key: str) -> Any:
    """The value of a config key with the overrides applied; None where it is not set."""
    value: Any = tree
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    for name, text in zip(overrides[::2], overrides[1::2], strict=True):
        if name == key:
            try:
                value = yaml.safe_load(text)
            except yaml.YAMLError:
                value = text
    return value
