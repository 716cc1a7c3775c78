"""The command line options and the report of every benchmark.

A figure counts only from an idle machine: a goal of a time is neither met nor missed where the load
average was above one before the start. The file of --json has the rows, and last the machine.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.machine import load_average, machine_now, was_busy

Row = dict[str, Any]


def options(description: str | None) -> argparse.ArgumentParser:
    """A parser of --quick and --json, which also notes the machine before the work."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="under 50 seconds on two cores")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the rows go")
    parser.set_defaults(machine=machine_now())
    return parser


def row(
    measure: str,
    value: float,
    unit: str,
    at_least: float | None = None,
    at_most: float | None = None,
    rounds: Sequence[float] = (),
) -> Row:
    """A figure, and the least or the most that it should be, or both.

    `rounds` are the values that it is the median of: their number and range are reported.
    """
    goal, ok = None, True
    if at_least is not None and at_most is not None:
        goal, ok = f"{at_least:g} to {at_most:g}", at_least <= value <= at_most
    elif at_least is not None:
        goal, ok = f"at least {at_least:g}", value >= at_least
    elif at_most is not None:
        goal, ok = f"at most {at_most:g}", value <= at_most
    # json cannot write NumPy's numbers.
    figure = {"measure": measure, "value": float(value), "unit": unit, "goal": goal, "ok": bool(ok)}
    if len(rounds):
        spread = [float(min(rounds)), float(max(rounds))]
        figure |= {"rounds": len(rounds), "spread": spread}
    return figure


def ratios(values: Sequence[float], others: Sequence[float]) -> list[float]:
    """The ratio of two sides in each round."""
    return [one / other for one, other in zip(values, others, strict=True)]


def left_out(measure: str, why: str) -> Row:
    """A measure that could not be made here."""
    return {**row(f"{measure}: left out", 0.0, ""), "note": why}


def report(
    rows: Sequence[Row],
    args: argparse.Namespace,
    details: Sequence[Row] = (),
    timed: bool = True,
) -> None:
    """Print rows as a table, and write them where asked; `details` are only written.

    Args:
        args: from the parser of `options`.
        timed: whether other processes change the figures; False for accuracies.
    """
    machine = args.machine | {"load_after": load_average()}
    if timed and was_busy(machine):
        rows = [{**row, "ok": False, "busy": True} if row["goal"] else row for row in rows]
    print(f"{machine['processor']}, {machine['cores']} cores, load average "
          f"{machine['load_before']} before, {machine['load_after']} after")  # fmt: skip
    print_table(rows)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        written = [*rows, *details, {"machine": machine}]
        args.json.write_text(json.dumps(written, indent=2) + "\n")


def print_table(rows: Sequence[Row]) -> None:
    """A line a row: measure, value, range of the rounds and goal, or measure and note."""
    width = max(len(row["measure"]) for row in rows)
    for row in rows:
        if "note" in row:
            print(f"{row['measure']}: {row['note']}")
            continue
        figure = f"{row['value']:>12.3f} {row['unit']:<10} {spread_of(row)}"
        goal = "" if row["goal"] is None else f" goal {row['goal']}, {verdict(row)}"
        print(f"{row['measure']:<{width}} {figure}{goal}".rstrip())


def spread_of(row: Row) -> str:
    """The range of the rounds, and their number; empty for a figure of one round."""
    if "spread" not in row:
        return ""
    low, high = row["spread"]
    return f"({low:.4g} to {high:.4g} in {row['rounds']})"


def verdict(row: Row) -> str:
    """Whether a goal is met; `busy` where that cannot be said."""
    if row.get("busy"):
        return "busy"
    return "met" if row["ok"] else "MISSED"
