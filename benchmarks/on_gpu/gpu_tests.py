"""The tests of code that runs differently on a GPU: engines, loading, training."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from common.report import Row, row

CHECKOUT = Path(__file__).resolve().parents[2]
TESTS = [  # the slowest last: a time limit keeps the rows of the others
    "tests/depth/data/test_loader.py",
    "tests/depth/training/test_options.py",
    "tests/depth/exporting/test_engines.py",
]
QUICKEST = ["tests/depth/data/test_loader.py"]


def measure(folder: Path, small: bool) -> Iterator[Row]:
    """How many of each file pass and fail; a note says which fail, and why."""
    for file in QUICKEST if small else TESTS:
        words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--no-header",
                 "-k", "not aoti and not onnx", file]  # fmt: skip
        # pytest cuts the reasons of failures to the width of the terminal.
        wide = {**os.environ, "COLUMNS": "250"}
        done = subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True, env=wide)
        lines = done.stdout.strip().splitlines()
        counts = {
            word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|error)", done.stdout)
        }
        bad = counts.get("failed", 0) + counts.get("error", 0)
        names = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        yield row(f"{file}: passed", counts.get("passed", 0), "", 1.0)
        yield {
            **row(f"{file}: failed", bad, ""),
            "ok": done.returncode == 0,
            "goal": "0",
            "note": "; ".join(names[:8]),
        }
