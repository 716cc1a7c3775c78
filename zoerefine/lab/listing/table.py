"""The list of runs as plain lines."""

import time
from textwrap import wrap

from zoerefine.base.texts import visible
from zoerefine.lab.listing.row import RunRow, shown_size


def header(metric: str) -> str:
    """The names of the columns."""
    short = visible(metric.rpartition(".")[2])[:9]
    return f"{'state':<8}  {'started':<16}  {'size':>8}  {short:>9}  run"


RUN_COLUMN = 49  # where the name of the run begins


def fitted(row: RunRow, metric: str, width: int) -> str:
    """A run for a terminal: its line is cut, but its name is whole, on lines of its own if need be.

    Args:
        width: columns of the terminal.
    """
    line = line_of(row, metric)
    name = visible(row.title)
    if len(line) <= width or RUN_COLUMN + len(name) < width:
        return line if len(line) <= width else f"{line[: width - 1]}…"
    return "\n  ".join([line[:RUN_COLUMN].rstrip()[:width], *wrap(name, max(1, width - 2))])


def line_of(row: RunRow, metric: str) -> str:
    """A run in one line: state, start, size, metric, run, tags, note or reason."""
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.started)) if row.started else ""
    value = row.metrics.get(metric)
    words = [row.title, *(f"[{tag}]" for tag in row.tags), row.note]
    if row.state in ("failed", "damaged"):
        words.append(row.reason)
    text = " ".join(" ".join(filter(None, words)).split())
    shown = "" if value is None else f"{value:.4g}"
    line = f"{row.state:<8}  {started:<16}  {shown_size(row.bytes):>8}  {shown:>9}  {text}"
    return line if line.isprintable() else visible(line)


def summary(rows: list[RunRow]) -> str:
    """How many runs in which states, and their size."""
    states = [row.state for row in rows]
    counts = ", ".join(f"{states.count(state):,} {state}" for state in dict.fromkeys(states))
    runs = f"{len(rows):,} run{'' if len(rows) == 1 else 's'}"
    return f"{runs}{f' ({counts})' if counts else ''}, {shown_size(sum(r.bytes for r in rows))}"
