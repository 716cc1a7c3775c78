"""What is wrong with the address of a study's database."""

from urllib.parse import parse_qs, urlsplit

INSTEAD = "remove it, and set PGPASSWORD or use ~/.pgpass"


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
    """Whether a database's URL holds a password, also one with the characters / ? and #.

    SQLAlchemy takes everything from the first colon to the last @ as the password.
    """
    scheme, _, rest = url.partition("://")
    if any("password" in word.lower() for word in parse_qs(rest.partition("?")[2])):
        return True
    is_file = scheme.startswith("sqlite") and rest.startswith("/")
    return not is_file and ":" in rest.rpartition("@")[0]
