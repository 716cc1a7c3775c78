"""What every fuzzed example is held to, and how many examples there are.

`make test` tries a few, always the same ones. `ZOEREFINE_FUZZ=100000` (`make fuzz`) tries so many
over all tests, other ones each time.
"""

import json
import os
import resource
import time
from contextlib import contextmanager

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from zoerefine.base.errors import UserError
from zoerefine.base.files.storage_faults import storage_fault

TESTS = 14
FEW = 10  # examples of a test, in `make test`
MANY = int(os.environ.get("ZOEREFINE_FUZZ") or "0")
MAX_CPU_S = 10
MAX_MEMORY = 2**30

fuzzed = settings(
    max_examples=max(FEW, MANY // TESTS),
    derandomize=not MANY,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

WORDS = ["", "0", "-1", "1e999", "nan", "../x", "/etc/passwd", "a\0b", "\x1b[31m", "\ud800", "[]"]
TEXT = st.text("ab.0\0\x1b\u202e\u00e9[{$=-", max_size=6)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.sampled_from(WORDS[:9])
    | TEXT
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@contextmanager
def bounded(folder):
    """Nothing but a `UserError` with a sentence; no time, no memory, no file beside `folder`."""
    before = sorted(folder.parent.iterdir())
    start, peak = time.process_time(), peak_bytes()
    try:
        yield
    except UserError as error:
        assert str(error)
    except OSError as error:
        assert storage_fault(error), repr(error)
    assert time.process_time() - start < MAX_CPU_S
    assert peak_bytes() - peak < MAX_MEMORY
    assert sorted(folder.parent.iterdir()) == before


def peak_bytes():
    """The most memory that this process has used."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@st.composite
def damaged(draw, original):
    """The bytes of a valid file with a few changes: bytes set, parts cut, repeated or removed."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        # The head of a file decides how it is read, so it is changed most often.
        limit = draw(st.sampled_from([64, 512, len(data) or 1]))
        start = draw(st.integers(0, max(0, min(limit, len(data)) - 1)))
        length = draw(st.sampled_from([1, 1, 2, 4, 8, 64]))
        match draw(st.sampled_from(["set", "set", "insert", "remove", "repeat", "cut"])):
            case "set":
                data[start : start + length] = draw(st.binary(min_size=length, max_size=length))
            case "insert":
                data[start:start] = draw(st.binary(min_size=1, max_size=length))
            case "remove":
                del data[start : start + length]
            case "repeat":
                data[start:start] = data[start : start + length]
            case "cut":
                del data[start:]
    return bytes(data)


@st.composite
def changed(draw, tree):
    """A JSON object in which up to three values, at any depth, are others, or are missing."""
    result = json.loads(json.dumps(tree))
    for _ in range(draw(st.integers(1, 3))):
        part = result
        key = draw(st.sampled_from(sorted(part) or ["x"]))
        while isinstance(part.get(key), dict) and part[key] and draw(st.booleans()):
            part = part[key]
            key = draw(st.sampled_from(sorted(part)))
        if draw(st.integers(0, 4)):
            part[key] = draw(JSON)
        else:
            part.pop(key, None)
    return result
