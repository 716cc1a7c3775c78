"""The seal of a bundle: the last 64 bytes of its file are the SHA-256 of all the bytes before.

Every container ends its files in such a way, so one check covers every byte of every format, also
those between the members of an archive. It is made before any of them is parsed.
"""

import hashlib
from pathlib import Path

LENGTH = 64  # hexadecimal digits
PLACEHOLDER = b"0" * LENGTH  # what a container leaves at the end of a file, for the seal
CHUNK = 2**20  # bytes


def seal(data: bytes) -> bytes:
    """A file's bytes, which end in the placeholder, with the seal in its place."""
    assert data.endswith(PLACEHOLDER)
    content = data[:-LENGTH]
    return content + hashlib.sha256(content).hexdigest().encode()


def intact_digest(path: str | Path) -> str | None:
    """The digest that a file is sealed with; None if it is not that of the file's bytes.

    Raises `OSError` if the file cannot be read.
    """
    digest, rest = hashlib.sha256(), b""
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            rest += chunk
            digest.update(rest[:-LENGTH])
            rest = rest[-LENGTH:]
    return digest.hexdigest() if rest == digest.hexdigest().encode() else None
