"""The list of runs: a run as a row, with its state, size, metrics and labels, and rows in print."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from zoerefine.base.errors import UserError, damage
from zoerefine.base.files.atomic import bytes_on_disk
from zoerefine.base.messages import counted, visible
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.launch.record.provenance import seed_of
from zoerefine.lab.listing.labels import Labels, read_labels
from zoerefine.lab.runs.record import PRUNED

if TYPE_CHECKING:
    from rich.text import Text

DAMAGED = "damaged"  # the state of a run whose documents cannot be read
RUNNING = "running"
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
RUN_COLUMN = 49  # where the name of the run begins
COLOURS = {"running": "cyan", "failed": "red", "damaged": "red", "killed": "yellow"}
REFRESH_S = 2.0
MOST_WORDS = 60  # characters of a launch's words in the list
FRAME_LINES = 3  # of the page: the summary, the columns' names, the last line


class RunRow(NamedTuple):
    """One run.

    Attributes:
        path: without links.
        metrics: final ones by name, such as `val.refined.abs_rel`; of a running run the latest.
        state: a state of `status.json`, or DAMAGED.
        reason: why it failed or was killed, or what is damaged.
        started, ended: seconds since the epoch; 0 where unknown.
        bytes: size of its files on disk.
        tags, note, archived: see `Labels`.
        words: the KEY VALUE words and arguments of its launch.
        is_complete: False where something could not be read, which may be readable again later
            without any change in its folders, such as a file on a disk that was away.
    """

    path: str
    metrics: Mapping[str, float]
    state: str
    reason: str
    started: float = 0
    ended: float = 0
    bytes: int = 0
    commit: str = ""
    seed: int | None = None
    tags: Sequence[str] = ()
    note: str = ""
    archived: bool = False
    words: str = ""
    is_complete: bool = True

    @property
    def parts(self) -> list[str]:
        """The last parts of its path, from `RUN.NAME` on: name and id, or those in a study."""
        return parts_of(self.path)

    @property
    def name(self) -> str:
        """`RUN.NAME`, which is the name of the folder of its run or study."""
        return self.parts[0]

    @property
    def title(self) -> str:
        """The last parts of its path: `name/id`, or `name/study/trials/0003`."""
        return "/".join(self.parts)

    @property
    def shown_state(self) -> str:
        """Its state; a trial that the search stopped is not called killed."""
        is_pruned = self.state == "killed" and self.reason.startswith(PRUNED)
        return "pruned" if is_pruned else self.state

    def facts(self) -> dict[str, Any]:
        """The row for programs, as docs/commands.md describes it; None where a fact is unknown."""
        unknown = {name: getattr(self, name) or None for name in ("started", "ended", "commit")}
        facts = self._asdict() | unknown | {"name": self.name, "title": self.title}
        del facts["is_complete"]
        return facts


def parts_of(path: str) -> list[str]:
    """The last parts of a run's path, see `RunRow.parts`."""
    parts = path.split("/")
    if len(parts) > 3 and parts[-2] == "trials":
        return parts[-4:]
    return parts[-3:] if parts[-1] == "best" else parts[-2:]


def read_row(path: str, patterns: Sequence[str] = ()) -> RunRow:
    """Read a run. A damaged one gets the state DAMAGED, and its labels where they can be read."""
    labels = Labels()
    try:
        labels = read_labels(Path(path))
        facts = read_facts(RunDir(Path(path)), patterns)
    except Exception as error:  # whatever is in its files, the other runs are listed
        facts = {"metrics": {}, "state": DAMAGED, "reason": damage(error), "is_complete": False}
    return RunRow(
        path=path,
        bytes=bytes_on_disk(path),
        tags=list(labels.tags),
        note=labels.note,
        archived=labels.archived,
        **facts,
    )


def read_facts(run: RunDir, patterns: Sequence[str]) -> dict[str, Any]:
    """The row of a run without labels and size. Raises where a document is damaged."""
    from zoerefine.lab.runs.group_key import recorded_words

    recorded, status = run.recorded(), run.status()
    metrics, is_complete = final_metrics(run, recorded, status.state, patterns)
    seed = seed_of(recorded)
    words = (*recorded_words(recorded, "overrides"), *recorded_words(recorded, "arguments"))
    return {
        "metrics": metrics,
        "state": status.state,
        "reason": status.reason,
        "started": status.started,
        "ended": status.ended,
        "commit": str(recorded.get("commit") or ""),
        "seed": seed if isinstance(seed, int) else None,
        "words": " ".join(words),
        "is_complete": is_complete,
    }


def final_metrics(
    run: RunDir, recorded: dict[str, Any], state: str, patterns: Sequence[str] = ()
) -> tuple[dict[str, float], bool]:
    """The metrics by name, and whether no file of them was closed to us.

    They are those of the splits, not of scenes; of a script, all of them.
    """
    from zoerefine.lab.runs.metrics import read_metrics
    from zoerefine.lab.runs.metrics.find_files import find_files
    from zoerefine.lab.runs.read import is_foreign, kept
    from zoerefine.lab.runs.record import finite_number

    is_complete = True
    if state == RUNNING or is_foreign(run, recorded):
        metrics = read_metrics(run, patterns)
        found: dict[str, Any] = kept(metrics.final)
        is_complete = not metrics.faults or all(
            os.access(path, os.R_OK) for path in find_files(run.path)
        )
    else:
        found = split_metrics(run)
    numbers = ((name, finite_number(value)) for name, value in found.items())
    return {name: number for name, number in numbers if number is not None}, is_complete


def split_metrics(run: RunDir) -> dict[str, Any]:
    """What `results.json` holds of the validation and test scenes together.

    Raises `UserError` where something is not a mapping that should be one.
    """
    from zoerefine.base.yaml.keys import flatten

    results = run.document(run.results_file)
    found: dict[str, Any] = {}
    for split in ("val", "test"):
        metrics = results.get(split, {})
        for which in ("refined", "pseudo"):
            values = metrics.get(which, {}) if isinstance(metrics, dict) else None
            if not isinstance(values, dict):
                raise UserError(f"{run.results_file} is damaged: {split} has no metrics by name")
            found |= flatten(values, prefix=f"{split}.{which}")
    return found


def current_row(row: RunRow) -> RunRow:
    """The row with its state of now: a kill changes no file."""
    if row.state != RUNNING:
        return row
    status = RunDir(Path(row.path)).status()
    return row._replace(state=status.state, reason=status.reason)


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
    setting = row.words if len(row.words) <= MOST_WORDS else f"{row.words[: MOST_WORDS - 1]}…"
    words = [row.title, setting, *(f"[{tag}]" for tag in row.tags), row.note]
    if row.state in ("failed", "damaged"):
        words.append(row.reason)
    text = " ".join(" ".join(filter(None, words)).split())
    shown = "" if value is None else f"{value:.4g}"
    line = f"{row.shown_state:<8}  {started:<16}  {shown_size(row.bytes):>8}  {shown:>9}  {text}"
    return line if line.isprintable() else visible(line)


def summary(rows: list[RunRow]) -> str:
    """How many runs in which states, and their size."""
    states = [row.shown_state for row in rows]
    counts = ", ".join(f"{states.count(state):,} {state}" for state in dict.fromkeys(states))
    runs = counted(len(rows), "run")
    return f"{runs}{f' ({counts})' if counts else ''}, {shown_size(sum(r.bytes for r in rows))}"


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
