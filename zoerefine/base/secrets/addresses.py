"""What is wrong with the address of a study's database, and which variable holds its password."""

import re
from urllib.parse import parse_qs, urlsplit

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
