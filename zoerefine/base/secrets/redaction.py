"""Finds secrets and replaces them by `***` in everything that is written to a file.

`values.py` says which values of the environment are secrets; the user and password of a URL are,
too. Values shorter than six characters and words like `false` do not count, since replacing them
would garble every text. Paths of existing files do not count either. The end of this file is about
passwords in the addresses of studies' databases.
"""

import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs, unquote_to_bytes, urlsplit

from zoerefine.base.secrets.values import (
    MIN_LENGTH,
    byte_forms,
    has_url_password,
    secrets_of,
    text_forms,
)

HIDDEN = "***"
# Not those that name a variable (`postgresql://me:$DB_PASSWORD@host/db`).
URL_CREDENTIALS = re.compile(r"(\w+://)(?!\w*:\$(?:[A-Z0-9_]+|\{[A-Z0-9_]+\})@)[^/\s\"'@]+@")

_registered: set[str] = set()


def register_secret(text: str) -> None:
    """Hide this text from now on, e.g. the password of a URL."""
    if len(text) >= MIN_LENGTH:
        _registered.add(text)


def secret_names(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The secrets of an environment: value -> name of the variable."""
    return secrets_of(frozenset(environment.items()))


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
    """The name of the environment variable whose secret `data` contains; empty if none.

    Found are also its forms in JSON, in URLs, in base64, in UTF-16 and in hex digits.
    """
    readings = (data, b"".join(data.split()), unquote_to_bytes(data))  # base64 in lines; %-escapes
    secrets = secret_names() | dict.fromkeys(_registered, "the URL's password")
    for value, name in secrets.items():
        if any(form in reading for form in byte_forms(value) for reading in readings):
            return name
    return ""


def find_secret_in_config(data: bytes) -> str:
    """Like `find_secret`; a URL with a password counts too, e.g. that of a database."""
    return find_secret(data) or ("a URL with a password" if has_url_password(data) else "")


def find_secret_in_values(value: Any) -> str:
    """Like `find_secret_in_config`, for what was read from a YAML or JSON text with escapes."""
    return find_secret_in_config("\n".join(texts_in(value)).encode(errors="surrogatepass"))


def texts_in(value: Any) -> Iterator[str]:
    """All texts in a JSON value, keys as well."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from texts_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from texts_in(inner)


@lru_cache(maxsize=4)
def _pattern(values: frozenset[str]) -> re.Pattern[str] | None:
    forms = {form for value in values for form in text_forms(value)}
    if not forms:
        return None
    return re.compile("|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True)))


INSTEAD = (
    "remove it, and set PGPASSWORD or use ~/.pgpass; or give the name of its variable in single "
    "quotes: 'postgresql://USER:$VARIABLE@HOST/DATABASE'"
)
# In capitals: a password that begins with $ is still a password.
VARIABLE = re.compile(r"\$(?:([A-Z_][A-Z0-9_]*)|\{([A-Z_][A-Z0-9_]*)\})")


def storage_fault(url: str) -> str:
    """Why a text cannot be STUDY.STORAGE; empty if it can."""
    if not url:
        return ""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "it is not a URL"
    if holds_password(url):
        return f"it holds a password, which others could read; {INSTEAD}"
    if parts.scheme.partition("+")[0] not in ("sqlite", "postgresql"):
        return "its kind of database is not supported"
    return ""


def holds_password(url: str) -> bool:
    """Whether a database's URL holds a password, also one with the characters / ? and #."""
    query = url.partition("?")[2]
    if any("password" in word.lower() for word in parse_qs(query)):
        return True
    return has_password_part(url) and not password_variable(url)


def password_variable(url: str) -> str:
    """The environment variable that a URL names in place of a password; empty without one."""
    if not has_password_part(url):
        return ""
    found = VARIABLE.fullmatch(login_of(url).partition(":")[2])
    return found[1] or found[2] if found else ""


def has_password_part(url: str) -> bool:
    """Whether a URL has something in the place of a password. A SQLite file's has none."""
    scheme, _, rest = url.partition("://")
    is_file = scheme.startswith("sqlite") and rest.startswith("/")
    return not is_file and ":" in login_of(url)


def login_of(url: str) -> str:
    """A URL's user and password: everything to the last @, as SQLAlchemy reads it."""
    return url.partition("://")[2].rpartition("@")[0]
