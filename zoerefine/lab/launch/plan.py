"""The plan of a job's launch: everything that can be looked up before it starts."""

import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from zoerefine.base.config_roles import OWN_MODULES
from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import write_json
from zoerefine.base.run_dir import LARGEST_DOCUMENT, RunDir, require_file, run_name_fault
from zoerefine.base.secrets import (
    INSTEAD,
    find_secret,
    find_secret_in_config,
    find_secret_in_values,
    holds_password,
)
from zoerefine.base.yaml.keys import value_at
from zoerefine.base.yaml.read import Document, parse_mapping, refuse_duplicate_keys
from zoerefine.base.yaml.script_overrides import NEW_KEY, YAML_SUFFIXES
from zoerefine.lab.launch.environment import CURRENT, check_environment, lock_files, no_lock_file
from zoerefine.lab.launch.git.address import RepositoryAddress, parse_address
from zoerefine.lab.launch.git.changes import Changes, read_changes
from zoerefine.lab.launch.git.commands import GitError, git, git_bytes
from zoerefine.lab.launch.git.mirror import fetch_commit
from zoerefine.lab.launch.identity import launch_identity, launch_settings, quoted_switches
from zoerefine.lab.launch.included import CommitFiles, Included, find_included
from zoerefine.lab.launch.job import IN_PLACE, MERGED, NO_CONFIG, Job, Setting, read_setting
from zoerefine.lab.launch.job_module import check_commit_has
from zoerefine.lab.launch.workspace.workspace import Inputs, digest_inputs


@dataclass(frozen=True)
class LaunchPlan:
    """A job and everything that was looked up for it.

    Attributes:
        mirror: the folder of the mirror, which has the commit.
        commit: 40 hex digits.
        config: the bytes of the config file that the job gets.
        home: the folder of mirrors and workspaces.
        included: what the config includes, and its own place in the workspace.
        inputs: the digests of the files of `Job.inputs`.
        document: the config's keys; empty where it is not YAML.

    Raises `UserError` where the config is not valid, or its run would keep a secret.
    """

    job: Job
    address: RepositoryAddress
    mirror: Path
    commit: str
    changes: Changes
    config: bytes
    home: Path
    included: Included = field(default_factory=Included)
    inputs: Inputs = field(default_factory=dict)
    document: Document = field(init=False)

    def __post_init__(self) -> None:
        job = self.job
        refuse_password(Document({}, {}), job.overrides)  # before the search for any secret
        if job.module.startswith(OWN_MODULES):
            refuse_own_words(job.overrides)
        object.__setattr__(self, "document", parse_config(job.config, self.config))
        if secret := find_secret(self._given_name.encode(errors="surrogateescape")):
            raise UserError(f"the run's name contains the secret of {secret}: give another --name")

    @property
    def identity(self) -> str:
        """SHA-256 of everything that decides what runs: equal jobs have equal identities."""
        return self._identity_of(self.job)

    def _identity_of(self, job: Job) -> str:
        config = self.document.tree or self.config.hex()
        settings = launch_settings(config, self.override_arguments, job.module)
        if self.quoted_switches and not job.module.startswith(OWN_MODULES):
            settings["in quotes"] = self.quoted_switches
        changes = self.changes.digest
        return launch_identity(job, self.commit, changes, settings, self.included, self.inputs)

    @cached_property
    def quoted_switches(self) -> list[str]:
        """See `identity.quoted_switches`."""
        return quoted_switches(self.document.tree, self.config)

    @property
    def version(self) -> str:
        """The commit, and the digest of its uncommitted changes: names the files that run."""
        return self.commit + self.changes.digest

    @property
    def override_arguments(self) -> tuple[str, ...]:
        """The overrides that the job gets as words; the config file holds the others."""
        return () if self.job.overrides_in in MERGED else self.job.overrides

    @property
    def name(self) -> str:
        """The name of the run, which is a folder's name. Raises `UserError` where it cannot be."""
        name = self._given_name
        if fault := run_name_fault(name):
            source = "--name" if self.job.name else "RUN.NAME"
            raise UserError(f"{source} {name!r} cannot be a folder's name: {fault}")
        return name

    @property
    def _given_name(self) -> str:
        job = self.job
        script = Path(job.module).stem if job.config == NO_CONFIG else job.config.stem
        return job.name or self._setting("RUN.NAME").as_text() or script

    @property
    def seed(self) -> int:
        """The seed in the config, else 0."""
        return self.known_seed or 0

    @property
    def known_seed(self) -> int | None:
        """The seed in the config or the words; None where they have none."""
        seed = self._setting(self.job.seed_key.removeprefix(NEW_KEY)).value
        return seed if isinstance(seed, int) and not isinstance(seed, bool) else None

    def hand_over(self, file: Path) -> None:
        """Write what `handed_over` reads: all that was read of files that may change meanwhile."""
        # Any bytes are a text in this encoding.
        kept = {"config": self.config.decode("latin-1"), "included": asdict(self.included)}
        write_json(file, kept)

    def run(self, runs: Path | None) -> RunDir:
        """The job's run directory: below `runs`, or RUN.ROOT, or ./runs."""
        runs = runs or self.job.caller / (self._setting("RUN.ROOT").as_text() or "runs")
        return RunDir((runs / self.name / self.run_name).resolve())

    def _setting(self, key: str) -> Setting:
        found = read_setting(self.document, self.override_arguments, key)
        inherited = value_at(self.included.tree or {}, key)
        return Setting(inherited) if found.value is None else found

    @property
    def run_name(self) -> str:
        """The name of the run's folder: the commit's and the identity's first digits.

        A further execution stands beside the first: `<first>-run2`, `<first>-run3`.
        """
        first = self._identity_of(replace(self.job, again=0))
        number = f"-run{self.job.again + 1}" if self.job.again else ""
        return f"{self.commit[:8]}-{first[:8]}{number}"

    @property
    def input_name(self) -> str:
        """The file name of the config in the run: input.yaml, or input with its own suffix."""
        suffix = self.job.config.suffix
        is_yaml = suffix in YAML_SUFFIXES or self.job.config == NO_CONFIG
        return "input.yaml" if is_yaml else f"input{suffix}"


def plan_file(run: RunDir) -> Path:
    """Where a queue hands the plan of a run over to its launch."""
    return run.path / ".plan.json"


def handed_over(job: Job, file: Path, home: Path) -> LaunchPlan:
    """The plan that a queue has handed over; where its file is gone, a new one.

    Since then the user may have changed the config, and the files that it includes.
    """
    if not file.is_file():
        return make_plan(job, home)
    if job.environment != CURRENT:
        check_environment(job.environment)
    found = RunDir(file.parent).read_json(file)
    config = found["config"].encode("latin-1")
    return kept_plan(job, config, Changes(), Included(**found["included"]), home)


def make_plan(job: Job, home: Path, merge: bool = True) -> LaunchPlan:
    """Look up everything that a job needs, and fetch its commit. Only mirrors are written.

    Args:
        merge: merge KEY VALUE words into the config, where the job gets them there.

    Raises `UserError` for everything that can be wrong before the job starts.
    """
    if not os.path.isdir(job.caller):  # is_dir() raises for a name that is too long
        raise UserError(f"--caller {job.caller} is not an existing folder")
    needs_config = job.overrides_in in MERGED and (job.overrides or job.overrides_in == IN_PLACE)
    if needs_config and job.config == NO_CONFIG:
        raise UserError("there is no config to merge KEY VALUE into: give --config FILE")
    if job.environment != CURRENT:
        check_environment(job.environment)
    address = parse_address(job.repo)
    config = read_local_config(job.caller, job.config)
    mirror, commit = fetch_commit(address, job.ref, home, job.branch)
    changes = read_changes(address, commit, job.allow_dirty, job.caller / job.config)
    check_commit_has(job.module, mirror, commit, changes.files, job.environment)
    if job.environment != CURRENT:
        names = lock_files(job.environment)
        if not {*names} & {*changes.files} and not CommitFiles(mirror, commit).has_any(names):
            raise no_lock_file(job.environment)
    is_committed = config is None
    if config is None:
        config = read_committed_config(job.caller, job.config, mirror, commit)
    included = Included()
    if not job.module.startswith(OWN_MODULES):
        local = None if is_committed else job.caller / job.config
        places = (job.config, local, address.folder, CommitFiles(mirror, commit))
        included = find_included(*places, config, always_placed=job.overrides_in == IN_PLACE)
    if merge and job.overrides_in in MERGED:
        config = included.merge(job.config, config, job.overrides)
    inputs = digest_inputs([job.caller / one for one in job.inputs], address.folder)
    untracked = tuple(name for name in changes.untracked if name not in included.copies)
    changes = replace(changes, untracked=untracked)
    return LaunchPlan(job, address, mirror, commit, changes, config, home, included, inputs)


def kept_plan(
    job: Job, config: bytes, changes: Changes, included: Included, home: Path
) -> LaunchPlan:
    """The plan of a job that a run, a study or a queue has kept, with its commit fetched.

    Raises `UserError` where the commit cannot be fetched any more.
    """
    address = parse_address(job.repo)
    mirror, commit = fetch_commit(address, job.ref, home)
    inputs = digest_inputs(map(Path, job.inputs), address.folder)
    return LaunchPlan(job, address, mirror, commit, changes, config, home, included, inputs)


def next_execution(plan: LaunchPlan, runs: Path | None) -> LaunchPlan:
    """The plan of a job's first execution that is not finished."""
    for number in itertools.count():
        execution = replace(plan, job=replace(plan.job, again=number))
        if execution.run(runs).status().state != "finished":
            break
    return execution


# The config of a job: where it comes from, and that it holds no secret.

STORAGE = "STUDY.STORAGE"


def read_local_config(caller: Path, config: Path) -> bytes | None:
    """The config's bytes; None where there is no such file."""
    if config == NO_CONFIG:
        return b""
    try:
        require_file(caller / config)
        return (caller / config).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"config {config} cannot be read: {error.strerror}") from None


def read_committed_config(caller: Path, config: Path, mirror: Path, commit: str) -> bytes:
    """The config's bytes in the commit. Raises `UserError` where it has no such file."""
    try:
        if config.is_absolute():
            raise GitError(str(config))
        name = f"{commit}:{config.as_posix()}"
        if int(git("cat-file", "-s", name, folder=mirror)) > LARGEST_DOCUMENT:
            raise UserError(f"config {config} is larger than {LARGEST_DOCUMENT >> 20} MiB")
        return git_bytes("cat-file", "blob", name, folder=mirror)
    except GitError:
        raise UserError(
            f"no config file {config} in {caller} or in commit {commit[:12]}: give an existing file"
        ) from None


def parse_config(path: Path, data: bytes) -> Document:
    """The keys of a YAML config; empty for a file of another kind.

    Raises `UserError` where it is not valid, or contains a secret that every run would keep.
    """
    name = find_secret_in_config(data)
    try:
        document = read_document(path, data)
    except UserError:
        if not name:  # the message may repeat a line with the secret
            raise
        document = Document({}, {})
    refuse_password(document)
    name = name or find_secret_in_values(document.tree or json_value(path, data))
    if name:
        raise UserError(
            f"config {path} contains the secret of {name}: let the job read it from the environment"
        )
    return document


def json_value(path: Path, data: bytes) -> Any:
    """What a JSON config holds; None for another file, or one that is not valid."""
    try:
        return json.loads(data) if path.suffix == ".json" else None
    except (ValueError, RecursionError):
        return None


def read_document(path: Path, data: bytes) -> Document:
    """The keys of a YAML config; empty for a file of another kind."""
    if path.suffix not in (*YAML_SUFFIXES, ".json"):
        return Document({}, {})
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"config {path} is not valid UTF-8: {error}") from None
    if path.suffix == ".json":
        refuse_duplicate_keys(text, path)
        return Document({}, {})
    return parse_mapping(text, path)


def refuse_password(document: Document, overrides: Sequence[str] = ()) -> None:
    """Raises `UserError` where the address of a study's database holds its password."""
    if holds_password(read_setting(document, overrides, STORAGE).as_text()):
        raise UserError(f"{STORAGE} holds a password, which every run would keep; {INSTEAD}")


def refuse_own_words(overrides: Sequence[str]) -> None:
    """Raises `UserError` where our own training would write a secret of its words to its config."""
    for key, value in zip(overrides[::2], overrides[1::2], strict=True):
        if name := find_secret_in_config(value.encode(errors="surrogateescape")):
            raise UserError(
                f"{key} contains the secret of {name}, and the run would keep it in its "
                "config: let the job read it from the environment"
            )
