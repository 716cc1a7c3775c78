"""Finds secrets and replaces them by `***` in everything that is written to a file.

A secret is the value of an environment variable with a telling name (`WANDB_API_KEY`,
`DB_PASSWORD`, `githubToken`), or the user and password of a URL. Values shorter than six
characters and words like `false` do not count, since replacing them would garble every text.
Paths of existing files do not count either.
"""

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

HIDDEN = "***"
MIN_LENGTH = 6
NAME = re.compile(
    r"TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY"
    r"|(^|_)(KEY|PASS|PWD)$",
    re.IGNORECASE,
)
NOT_SECRET = {"PWD", "OLDPWD"}
HARMLESS_VALUES = {"false", "disabled", "enabled", "default"}
URL_CREDENTIALS = re.compile(r"(\w+://)[^/\s\"'@]+@")

_registered: set[str] = set()


def register_secret(text: str) -> None:
    """Hide this text from now on, e.g. the password of a URL."""
    if len(text) >= MIN_LENGTH:
        _registered.add(text)


def secret_names(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The secrets of an environment: value -> name of the variable."""
    return {
        value: name
        for name, value in environment.items()
        if NAME.search(name) and name not in NOT_SECRET and _is_secret(value)
    }


def hide_secrets(text: str) -> str:
    """A text with every known secret and all credentials in URLs replaced by `***`."""
    return _hidden(text, _current_pattern())


def without_secrets(value: Any) -> Any:
    """The same JSON value with secrets hidden, in keys as well."""
    return _without(value, _current_pattern())


def _current_pattern() -> re.Pattern[str] | None:
    """What finds the secrets that are known now; searching the environment takes a millisecond."""
    return _pattern(frozenset({*secret_names(), *_registered}))


def _hidden(text: str, pattern: re.Pattern[str] | None) -> str:
    if pattern is not None:
        text = pattern.sub(HIDDEN, text)
    return URL_CREDENTIALS.sub(rf"\1{HIDDEN}@", text) if "@" in text else text


def _without(value: Any, pattern: re.Pattern[str] | None) -> Any:
    if isinstance(value, str):
        return _hidden(value, pattern)
    if isinstance(value, dict):
        return {_hidden(str(key), pattern): _without(item, pattern) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without(item, pattern) for item in value]
    return value


def find_secret(data: bytes) -> str:
    """The name of the environment variable whose secret `data` contains; empty if none."""
    for value, name in secret_names().items():
        if value.encode(errors="surrogateescape") in data:
            return name
    return "the URL's password" if any(text.encode() in data for text in _registered) else ""


def _is_secret(value: str) -> bool:
    return (
        len(value.strip()) >= MIN_LENGTH
        and value.lower() not in HARMLESS_VALUES
        and not (value.startswith(("/", "~")) and os.path.exists(os.path.expanduser(value)))
    )


@lru_cache(maxsize=4)
def _pattern(values: frozenset[str]) -> re.Pattern[str] | None:
    forms: set[str] = set()
    for value in values:
        # Logs are written line by line, and URLs quote special characters.
        lines = {line.strip() for line in value.splitlines()}
        for form in {value, value.strip(), quote(value, safe=""), unquote(value)} | lines:
            if len(form) >= MIN_LENGTH:
                forms.add(form)
    if not forms:
        return None
    return re.compile("|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True)))
