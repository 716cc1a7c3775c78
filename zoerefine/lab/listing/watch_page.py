"""The list of runs as a page that follows changes. Loads rich, so it is imported late."""

import time
from collections.abc import Callable

from rich.console import Console
from rich.live import Live
from rich.text import Text

from zoerefine.lab.listing.row import RUNNING, RunRow
from zoerefine.lab.listing.table import header, line_of, summary

COLOURS = {"running": "cyan", "failed": "red", "damaged": "red", "killed": "yellow"}
REFRESH_S = 2.0
FRAME_LINES = 3  # of the page: the summary, the columns' names, the last line


def page(rows: list[RunRow], metric: str, width: int, height: int) -> Text:
    """As many runs as fit the terminal, running ones first, each in one line."""
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
    console = Console()

    def draw() -> Text:
        return page(rows_of_now(), metric, console.width, console.height)

    try:
        with Live(draw(), console=console, auto_refresh=False, screen=True) as live:
            while True:
                time.sleep(REFRESH_S)
                live.update(draw(), refresh=True)
    except KeyboardInterrupt:
        return
