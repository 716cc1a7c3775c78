"""The live table of a queue, one row a job. Without a terminal, one line for each change."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from zoerefine.progress import is_hidden, say
from zoerefine.run_dir import RunDir

TAIL_BYTES = 4096
WIDE = 120  # columns of a terminal that has room for the runs' names
FIXED_COLUMNS = 40  # borders, state and time
ORDER = ("running", "failed", "killed", "waiting", "finished", "finished before")
COLOURS = {"running": "cyan", "failed": "red", "killed": "yellow", "waiting": "dim"}


@dataclass
class QueueRow:
    """A job as the table shows it.

    Attributes:
        state: waiting, running, finished, finished before, failed or killed.
        seconds: how long it has run.
        message: the launcher's last line, once the job has ended.
    """

    title: str
    run: RunDir
    state: str = "waiting"
    seconds: float = 0.0
    message: str = ""


@contextmanager
def live_table(rows: Sequence[QueueRow]) -> Iterator[Callable[[], None]]:
    """Yields a function that updates what the user sees."""
    console = Console(file=sys.stderr)
    if console.is_terminal and not is_hidden():
        with Live(render_table(rows, console.width), console=console, auto_refresh=False) as live:
            yield lambda: live.update(render_table(rows, console.width), refresh=True)
        return
    seen: dict[Path, str] = {}

    def print_changes() -> None:
        for row in rows:
            if seen.get(row.run.path) != row.state and row.state != "waiting":
                say(f"{row.state:<15} {row.title}  {row.run.path}  {progress_of(row)}".rstrip())
            seen[row.run.path] = row.state

    print_changes()
    yield print_changes
    print_changes()


def render_table(rows: Sequence[QueueRow], width: int) -> Table:
    """The table, running jobs first, then failed ones.

    Args:
        width: columns of the terminal.
    """
    done = sum(row.state.startswith("finished") for row in rows)
    table = Table(title=f"{done} of {len(rows)} finished", title_justify="left")
    names = ["state", "time", "job", *(["run"] if width >= WIDE else []), "last message"]
    for name in names:
        table.add_column(name, justify="right" if name == "time" else "left", no_wrap=True)
    for row in sorted(rows, key=lambda row: ORDER.index(row.state)):
        minutes, seconds = divmod(round(row.seconds), 60)
        cells = {
            "state": f"[{COLOURS.get(row.state, 'green')}]{row.state}[/]",
            "time": f"{minutes}:{seconds:02d}" if row.seconds else "",
            "job": escape(row.title),
            "run": escape("/".join(row.run.path.parts[-2:])),
        }
        free = width - len(row.title) - FIXED_COLUMNS - (len(cells["run"]) if "run" in names else 0)
        cells["last message"] = escape(progress_of(row)[: max(8, free)])
        table.add_row(*(cells[name] for name in names))
    return table


def progress_of(row: QueueRow) -> str:
    """Why a job failed, or the start of its last metrics row, or its last line of output."""
    if row.state == "waiting":
        return ""
    if row.state in ("failed", "killed"):
        status = row.run.status()
        return (status.reason if status.started else "") or row.message
    last = last_line(row.run.metrics_file)
    with suppress(ValueError):
        values = {k: v for k, v in json.loads(last).items() if isinstance(v, int | float)}
        return ", ".join(f"{k} {v:.4g}" for k, v in list(values.items())[:3])
    return last_line(row.run.log_file)[:80]


def last_line(path: Path) -> str:
    """The last complete line of a file; empty where there is none yet."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").rsplit("\n", 1)[0].splitlines()
    except OSError:
        return ""
    return lines[-1].strip() if lines else ""
