"""Git objects are read and hashed again without taking much memory."""

import subprocess
import tracemalloc

import pytest

from zoerefine.base.errors import UserError
from zoerefine.lab.launch.git.commands import read_objects

SIZE_BYTES = 24 * 2**20


@pytest.fixture
def blobs(repository):
    """The ids of eight large objects and three small ones."""
    contents = [bytes([n]) * SIZE_BYTES for n in range(8)] + [b"a", b"", b"c\n"]
    command = ["git", "hash-object", "-w", "--stdin"]
    return [
        subprocess.run(command, cwd=repository.folder, input=one, capture_output=True)
        .stdout.decode()
        .strip()
        for one in contents
    ]


def test_large_objects_are_not_in_memory_together(repository, blobs):
    tracemalloc.start()
    try:
        found = [
            (one, len(content)) for one, content in read_objects(repository.folder, "blob", blobs)
        ]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == list(zip(blobs, [SIZE_BYTES] * 8 + [1, 0, 2], strict=True))
    assert peak_bytes < 10 * SIZE_BYTES  # of all at once: more than 16


def test_a_missing_object_is_named(repository, blobs):
    missing = "1" * 40
    with pytest.raises(UserError, match=f"does not have the object {missing}"):
        list(read_objects(repository.folder, "blob", [*blobs[-3:], missing]))
