"""Rows of a section for measurements that may fail one by one."""

from collections.abc import Callable, Mapping
from typing import Any

from common.report import Row, row


def failure(measure: str, error: BaseException | str) -> Row:
    """The row of a measurement that failed, with the reason as its note."""
    lines = str(error).strip().splitlines()
    why = lines[-1] if lines else type(error).__name__
    return {**row(f"{measure}: failed", 0.0, ""), "ok": False, "goal": "no failure", "note": why}


def each(
    parts: Mapping[str, Callable[[], Any]], rows: list[Row], label: str = ""
) -> dict[str, Any]:
    """The result of each part by name. A part that raises becomes a row instead."""
    found = {}
    for name, part in parts.items():
        try:
            found[name] = part()
        except Exception as error:
            rows.append(failure(f"{label}{name}", error))
    return found
