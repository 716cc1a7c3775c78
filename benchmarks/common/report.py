"""What every benchmark takes on its command line, and how it tells what it found."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def options(description: str | None) -> argparse.ArgumentParser:
    """A parser of --quick and --json."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="under 50 seconds on two cores")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the rows go")
    return parser


def report(rows: Sequence[dict[str, Any]], path: Path | None) -> None:
    """Print rows {measure, value, unit, goal, ok} as a table, and write them where asked."""
    width = max(len(row["measure"]) for row in rows)
    for row in rows:
        verdict = "met" if row["ok"] else "MISSED"
        goal = "" if row["goal"] is None else f"goal {row['goal']}, {verdict}"
        print(f"{row['measure']:<{width}} {row['value']:>12.3f} {row['unit']:<10} {goal}".rstrip())
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(rows, indent=2) + "\n")
