"""What is wrong with names and addresses in a config; an empty answer means nothing is."""

from urllib.parse import parse_qs, urlsplit

LONGEST_NAME = 120  # bytes


def run_name_fault(name: str) -> str:
    """Why a text cannot be RUN.NAME, which becomes a folder's name."""
    if not name:
        return "it is empty"
    if "/" in name:
        return "it holds a slash; RUN.ROOT says where runs are written"
    if name.startswith("."):
        return "it begins with a dot"
    if not name.isprintable():
        return "it holds characters that cannot be printed"
    if len(name.encode("utf-8", "replace")) > LONGEST_NAME:
        return f"it is longer than {LONGEST_NAME} bytes"
    return ""


def storage_fault(url: str) -> str:
    """Why a text cannot be STUDY.STORAGE."""
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
