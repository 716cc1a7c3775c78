"""Where torch is not installed, tests that need it are left out: `make test-lab` runs the others.

A test needs it if its file imports it, if it uses a fixture of depth_fixtures.py, or if it has the
marker `depth`. `ZOEREFINE_TEST_SMOKE=2` takes the first two short cases of each file: enough to see
what is missing without torch, once `make test` has passed with it.
"""

import os
import re
from collections import Counter
from importlib.util import find_spec

from tests.durations import read_table
from tests.tiers import tier

FIXTURES = {
    "world",
    "tiny",
    "exported_run",
    "study",
    "aoti_bundle",
    "tensorrt_pt2_bundles",
    "small_zoedepth",
}
LOADS = (
    *("import torch", "from torch", "from zoerefine.depth"),
    "from zoerefine.base.machine import doctor",
)
IMPORTS = re.compile("^(" + "|".join(map(re.escape, LOADS)) + r")\b", re.MULTILINE)
MISSING = find_spec("torch") is None


def pytest_ignore_collect(collection_path):
    is_file = MISSING and collection_path.suffix == ".py"
    return True if is_file and IMPORTS.search(collection_path.read_text()) else None


def pytest_collection_modifyitems(config, items):
    kept = [item for item in items if not (MISSING and needs_torch(item))]
    if count := int(os.environ.get("ZOEREFINE_TEST_SMOKE") or 0):
        kept = first_of_each_file(kept, count)
    config.hook.pytest_deselected(items=list(set(items) - set(kept)))
    items[:] = kept


def first_of_each_file(items, count):
    """The first quick cases of each file that take less than a second."""
    known, taken, kept = read_table(), Counter(), []
    for item in items:
        if item.nodeid not in known and tier(item.nodeid) == "quick" and taken[item.path] < count:
            taken[item.path] += 1
            kept.append(item)
    return kept


def needs_torch(item):
    return item.get_closest_marker("depth") or not FIXTURES.isdisjoint(item.fixturenames)
