"""A digest of the code that reads runs. What another version has stored is not used."""

from functools import cache
from hashlib import sha256
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
READERS = (
    "analysis/*run*.py",
    "analysis/collect.py",
    "analysis/documents.py",
    "analysis/sources.py",
    "run_metrics/*.py",
    "trackers/*.py",
    "exporting/bundle.py",
    "exporting/containers/*.py",
    "identity.py",
    "run_dir.py",
    "trees.py",
    "yaml_text.py",
)


@cache
def reading_code(*more: str) -> str:
    """A digest of the modules that read runs.

    Args:
        more: globs of further modules in the package.
    """
    digest = sha256()
    for pattern in (*READERS, *more):
        for path in sorted(PACKAGE.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()
