"""metrics.jsonl and results.json: the metrics that our own training and `current_run` write."""

import json
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

from zoerefine.run_metrics.line_reader import LineLog
from zoerefine.run_metrics.series import STEP_NAMES, Kind, as_number
from zoerefine.trees import flatten

PHASE = "phase"  # of our own training: `train` or `val`, the first part of the metrics' names


@dataclass
class JsonLog(LineLog):
    """metrics.jsonl: one JSON object a line, with a step and metrics, which may be nested."""

    @property
    def kind(self) -> Kind:
        return Kind.ROWS

    def update(self, ended: bool) -> None:
        """Read the new rows."""
        for line in self.reader.new_lines(ended):
            row = parse_object(line)
            if row is not None:
                self._add_row(row)
            elif line.rstrip().endswith("}"):  # else a kill cut it off
                self.faults["line"] = f"line {self.reader.number} is not a JSON object"

    def _add_row(self, row: dict[str, Any]) -> None:
        steps = (as_number(row.get(name)) for name in STEP_NAMES)
        step = next((step for step in steps if step is not None), self.reader.number)
        prefix = f"{row[PHASE]}." if isinstance(row.get(PHASE), str) else ""
        for name, value in row.items():
            number = as_number(value)
            if number is not None and name not in STEP_NAMES and not isnan(step):
                self.add(prefix + name, step, number)


def read_results(path: Path) -> tuple[dict[str, float], str]:
    """Every number in a results.json by its name, and why the file cannot be read, if so."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        return {}, f"it cannot be read: {error.strerror}"
    document = parse_object(text)
    if document is None:
        return {}, "it is not a JSON object"
    numbers = {name: as_number(value) for name, value in document.items() if name != "schema"}
    return {name: number for name, number in numbers.items() if number is not None}, ""


def parse_object(text: str) -> dict[str, Any] | None:
    """The leaves of a JSON object by their path; None where the text is something else."""
    try:
        value = json.loads(text)
        return flatten(value) if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        return None
