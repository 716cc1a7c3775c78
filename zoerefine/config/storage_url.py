"""What is wrong with the address of a study's database."""

from urllib.parse import parse_qs, urlsplit


def storage_fault(url: str) -> str:
    """Why a text cannot be STUDY.STORAGE; empty if it can."""
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        secret = parts.password or any("password" in word for word in parse_qs(parts.query))
    except ValueError:
        return "it is not a URL"
    if secret:
        return (
            "it holds a password, which others could read; remove it, and set PGPASSWORD or use "
            "~/.pgpass"
        )
    if parts.scheme.partition("+")[0] not in ("sqlite", "postgresql"):
        return "its kind of database is not supported"
    return ""
