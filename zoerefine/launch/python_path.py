"""Where the Python processes that we start look for modules."""

import os
from collections.abc import Mapping
from pathlib import Path

LIBRARY = Path(__file__).resolve().parents[2]  # the folder of this package


def python_path(environment: Mapping[str, str], *folders: Path) -> str:
    """A PYTHONPATH with some folders before those of an environment."""
    return os.pathsep.join(filter(None, [*map(str, folders), environment.get("PYTHONPATH", "")]))
