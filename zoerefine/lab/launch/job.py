"""A job: its options, each described once, and what its config and its words set.

Options, their help, words, record and identity follow from the descriptions.
"""

import math
import os
import re
from argparse import ArgumentTypeError
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from zoerefine.base.registries import ENVIRONMENTS
from zoerefine.base.run_dir import RunDir
from zoerefine.base.yaml.keys import value_at
from zoerefine.base.yaml.read import Document, YamlError, load_yaml
from zoerefine.base.yaml.script_overrides import NEW_KEY
from zoerefine.lab.launch.environment import CURRENT

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


MOST_PROCESSES = 1024


def gibibytes(text: str) -> int:
    """A size in GiB as bytes. Raises `ValueError` where it is negative or infinite."""
    size_bytes = float(text) * GIB
    if not 0 <= size_bytes < math.inf:
        raise ValueError(text)
    return round(size_bytes)


def processes(text: str) -> int:
    """A number of processes."""
    if not 1 <= int(text) <= MOST_PROCESSES:
        raise ArgumentTypeError(f"{text} is not from 1 to {MOST_PROCESSES}")
    return int(text)


# How argparse reads a field by the type of its default.
PARSED: Mapping[type, Mapping[str, Any]] = {
    bool: {"action": "store_true"},
    int: {"type": int},
    tuple: {"action": "append", "default": []},
}


def option(
    usual: Any,
    *words: str,
    key: str = "",
    decides: bool = False,
    unit: int = 1,
    kw_only: bool = False,
    **parsed: Any,
) -> Any:
    """Declare a field of `Job`: its default, and the spellings of its option.

    Args:
        key: of the field in provenance.json, for options that a second launch of the job needs.
            Commit, config, run and KEY VALUE words are given in other ways.
        decides: whether the job is another one with another value. The others have rules of their
            own in identity.py, or decide nothing.
        unit: what a number is divided by for the option.
        parsed: what argparse is told; its `default` says that the option was not given.
    """
    parsed = {"default": usual, **PARSED.get(type(usual), {}), **parsed}
    about = {"words": words, "key": key, "decides": decides, "unit": unit, "parsed": parsed}
    if callable(usual):
        return field(default_factory=usual, metadata=about)
    return field(default=usual, kw_only=kw_only, metadata=about)


@dataclass(frozen=True)
class Job:
    """What to launch. The options of `zoerefine run`, in the order of its help."""

    repo: str = option(
        "", "--repo", "--repo_url", metavar="URL",
        help="a folder or a git URL (default: the repository of the current folder)",
    )  # fmt: skip
    ref: str = option("", "--commit", "--commit_hash", metavar="REV", help="a hash, tag or branch")
    branch: str = option(
        "", "--branch", "--branch_name", kw_only=True, metavar="NAME",
        help="refuse a commit that is not on this branch; without --commit, run the branch's "
        "newest commit",
    )  # fmt: skip
    config: Path = option(  # noqa: RUF009
        NO_CONFIG, "--config", default=None, required=False,
        help="a YAML config; if there is no such file, the commit's file of this path is "
        "used, or an example of this name, such as demo. A script may have none",
    )  # fmt: skip
    config_flag: str = option(
        "--config", "--config-flag", "--cfg_path_arg_name", key="config_flag", kw_only=True,
        metavar="NAME",
        help="the option by which the job takes its config, e.g. cfg for --cfg (default: "
        "--config); '' if the config is its first argument",
    )  # fmt: skip
    module: str = option(
        "zoerefine.train", "--module", "-m", "--module_path", key="module", metavar="NAME",
        help="package.module, or a script's path in the repository (default: zoerefine.train)",
    )  # fmt: skip
    seed_key: str = option(
        "SEED", "--seed-key", key="seed_key", decides=True, default=None, metavar="KEY",
        help="the seed's config key or option, such as seed for --seed=0; the job also finds the "
        "seed in ZOEREFINE_SEED (default: SEED)",
    )  # fmt: skip
    cwd: str = option(
        "workspace", "--cwd", key="cwd", decides=True, default=None,
        choices=["workspace", "script", "caller", "run"],
        help="the job's working directory: its workspace (default), its script's folder there, "
        "your own folder, as with the older spellings, or the run directory",
    )  # fmt: skip
    overrides_in: str = option(
        "arguments", "--overrides", key="overrides_in", default=None,
        choices=["arguments", *OPTIONS, *MERGED],
        help="how the job gets KEY VALUE: arguments: as its last arguments (default); options: as "
        "--KEY=VALUE (default without a config); assignments: as KEY=VALUE, as Hydra takes them; "
        "file: merged into its copy of the config, for scripts that take only a file; in-place: "
        "merged into the config at its own path in the workspace, for scripts that read it there "
        "without being told; +KEY VALUE adds a key",
    )  # fmt: skip
    left_limit_bytes: int = option(
        LIMIT_BYTES, "--left-limit", key="left_limit_bytes", unit=GIB, type=gibibytes,
        metavar="GIB",
        help="collect at most GIB of the files that the job leaves in its workspace, the smallest "
        f"first; the others stay there (default: {LIMIT_BYTES // GIB})",
    )  # fmt: skip
    metric_patterns: tuple[str, ...] = option((), "--metric-pattern", key="metric_patterns")
    record_env: tuple[str, ...] = option(  # as NAME=VALUE
        (), "--record-env", key="record_env", decides=True, metavar="NAME[=VALUE]",
        help="an environment variable that decides the result: it is recorded, a part of the "
        "job's identity, and set again by `reproduce`; may be repeated",
    )  # fmt: skip
    inputs: tuple[str, ...] = option(
        (), "--input", key="inputs", metavar="FOLDER",
        help="a run or folder whose files the job finds in its workspace, such as data that an "
        "earlier command of the commit made; they are linked, and their digests recorded; may be "
        "repeated",
    )  # fmt: skip
    processes: int = option(
        1, "--processes", key="processes", decides=True, type=processes, metavar="N",
        help="start the job N times by torchrun, on several nodes together; the processes can "
        "train together (default: 1, without torchrun)",
    )  # fmt: skip
    name: str = option(
        "", "--name", help="the name of the run (default: RUN.NAME, or the config's file name)"
    )
    again: int = option(
        0, "--again-number", key="again", decides=True, metavar="N",
        help="the N-th of these further runs, as `zoerefine show` prints it",
    )  # fmt: skip
    allow_dirty: bool = option(
        False, "--allow-dirty",
        help="record the uncommitted changes of a local repository with the run, and apply them; "
        "otherwise they are refused",
    )  # fmt: skip
    environment: str = option(
        CURRENT, "--environment", key="environment_kind", choices=[CURRENT, *ENVIRONMENTS],
        help="current: the packages of this Python (default); venv: a virtual environment made "
        "from the commit's requirements.lock, kept for later runs; uv: the same in seconds, also "
        "from uv.lock or pylock.toml",
    )  # fmt: skip
    caller: Path = option(  # noqa: RUF009
        Path.cwd, "--caller", default=".", metavar="DIR",
        help="your folder (default: the current one): --config and zoerefine's own configs are "
        "relative to it, other jobs find it in ZOEREFINE_CALLER_FOLDER or with --cwd caller",
    )  # fmt: skip
    overrides: tuple[str, ...] = option(
        (), "overrides", action="store", default=None,
        help="config keys to set; words after -- go to the job unchanged",
    )  # fmt: skip
    arguments: tuple[str, ...] = ()  # the words after --, before the overrides


JOB_OPTIONS = tuple(one for one in fields(Job) if one.metadata.get("key"))


def launch_words(job: Job, *others: str) -> list[str]:
    """The words of `zoerefine run` for a job, without options that are at their defaults.

    Args:
        others: further options.
    """
    words = ["--repo", job.repo, "--commit", job.ref]
    words += ["--config", str(job.config)] if job.config != NO_CONFIG else []
    words += ["--allow-dirty"] if job.allow_dirty else []
    words += [*others, "--name", job.name]
    for one in JOB_OPTIONS:
        value, unit = getattr(job, one.name), one.metadata["unit"]
        usual = usual_overrides(job.config) if one.name == "overrides_in" else one.default
        if value != usual:
            values = value if isinstance(value, tuple) else (value if unit == 1 else value / unit,)
            words += [f"{one.metadata['words'][0]}={each}" for each in values]
    return [*words, *job.overrides, *(["--", *job.arguments] if job.arguments else [])]


def recorded_options(job: Job) -> dict[str, Any]:
    """The options as provenance.json holds them."""
    return {one.metadata["key"]: getattr(job, one.name) for one in JOB_OPTIONS}


def with_tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a file holds, with its lists as tuples, as a job has them."""
    return {name: tuple(one) if isinstance(one, list) else one for name, one in fields.items()}


def recorded_job(run: RunDir, recorded: Mapping[str, Any]) -> Job:
    """The job of a launched run, from its provenance.json and with the config that it kept."""
    keys = {one.name: one.metadata["key"] for one in JOB_OPTIONS}
    options = {name: recorded[key] for name, key in keys.items() if key in recorded}
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


def job_words(job: Job, path: Path) -> list[str]:
    """The words that a job is called with: its config at `path`, its arguments, the overrides.

    `{KEY}` in an argument stands for the value of a KEY VALUE word, which is given there alone.
    """
    pairs = list(zip(job.overrides[::2], job.overrides[1::2], strict=True))
    values = dict(pairs)
    used = {key for word in job.arguments for key in PLACEHOLDER.findall(word) if key in values}
    arguments = [
        PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), word)
        for word in job.arguments
    ]
    config = [*filter(None, [job.config_flag]), str(path)]  # without a flag, the config alone
    if job.config == NO_CONFIG or job.overrides_in == IN_PLACE:
        config = []
    elif any(CONFIG_WORD in word for word in arguments):
        config, arguments = [], [word.replace(CONFIG_WORD, str(path)) for word in arguments]
    others = [pair for pair in pairs if pair[0] not in used]
    return [*config, *arguments, *override_words(others, job.overrides_in)]


def override_words(pairs: Iterable[tuple[str, str]], given_as: str) -> list[str]:
    """KEY VALUE words as a job gets them; those that are merged into the config are no words."""
    if given_as == "assignments":
        return [f"{key}={value}" for key, value in pairs]
    if given_as == "options":
        return [f"--{key.removeprefix(NEW_KEY)}={value}" for key, value in pairs]
    return [word for pair in pairs for word in pair] if given_as == "arguments" else []
