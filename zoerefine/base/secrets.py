"""Secrets: which texts are secret, and how they are kept out of files and messages.

A value of an environment is a secret if its variable has a telling name, if it has the form of a
known kind of token, or if it looks random: a single word with many different characters of several
kinds. Hashes, UUIDs, paths, lists, host names and other ordinary values do not look random in this
sense. The user and password of a URL are secrets, too. Values shorter than six characters, words
like `false` and paths of existing files do not count: replacing them would garble every text.

Secrets are replaced by `***` in everything that is written to a file. The end of this file is about
passwords in the addresses of studies' databases.
"""

import base64
import binascii
import itertools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs, quote, unquote, unquote_to_bytes, urlsplit

from zoerefine.base.yaml.keys import mapped, texts_in

MIN_LENGTH = 6
MIN_RANDOM_LENGTH, MIN_RANDOM_BITS = 20, 3.7  # bits for each character
MIN_CHANGES = 0.4
MIN_ENCODED_LENGTH = 12  # shorter values have base64 forms that ordinary texts contain
NAMES = re.compile(
    r"TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|WEBHOOK"
    r"|COOKIE|BEARER|SSHPASS|CONNECTION_?STRING|AUTH_?CONFIG|AUTHORIZATION|SIGNING_?KEY"
    r"|(^|_)(KEY|PASS|PWD|PAT|JWT|PSK|DSN|AUTH)(_B64|_BASE64|_\d+)?$",
    re.IGNORECASE,
)
NOT_SECRET = re.compile(r"PWD|OLDPWD|GIT_CONFIG_KEY_\d+")
GIT_VALUE = re.compile(r"GIT_CONFIG_VALUE_(\d+)")
GIT_SECRET_KEYS = re.compile(r"extraheader|password|token|secret|proxy|cookie", re.IGNORECASE)
HARMLESS_VALUES = {
    *("false", "disabled", "enabled", "default", "postgres", "password", "example", "changeme"),
    *("secret", "optional", "required", "prompt", "always", "never"),
}
TOKENS = re.compile(
    r"gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}"
    r"|sk-[\w-]{20,}|hf_[A-Za-z0-9]{20,}|AIza[\w-]{30,}|pypi-[\w-]{20,}|npm_\w{30,}"
    r"|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|https://hooks\.slack\.com/services/\S+|https://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/\S+"
)
WORD = re.compile(r"[A-Za-z0-9+/=_.~!@#$%^&*-]+")
ORDINARY = re.compile(
    r"[0-9a-fA-F]+|(\w+-)?[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"  # hashes, UUIDs
    r"|[a-z0-9]+([.-][a-z0-9]+)*"  # hosts, versions, names of pods
    r"|[A-Za-z]+([_.-][A-Za-z]+)*"  # words
    r"|\d[\d.:TZ+-]*"  # numbers and times
)
PLACEHOLDER = re.compile(r"\*+|\$\{?\w+\}?|\{\w*\}|<[^>]*>|x+|%\(?\w+\)?s?", re.IGNORECASE)
URL_PASSWORD = re.compile(rb"\b[A-Za-z][\w+.-]*://[^\s/\"'@:]*:([^\s/\"'@]+)@")


@lru_cache(maxsize=8)
def secrets_of(items: frozenset[tuple[str, str]]) -> dict[str, str]:
    """The secrets of an environment's names and values: value -> name of its variable."""
    environment = dict(items)
    found: dict[str, str] = {}
    for name, value in environment.items():
        if is_secret(name, value, environment):
            found |= dict.fromkeys((value, *inner_secrets(value)), name)
        elif password := url_password(value):
            found[password] = name
    return found


def is_secret(name: str, value: str, environment: Mapping[str, str]) -> bool:
    """Whether a variable's value is a secret as a whole."""
    if NOT_SECRET.fullmatch(name) or not can_be_secret(value):
        return False
    if (git := GIT_VALUE.fullmatch(name)) and GIT_SECRET_KEYS.search(
        environment.get(f"GIT_CONFIG_KEY_{git[1]}", "password")
    ):
        return True
    return bool(NAMES.search(name)) or bool(TOKENS.fullmatch(value.strip())) or is_random(value)


def can_be_secret(value: str) -> bool:
    """Whether a value is long enough, and neither a common word nor an existing file's path."""
    return (
        len(value.strip()) >= MIN_LENGTH
        and value.lower() not in HARMLESS_VALUES
        and not (value.startswith(("/", "~")) and path_exists(value))
    )


def path_exists(text: str) -> bool:
    """Whether a text is the path of an existing file."""
    try:
        return os.path.exists(os.path.expanduser(text))
    except (OSError, ValueError):
        return False


def is_random(value: str) -> bool:
    """Whether a value is a single word that looks random: capitals, small letters and digits."""
    if len(value) < MIN_RANDOM_LENGTH or not WORD.fullmatch(value) or ORDINARY.fullmatch(value):
        return False
    if value.startswith(("/", "./", "~")) or ("/" in value and re.search(r"/[a-z]{3,}", value)):
        return False
    kinds = (r"[A-Z]", r"[a-z]", r"[0-9]")
    if not all(re.search(kind, value) for kind in kinds):
        return False
    return entropy(value) >= MIN_RANDOM_BITS and share_of_changes(value) >= MIN_CHANGES


def share_of_changes(text: str) -> float:
    """How often neighbours are of two kinds: capital, small letter, digit. Random: 0.62."""
    pairs = [(a, b) for a, b in itertools.pairwise(text) if a.isalnum() and b.isalnum()]
    changes = sum((a.isdigit(), a.isupper()) != (b.isdigit(), b.isupper()) for a, b in pairs)
    return changes / max(1, len(pairs))


def entropy(text: str) -> float:
    """Shannon's entropy of a text's characters, in bits for each."""
    shares = [count / len(text) for count in Counter(text).values()]
    return -sum(share * math.log2(share) for share in shares)


def url_password(value: str) -> str:
    """The password of a URL; empty without one."""
    try:
        password = unquote(urlsplit(value).password or "") if "://" in value else ""
    except ValueError:
        return ""
    return password if can_be_secret(password) and not PLACEHOLDER.fullmatch(password) else ""


def inner_secrets(value: str) -> Iterator[str]:
    """The secrets inside a secret value: those of JSON, of a header, of cookies, of a URL."""
    if password := url_password(value):
        yield password
    with_json = value.lstrip().startswith(("{", "["))
    try:
        found = texts_in(json.loads(value)) if with_json else ()
        named = [text for keys, text in found if keys and NAMES.search(keys[-1])]
        parts = [text for text in named if can_be_secret(text)]
    except (ValueError, RecursionError):
        parts = []
    if not with_json:
        parts = [part for part in re.split(r"[\s;,]+|(?<=\w)=(?=\w)", value) if is_random(part)]
    for part in parts:
        yield part
        if ":" in (text := decoded(part)):  # Basic authentication: user:password
            yield text.partition(":")[2]


def decoded(text: str) -> str:
    """The text of a base64 value; empty where it is none."""
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def text_forms(value: str) -> set[str]:
    """How a secret can stand in a text: as it is, line by line, quoted, in JSON, in base64."""
    lines = {line.strip() for line in value.splitlines()}
    escaped = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    forms = {value, value.strip(), quote(value, safe=""), unquote(value), *lines, *escaped}
    return {form for form in forms | base64_forms(value) if len(form) >= MIN_LENGTH}


def base64_forms(value: str) -> set[str]:
    """What base64 makes of a secret inside other bytes, wherever it begins."""
    data = value.encode(errors="surrogateescape")
    if len(data) < MIN_ENCODED_LENGTH:
        return set()
    forms = set()
    for shift in range(3):
        text = base64.b64encode(b"\0" * shift + data).decode().rstrip("=")
        whole = len(text) - (1 if (shift + len(data)) % 3 else 0)  # the last one depends on more
        middle = text[(0, 2, 3)[shift] : whole]
        forms |= {middle, middle.translate(str.maketrans("+/", "-_"))}
    return forms


def byte_forms(value: str) -> set[bytes]:
    """How a secret can stand in a file: besides its texts, in UTF-16 and as hex digits."""
    forms = {form.encode(errors="surrogateescape") for form in text_forms(value)}
    digits = value.encode(errors="surrogateescape").hex()
    wide = (value.encode(code, "surrogatepass") for code in ("utf-16-le", "utf-16-be"))
    return forms | {*wide, digits.encode(), digits.upper().encode()}


def has_url_password(data: bytes) -> bool:
    """Whether a text holds a URL with a password, which is no placeholder."""
    found = (match[1].decode(errors="replace") for match in URL_PASSWORD.finditer(data))
    return any(not PLACEHOLDER.fullmatch(one) for one in found)


HIDDEN = "***"
# Not those that name a variable (`postgresql://me:$DB_PASSWORD@host/db`).
URL_CREDENTIALS = re.compile(r"(\w+://)(?!\w*:\$(?:[A-Z0-9_]+|\{[A-Z0-9_]+\})@)[^/\s\"'@]+@")

_registered: set[str] = set()


def register_secret(text: str) -> None:
    """Hide this text from now on, e.g. the password of a URL."""
    if len(text) >= MIN_LENGTH:
        _registered.add(text)


def registered_secrets() -> frozenset[str]:
    """The texts that `register_secret` was given."""
    return frozenset(_registered)


def secret_names(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The secrets of an environment: value -> name of the variable."""
    return secrets_of(frozenset(environment.items()))


def hide_secrets(text: str) -> str:
    """A text with every known secret and all credentials in URLs replaced by `***`."""
    return _hidden(text, _current_pattern())


def without_secrets(value: Any) -> Any:
    """The same JSON value with secrets hidden, in keys as well."""
    pattern = _current_pattern()
    return mapped(value, lambda one: _hidden(one, pattern) if isinstance(one, str) else one)


def _current_pattern() -> re.Pattern[str] | None:
    """What finds the secrets that are known now; searching the environment takes a millisecond."""
    return _pattern(frozenset({*secret_names(), *_registered}))


def _hidden(text: str, pattern: re.Pattern[str] | None) -> str:
    if pattern is not None:
        text = pattern.sub(HIDDEN, text)
    return URL_CREDENTIALS.sub(rf"\1{HIDDEN}@", text) if "@" in text else text


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
    text = json.dumps(value, ensure_ascii=False)
    return find_secret_in_config(text.encode(errors="surrogatepass"))


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


def url_fault(url: str) -> str:
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
