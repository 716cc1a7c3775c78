"""The command line options and the report of every benchmark."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def options(description: str | None) -> argparse.ArgumentParser:
    """A parser of --quick and --json."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="under 50 seconds on two cores")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the rows go")
    return parser


def row(
    measure: str,
    value: float,
    unit: str,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Row:
    """A figure, and the least or the most that it should be, or both."""
    goal, ok = None, True
    if at_least is not None and at_most is not None:
        goal, ok = f"{at_least:g} to {at_most:g}", at_least <= value <= at_most
    elif at_least is not None:
        goal, ok = f"at least {at_least:g}", value >= at_least
    elif at_most is not None:
        goal, ok = f"at most {at_most:g}", value <= at_most
    # json cannot write NumPy's numbers.
    return {"measure": measure, "value": float(value), "unit": unit, "goal": goal, "ok": bool(ok)}


def report(rows: Sequence[Row], path: Path | None, details: Sequence[Row] = ()) -> None:
    """Print rows as a table, and write them where asked; `details` are only written."""
    width = max(len(row["measure"]) for row in rows)
    for row in rows:
        verdict = "met" if row["ok"] else "MISSED"
        goal = "" if row["goal"] is None else f"goal {row['goal']}, {verdict}"
        print(f"{row['measure']:<{width}} {row['value']:>12.3f} {row['unit']:<10} {goal}".rstrip())
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([*rows, *details], indent=2) + "\n")
