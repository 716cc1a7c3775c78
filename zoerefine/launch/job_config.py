"""The config of a job: where it comes from, what it sets, and that it holds no secret."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoerefine.errors import UserError
from zoerefine.launch.config_merge import NEW_KEY, YAML_SUFFIXES
from zoerefine.launch.git_commands import git, git_bytes
from zoerefine.launch.git_settings import GitError
from zoerefine.launch.job_words import NO_CONFIG
from zoerefine.launch.redaction import find_secret_in_config, find_secret_in_values
from zoerefine.run_dir import LARGEST_DOCUMENT, require_file
from zoerefine.storage_url import INSTEAD, holds_password
from zoerefine.yaml_text import (
    Document,
    YamlError,
    load_yaml,
    parse_mapping,
    refuse_duplicate_keys,
)

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
    check_storage(document)
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
    value: Any = document.tree
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return Setting(value, document.text(key))


def check_storage(document: Document, overrides: Sequence[str] = ()) -> None:
    """Raises `UserError` where the address of a study's database holds its password."""
    if holds_password(read_setting(document, overrides, STORAGE).as_text()):
        raise UserError(f"{STORAGE} holds a password, which every run would keep; {INSTEAD}")


def check_own_words(overrides: Sequence[str]) -> None:
    """Raises `UserError` where our own training would write a secret of its words to its config."""
    for key, value in zip(overrides[::2], overrides[1::2], strict=True):
        if name := find_secret_in_config(value.encode(errors="surrogateescape")):
            raise UserError(
                f"{key} contains the secret of {name}, and the run would keep it in its "
                "config: let the job read it from the environment"
            )
