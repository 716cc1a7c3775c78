"""The config of a job: where it comes from, what it sets, and that it holds no secret."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import LARGEST_DOCUMENT, require_file
from zoerefine.base.secrets import (
    INSTEAD,
    find_secret_in_config,
    find_secret_in_values,
    holds_password,
)
from zoerefine.base.yaml.keys import value_at
from zoerefine.base.yaml.read import (
    Document,
    YamlError,
    load_yaml,
    parse_mapping,
    refuse_duplicate_keys,
)
from zoerefine.base.yaml.write import NEW_KEY, YAML_SUFFIXES
from zoerefine.lab.launch.git.commands import GitError, git, git_bytes

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


def config_words(flag: str, config: Path) -> list[str]:
    """The option for a config; without a flag, the config alone."""
    return [flag, str(config)] if flag else [str(config)]


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


STORAGE = "STUDY.STORAGE"


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


def read_setting(document: Document, overrides: Sequence[str], key: str) -> Setting:
    """A config key with the overrides applied."""
    for name, text in reversed(list(zip(overrides[::2], overrides[1::2], strict=True))):
        if name.removeprefix(NEW_KEY) == key:
            try:
                return Setting(load_yaml(text), text.strip())
            except YamlError:
                return Setting(text, text)
    return Setting(value_at(document.tree, key), document.text(key))


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
