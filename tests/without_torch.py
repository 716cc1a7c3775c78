"""Where torch is not installed, tests that need it are left out: `make test-lab` runs the others.

A test needs it if its file imports it, if it uses a fixture of depth_fixtures.py, or if it has the
marker `depth`.
"""

import re
from importlib.util import find_spec

FIXTURES = {"world", "tiny", "exported_run", "study", "aoti_bundle", "small_zoedepth"}
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
    if MISSING:
        config.hook.pytest_deselected(items=list(filter(needs_torch, items)))
        items[:] = [item for item in items if not needs_torch(item)]


def needs_torch(item):
    return item.get_closest_marker("depth") or not FIXTURES.isdisjoint(item.fixturenames)
