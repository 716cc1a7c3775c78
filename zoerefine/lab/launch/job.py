"""A job: its options, each described once, and what its config and its words set.

Words, record and identity follow from the descriptions.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoerefine.base.run_dir import RunDir
from zoerefine.base.yaml.keys import value_at
from zoerefine.base.yaml.read import Document, YamlError, load_yaml
from zoerefine.base.yaml.write import NEW_KEY

GIB = 2**30
LIMIT_BYTES = 10 * GIB  # of what a job leaves in its workspace
# How a script gets KEY VALUE words: each says itself which keys it knows.
OPTIONS = ("options", "assignments")
IN_PLACE = "in-place"  # merged into the config at its own path in the workspace
MERGED = ("file", IN_PLACE)
CONFIG_WORD = "{config}"  # in the words after --: the config is given there
PLACEHOLDER = re.compile(r"\{([\w.-]+)\}")
NO_CONFIG = Path(os.devnull)  # the config of a job that takes none


def usual_overrides(config: Path) -> str:
    """How a job gets KEY VALUE words by default: without a config, as options."""
    return "options" if config == NO_CONFIG else "arguments"


@dataclass(frozen=True)
class Job:
    """What to launch.

    Attributes:
        repo: a folder or URL.
        ref: a commit, tag or branch.
        config: the config file for the module. If there is no such file, the commit's is used.
            `NO_CONFIG` for a module that takes none.
        module: `package.module`, or the path of a script inside the repository.
        overrides: KEY VALUE words.
        arguments: more words for the module, before the overrides.
        config_flag: the module's option for its config; empty if the config is its first word.
        branch: if not empty, the commit must be on this branch.
        allow_dirty: record uncommitted changes of a local repository, and apply them.
        environment: `current`, or a name of `registries.ENVIRONMENTS`: made from the commit's own
            lock file.
        caller: the user's folder. Relative paths of zoerefine's config keys start here.
        cwd: the job's working directory: `workspace`, `script` (the script's folder there),
            `caller` or `run` (the run directory).
        overrides_in: how the job gets the overrides: `arguments`, as its last words; `options`, as
            --KEY=VALUE; `assignments`, as KEY=VALUE; `file`, merged into its config file;
            `in-place`, the same in the config's own place, and no word names the config.
        again: 0 for the first execution of the job, N for the N-th further one.
        metric_patterns: regular expressions that find metrics in the job's output.
        seed_key: the config key of the seed.
        processes: that torchrun starts, on all nodes together; 1: the job starts without it.
        left_limit_bytes: the most bytes that are collected from the workspace into the run.
        record_env: environment variables that decide the result, as `NAME=VALUE`.
        inputs: folders, or runs, whose files the job finds in its workspace.
        name: the name of the run; if empty, RUN.NAME of the config, else the config file's name.
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
    cwd: str = "workspace"
    overrides_in: str = "arguments"
    again: int = 0
    metric_patterns: tuple[str, ...] = ()
    seed_key: str = "SEED"
    name: str = ""
    left_limit_bytes: int = LIMIT_BYTES
    processes: int = 1
    record_env: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobOption:
    """An option of `zoerefine run` that a second launch of a job needs.

    Commit, config, run and KEY VALUE words are given in other ways.

    Attributes:
        option: as it is written; repeated where the field holds several values.
        field: of `Job`.
        recorded: the field's name in provenance.json, where it is another one there.
        decides: whether the job is another one with another value. The others have rules of their
            own in `LaunchPlan.identity`, or decide nothing.
        unit: what a number is divided by for the option.
    """

    option: str
    field: str
    recorded: str = ""
    decides: bool = False
    unit: int = 1

    @property
    def key(self) -> str:
        """The field's name in provenance.json."""
        return self.recorded or self.field

    @property
    def usual(self) -> Any:
        """The field's default."""
        return getattr(Job, self.field)

    @property
    def holds(self) -> type:
        """`str`, `int`, or `tuple` of texts."""
        return type(self.usual)

    def words(self, value: Any) -> list[str]:
        """The option with its value, or once with each of its values."""
        values = value if isinstance(value, tuple) else (value,)
        return [f"{self.option}={one / self.unit if self.unit > 1 else one}" for one in values]


JOB_OPTIONS = (
    JobOption("--module", "module"),
    JobOption("--config-flag", "config_flag"),
    JobOption("--environment", "environment", recorded="environment_kind"),
    JobOption("--cwd", "cwd", decides=True),
    JobOption("--overrides", "overrides_in"),
    JobOption("--seed-key", "seed_key", decides=True),
    JobOption("--again-number", "again", decides=True),
    JobOption("--processes", "processes", decides=True),
    JobOption("--left-limit", "left_limit_bytes", unit=GIB),
    JobOption("--metric-pattern", "metric_patterns"),
    JobOption("--input", "inputs"),
    JobOption("--record-env", "record_env", decides=True),
)


def option_words(job: Job, left_out: Iterable[str] = ()) -> list[str]:
    """The words for the options that are not at their defaults.

    Args:
        left_out: fields that are given in another way.
    """
    usual = {one.field: one.usual for one in JOB_OPTIONS}
    usual["overrides_in"] = usual_overrides(job.config)
    words = []
    for one in JOB_OPTIONS:
        value = getattr(job, one.field)
        if value != usual[one.field] and one.field not in left_out:
            words += one.words(value)
    return words


def last_words(job: Job, overrides: Iterable[str]) -> list[str]:
    """What follows the options: KEY VALUE words, and the job's own words."""
    return [*overrides, *(["--", *job.arguments] if job.arguments else [])]


def recorded_options(job: Job) -> dict[str, Any]:
    """The options as provenance.json holds them."""
    return with_lists({one.key: getattr(job, one.field) for one in JOB_OPTIONS})


def with_lists(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a job with its tuples as lists, as files hold them."""
    return {name: list(one) if isinstance(one, tuple) else one for name, one in fields.items()}


def with_tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a file holds, with its lists as tuples, as a job has them."""
    return {name: tuple(one) if isinstance(one, list) else one for name, one in fields.items()}


def recorded_job(run: RunDir, recorded: Mapping[str, Any]) -> Job:
    """The job of a launched run, from its provenance.json and with the config that it kept."""
    from zoerefine.lab.runs.metrics import recorded_patterns  # late: it needs regex

    # Earlier versions have recorded fewer options.
    options = {one.field: recorded[one.key] for one in JOB_OPTIONS if one.key in recorded}
    options["metric_patterns"] = recorded_patterns(recorded)
    has_config = recorded["config"] != str(NO_CONFIG)
    return Job(
        repo=recorded["repository"],
        ref=recorded["commit"],
        config=run.path / recorded["input"] if has_config else NO_CONFIG,
        overrides=tuple(recorded.get("overrides", ())),
        arguments=tuple(recorded.get("arguments", ())),
        caller=Path(recorded.get("caller", ".")),
        **with_tuples(options),
    )


# The config and the words of a job.


def override_words(overrides: Sequence[str], given_as: str) -> list[str]:
    """KEY VALUE words as a job gets them.

    Args:
        given_as: `arguments` for KEY VALUE, `options` for --KEY=VALUE, `assignments` for
            KEY=VALUE; those that are merged into the config are no words.
    """
    pairs = zip(overrides[::2], overrides[1::2], strict=True)
    if given_as == "assignments":
        return [f"{key}={value}" for key, value in pairs]
    if given_as == "options":
        return [f"--{key.removeprefix(NEW_KEY)}={value}" for key, value in pairs]
    return list(overrides) if given_as == "arguments" else []


def fill_in(arguments: Sequence[str], overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments with the values of KEY VALUE words in the place of `{KEY}`, and other words."""
    values = dict(zip(overrides[::2], overrides[1::2], strict=True))
    used = {key for word in arguments for key in PLACEHOLDER.findall(word) if key in values}
    filled = [PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), w) for w in arguments]
    pairs = zip(overrides[::2], overrides[1::2], strict=True)
    return filled, [word for pair in pairs if pair[0] not in used for word in pair]


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


def read_setting(document: Document, overrides: Sequence[str], key: str) -> Setting:
    """A config key with the overrides applied."""
    for name, text in reversed(list(zip(overrides[::2], overrides[1::2], strict=True))):
        if name.removeprefix(NEW_KEY) == key:
            try:
                return Setting(load_yaml(text), text.strip())
            except YamlError:
                return Setting(text, text)
    return Setting(value_at(document.tree, key), document.text(key))
