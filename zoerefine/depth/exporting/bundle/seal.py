"""The seal of a bundle: the last 64 bytes of its file are the SHA-256 of all the bytes before.

Every container ends its files in such a way, so one check covers every byte of every format, also
those between the members of an archive. It is made before any of them is parsed.
"""

import hashlib

LENGTH = 64  # hexadecimal digits
PLACEHOLDER = b"0" * LENGTH  # what a container leaves at the end of a file, for the seal


def seal(data: bytes) -> bytes:
    """A file's bytes, which end in the placeholder, with the seal in its place."""
    assert data.endswith(PLACEHOLDER)
    content = data[:-LENGTH]
    return content + hashlib.sha256(content).hexdigest().encode()


def intact_digest(data: bytes) -> str | None:
    """The digest that a file's bytes are sealed with; None if it is not theirs."""
    digest = hashlib.sha256(memoryview(data)[:-LENGTH]).hexdigest()
    return digest if data[-LENGTH:] == digest.encode() else None
