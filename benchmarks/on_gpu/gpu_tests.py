"""The tests of code that runs differently on a GPU: engines, loading, training."""

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from common.report import Row, row

CHECKOUT = Path(__file__).resolve().parents[2]
TESTS = [
    "tests/exporting/test_engines.py",
    "tests/data/test_loader.py",
    "tests/training/test_options.py",
]
QUICKEST = ["tests/data/test_loader.py"]


def measure(folder: Path, small: bool) -> Iterator[Row]:
    """How many pass and fail; a note names the failed ones."""
    if not find_spec("pytest"):
        yield {**row("tests", 0.0, ""), "note": "pytest is not installed: not run"}
        return
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--no-header",
             *(QUICKEST if small else TESTS)]  # fmt: skip
    done = subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|error)", done.stdout)}
    bad = counts.get("failed", 0) + counts.get("error", 0)
    names = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    yield row("tests on the GPU: passed", counts.get("passed", 0), "", 1.0)
    yield {
        **row("tests on the GPU: failed", bad, ""),
        "ok": done.returncode == 0,
        "goal": "0",
        "note": "; ".join(names[:8]),
    }
