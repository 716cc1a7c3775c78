"""What counts as a secret, and blotting it out of all that is written down.

A secret is the value of an environment variable that is named like one (`WANDB_API_KEY`,
`DB_PASSWORD`, `githubToken`), or the user and password of a URL. Values under six characters and
words like `false` are no secrets: blotting them out would garble every text. Nor are paths.
"""

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

HIDDEN = "***"
SHORTEST = 6
NAME = re.compile(
    r"TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY"
    r"|(^|_)(KEY|PASS|PWD)$",
    re.IGNORECASE,
)
NO_SECRETS = {"PWD", "OLDPWD"}
HARMLESS = {"false", "disabled", "enabled", "default"}
URL_CREDENTIALS = re.compile(r"(\w+://)[^/\s\"'@]+@")

_given: set[str] = set()


def keep_secret(text: str) -> None:
    """Blot this text out from now on: the password of a URL, say."""
    if len(text) >= SHORTEST:
        _given.add(text)


def secret_names(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The secrets of an environment: value -> the variable's name."""
    return {
        value: name
        for name, value in environment.items()
        if NAME.search(name) and name not in NO_SECRETS and _is_secret(value)
    }


def hide_secrets(text: str) -> str:
    """A text with every secret that we know of, and credentials in URLs, replaced by `***`."""
    pattern = _pattern(frozenset({*secret_names(), *_given}))
    if pattern is not None:
        text = pattern.sub(HIDDEN, text)
    return URL_CREDENTIALS.sub(rf"\1{HIDDEN}@", text) if "@" in text else text


def without_secrets(value: Any) -> Any:
    """The same JSON value with secrets blotted out, keys included."""
    if isinstance(value, str):
        return hide_secrets(value)
    if isinstance(value, dict):
        return {hide_secrets(str(key)): without_secrets(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(item) for item in value]
    return value


def find_secret(data: bytes) -> str:
    """The name of an environment variable whose secret stands in `data`; empty if none does."""
    for value, name in secret_names().items():
        if value.encode(errors="surrogateescape") in data:
            return name
    return "the URL's password" if any(text.encode() in data for text in _given) else ""


def _is_secret(value: str) -> bool:
    return (
        len(value.strip()) >= SHORTEST
        and value.lower() not in HARMLESS
        and not (value.startswith(("/", "~")) and os.path.exists(os.path.expanduser(value)))
    )


@lru_cache(maxsize=4)
def _pattern(values: frozenset[str]) -> re.Pattern[str] | None:
    forms: set[str] = set()
    for value in values:
        # A text is written line by line, and in a URL it is quoted.
        lines = {line.strip() for line in value.splitlines()}
        for form in {value, value.strip(), quote(value, safe=""), unquote(value)} | lines:
            if len(form) >= SHORTEST:
                forms.add(form)
    if not forms:
        return None
    return re.compile("|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True)))
