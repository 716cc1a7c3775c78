"""The name of a virtual environment: a digest of what decides its packages."""

import hashlib
import platform
import sys
from pathlib import Path

from zoerefine.launch.environment_build import builder_of
from zoerefine.launch.lock_file_references import stands_alone


def environment_name(kind: str, file: Path, version: str) -> str:
    """The name of the virtual environment that a lock file gives.

    Launches of other versions share the environment where the files are equal, and lead to no
    other files of the version.

    Args:
        version: names the files beside the lock file: the commit, and the digest of its changes.
    """
    settings = [file.parent / name for name in builder_of(kind).SETTINGS_FILES]
    settings = [path for path in settings if path.is_file()]
    has_references = not all(map(stands_alone, [file, *settings]))
    about = f"{sys.version}\n{platform.machine()}\n{version if has_references else ''}\n"
    about += "" if kind == "venv" else f"{kind} {file.name}\n"
    texts = [f"{path.name}\n".encode() + path.read_bytes() for path in settings]
    return hashlib.sha256(b"".join([about.encode(), *texts, file.read_bytes()])).hexdigest()[:16]
