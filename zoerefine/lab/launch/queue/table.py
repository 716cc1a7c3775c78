"""The live table of a queue, one row a job. Without a terminal, one line for each change."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from zoerefine.base.errors import UserError
from zoerefine.base.messages import is_hidden, say
from zoerefine.base.run_dir import RunDir
from zoerefine.base.yaml.keys import flatten
from zoerefine.lab.launch.process.output import last_line
from zoerefine.lab.launch.record.times_and_speeds import by_weight, is_aside

WIDE = 120  # columns of a terminal that has room for the runs' names
FIXED_COLUMNS = 40  # borders, state and time
NARROW_REASON = 20  # columns of the reason why a job waits, at least
ORDER = ("running", "failed", "killed", "waiting", "finished", "finished before")
SELECTED = ("val.refined.abs_rel", "refined.abs_rel")  # in results.json, in metrics.jsonl
COLOURS = {"running": "cyan", "failed": "red", "killed": "yellow", "waiting": "dim"}


@dataclass
class QueueRow:
    """A job as the table shows it.

    Attributes:
        state: waiting, running, finished, finished before, failed or killed.
        seconds: how long it has run.
        message: why it failed or was killed.
        note: what a cluster says of the job, such as why it waits.
        result: the final metrics, once they were read.
        metric: the one that is shown; empty: those of our own trainings, or the first ones.
    """

    title: str
    run: RunDir
    state: str = "waiting"
    seconds: float = 0.0
    message: str = ""
    note: str = ""
    result: str = ""
    metric: str = ""


@contextmanager
def live_table(rows: Sequence[QueueRow]) -> Iterator[Callable[[], None]]:
    """Yields a function that updates what the user sees."""
    console = Console(file=sys.stderr)
    if console.is_terminal and not is_hidden():
        with Live(render_table(rows, console.width), console=console, auto_refresh=False) as live:
            yield lambda: live.update(render_table(rows, console.width), refresh=True)
        return
    seen: dict[Path, tuple[str, str]] = {}

    def print_changes() -> None:
        for row in rows:
            shown = (row.state, row.note if row.state == "waiting" else "")
            if seen.get(row.run.path, ("waiting", "")) != shown:
                say(f"{row.state:<15} {row.title}  {row.run.path}  {progress_of(row)}".rstrip())
            seen[row.run.path] = shown

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
        # In a narrow terminal the title takes several lines, and nothing of it is lost.
        table.add_column(
            name,
            justify="right" if name == "time" else "left",
            no_wrap=name != "job",
            overflow="fold",
        )
    for row in sorted(rows, key=lambda row: ORDER.index(row.state)):
        minutes, seconds = divmod(round(row.seconds), 60)
        cells = {
            "state": f"[{COLOURS.get(row.state, 'green')}]{row.state}[/]",
            "time": f"{minutes}:{seconds:02d}" if row.seconds else "",
            "job": escape(row.title),
            "run": escape("/".join(row.run.path.parts[-2:])),
        }
        free = width - len(row.title) - FIXED_COLUMNS - (len(cells["run"]) if "run" in names else 0)
        cells["last message"] = escape(shortened(row, free))
        table.add_row(*(cells[name] for name in names))
    return table


def shortened(row: QueueRow, columns: int) -> str:
    """What is said of a job: cut to one line, but why it waits takes as many as it needs."""
    if row.state == "waiting":
        return fill(progress_of(row), max(NARROW_REASON, columns))
    return progress_of(row)[: max(8, columns)]


def progress_of(row: QueueRow) -> str:
    """Why a job waits or has failed, or its metrics, or its last line of output."""
    if row.state == "waiting":
        return row.note
    if row.state in ("failed", "killed"):
        return row.message
    if row.state == "running":
        return last_metrics(row.run, row.metric) or last_line(row.run.log_file)[:80] or row.note
    if not row.result:  # read once: a large run has many files
        row.result = final_metrics(row.run, row.metric) or last_line(row.run.log_file)[:80]
    return row.result


def final_metrics(run: RunDir, name: str = "") -> str:
    """The final metrics of a run, wherever its job wrote them; empty where it has none."""
    from zoerefine.lab.runs.metrics import read_metrics  # it loads NumPy

    with suppress(UserError):
        return shown_metrics(read_metrics(run).final, name)
    return ""


def last_metrics(run: RunDir, name: str = "") -> str:
    """The last metrics that a running job logged to metrics.jsonl."""
    with suppress(ValueError, AttributeError):  # half a row, or not ours
        values = flatten(json.loads(last_line(run.metrics_file)))
        return shown_metrics({k: v for k, v in values.items() if isinstance(v, int | float)}, name)
    return ""


def shown_metrics(values: Mapping[str, float], only: str = "") -> str:
    """Some metrics in a few words: the one that our trainings select by, or else what says most."""
    selected = (only,) if only in values else SELECTED
    names = [name for name in values if name in selected] or sorted(values, key=by_weight)
    told = [name for name in names if not is_aside(name)] or names
    return ", ".join(f"{name} {values[name]:.4g}" for name in told[:3])
