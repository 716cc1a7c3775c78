"""The list of runs, printed: its columns, pages, and as a live view."""

import time
from collections.abc import Callable
from textwrap import wrap
from typing import TYPE_CHECKING

from zoerefine.base.errors import visible
from zoerefine.lab.listing.row import RUNNING, RunRow

if TYPE_CHECKING:
    from rich.text import Text


UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def shown_size(count: float) -> str:
    """A number of bytes in words: `860 MiB`."""
    for unit in UNITS:
        if count < 1000 or unit == UNITS[-1]:
            break
        count /= 1024
    return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"


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


COLOURS = {"running": "cyan", "failed": "red", "damaged": "red", "killed": "yellow"}
REFRESH_S = 2.0
FRAME_LINES = 3  # of the page: the summary, the columns' names, the last line


def page(rows: list[RunRow], metric: str, width: int, height: int) -> "Text":
    """As many runs as fit the terminal, running ones first, each in one line."""
    from rich.text import Text  # a plain list needs no rich

    ordered = sorted(rows, key=lambda row: row.state != RUNNING)
    shown = ordered[: max(1, height - FRAME_LINES)]
    text = Text(no_wrap=True, overflow="crop")
    text.append(f"{summary(rows)}"[:width] + "\n", style="bold")
    text.append(header(metric)[:width] + "\n", style="dim")
    for row in shown:
        text.append(line_of(row, metric)[:width] + "\n", style=COLOURS.get(row.state, ""))
    more = f"{len(rows) - len(shown):,} more; " if len(rows) > len(shown) else ""
    text.append(f"{more}Ctrl-C ends"[:width], style="dim")
    return text


def watch(rows_of_now: Callable[[], list[RunRow]], metric: str) -> None:
    """Show the page until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    console = Console()

    def draw() -> "Text":
        return page(rows_of_now(), metric, console.width, console.height)

    try:
        with Live(draw(), console=console, auto_refresh=False, screen=True) as live:
            while True:
                time.sleep(REFRESH_S)
                live.update(draw(), refresh=True)
    except KeyboardInterrupt:
        return
