"""The live table of a queue: one row a job. Where nobody watches, a line for each change."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from zoerefine.progress import say
from zoerefine.run_dir import RunDir

TAIL = 4096
COLOURS = {"running": "cyan", "failed": "red", "killed": "yellow", "waiting": "dim"}


@dataclass
class QueueRow:
    """A job as the table shows it.

    `state` is waiting, running, finished, finished before, failed or killed.
    """

    title: str
    run: RunDir
    state: str = "waiting"
    seconds: float = 0.0
    note: str = ""


@contextmanager
def live_table(rows: Sequence[QueueRow]) -> Iterator[Callable[[], None]]:
    """Yields a function that brings what people see up to date."""
    console = Console(file=sys.stderr)
    if console.is_terminal:
        with Live(drawn(rows), console=console, auto_refresh=False) as live:
            yield lambda: live.update(drawn(rows), refresh=True)
        return
    seen: dict[Path, str] = {}

    def tell() -> None:
        for row in rows:
            if seen.get(row.run.path) != row.state and row.state != "waiting":
                say(f"{row.state:<9} {row.title}  {row.run.path}  {news(row)}".rstrip())
            seen[row.run.path] = row.state

    tell()
    yield tell
    tell()


def drawn(rows: Sequence[QueueRow]) -> Table:
    """The table as it stands."""
    done = sum(row.state.startswith("finished") for row in rows)
    table = Table(title=f"{done} of {len(rows)} finished", title_justify="left")
    for name in ("job", "state", "time", "run", ""):
        table.add_column(name, justify="right" if name == "time" else "left", no_wrap=True)
    for row in rows:
        minutes, seconds = divmod(round(row.seconds), 60)
        time = f"{minutes}:{seconds:02d}" if row.seconds else ""
        colour = COLOURS.get(row.state, "green")
        name = "/".join(row.run.path.parts[-2:])
        table.add_row(row.title, f"[{colour}]{row.state}[/]", time, name, news(row))
    return table


def news(row: QueueRow) -> str:
    """What a job last said: why it failed, or its last logged step, or its last line."""
    if row.state == "waiting":
        return ""
    if row.state in ("failed", "killed"):
        status = row.run.status()
        return (status.reason if status.started else "") or row.note
    last = tail(row.run.metrics_file)
    with suppress(ValueError):
        values = {k: v for k, v in json.loads(last).items() if isinstance(v, int | float)}
        return ", ".join(f"{k} {v:.4g}" for k, v in list(values.items())[:3])
    return tail(row.run.log_file)[:80]


def tail(path: Path) -> str:
    """The last whole line of a file; empty where there is none yet."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            lines = file.read().decode(errors="replace").rsplit("\n", 1)[0].splitlines()
    except OSError:
        return ""
    return lines[-1].strip() if lines else ""
