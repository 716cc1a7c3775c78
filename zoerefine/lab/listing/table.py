"""The list of runs: which are chosen, their order, and how they are printed."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from glob import escape
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from zoerefine.base.errors import UserError, damage, visible
from zoerefine.lab.listing.index import RunIndex
from zoerefine.lab.listing.row import RUNNING, RunRow
from zoerefine.lab.runs.filter import parse_filter

if TYPE_CHECKING:
    from rich.text import Text


COLUMNS: dict[str, Callable[[RunRow], Any]] = {
    "started": lambda row: row.started,
    "state": lambda row: row.state,
    "name": lambda row: row.title,
    "size": lambda row: row.bytes,
    "commit": lambda row: row.commit,
    "seed": lambda row: row.seed,
}
FIELDS: dict[str, Callable[[RunRow], Any]] = {  # of `--where`, beside metrics and config keys
    "state": lambda row: row.state,
    "seed": lambda row: row.seed,
    "commit": lambda row: row.commit or "unknown",
    "name": lambda row: row.name,
    "tags": lambda row: row.tags,
}

OWN_METRICS = ("val.refined.", "val.pseudo.", "test.refined.", "test.pseudo.")


@dataclass(frozen=True)
class Selection:
    """Which runs are listed. Empty fields select every run; archived runs are apart."""

    where: str = ""
    states: tuple[str, ...] = ()
    commit: str = ""
    name: str = ""
    tag: str = ""
    archived: bool = False

    @property
    def is_everything(self) -> bool:
        return self == Selection()


class FilterFields(Mapping[str, Any]):
    """The names that `--where` can use. A config key hides a metric of its name, as in analyses.

    Config keys are read only when one may be asked for.
    """

    def __init__(self, row: RunRow, index: RunIndex) -> None:
        self.row, self.index = row, index

    def __getitem__(self, key: str) -> Any:
        unknown = key == "seed" and self.row.seed is None
        if key in FIELDS and not (unknown and key in self._settings):  # a config's own `seed`
            return FIELDS[key](self.row)
        if key in self.row.metrics and (key.startswith(OWN_METRICS) or key not in self._settings):
            return self.row.metrics[key]
        return self._settings[key]

    def __contains__(self, key: object) -> bool:
        return key in FIELDS or key in self.row.metrics or key in self._settings

    def __iter__(self) -> Iterator[str]:
        return iter({**FIELDS, **self.row.metrics, **self._settings})

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @cached_property
    def _settings(self) -> dict[str, Any]:
        return self.index.settings(self.row.path)


def select(
    rows: list[RunRow], index: RunIndex, selection: Selection
) -> tuple[list[RunRow], dict[str, str]]:
    """The selected runs; and the paths that `--where` could not be applied to, with the reason.

    Raises `UserError` where the filter is no comparison.
    """
    keeps = parse_filter(selection.where) if selection.where else None
    if any(row.name == selection.name for row in rows):  # brackets in it are no choice of letters
        selection = replace(selection, name=escape(selection.name))
    chosen, left_out = [], {}
    for row in rows:
        if not matches_words(row, selection):
            continue
        try:
            if keeps is None or keeps(FilterFields(row, index)):
                chosen.append(row)
        except Exception as error:  # it has no such setting, or its config is damaged
            left_out[row.path] = damage(error)
    return chosen, left_out


def matches_words(row: RunRow, selection: Selection) -> bool:
    """Whether a run matches everything but `--where`."""
    return (
        row.archived == selection.archived
        and (not selection.states or row.state in selection.states)
        and row.commit.startswith(selection.commit)
        and (not selection.name or fnmatchcase(row.name, selection.name))
        and (not selection.tag or selection.tag in row.tags)
    )


def sort_rows(rows: list[RunRow], index: RunIndex, key: str, reverse: bool) -> list[RunRow]:
    """The runs by a column, a metric or a config key; those without a value come last.

    Raises `UserError` where no run has a value.
    """
    values = {row.path: value_of(row, index, key) for row in rows}
    known = [row for row in rows if values[row.path] is not None]
    if rows and not known:
        raise UserError(
            f"--sort {key}: no run has it; the columns are {', '.join(COLUMNS)}, and metrics and "
            "config keys can be given"
        )
    ordered = sorted(known, key=lambda row: sort_key(values[row.path]), reverse=reverse)
    return ordered + [row for row in rows if values[row.path] is None]


def value_of(row: RunRow, index: RunIndex, key: str) -> Any:
    """A column, a metric or a setting of a run; None where it has none."""
    if key in COLUMNS:
        return COLUMNS[key](row)
    try:
        return FilterFields(row, index).get(key)
    except Exception:  # its config is damaged: it comes last
        return None


def sort_key(value: Any) -> tuple[bool, float, str]:
    """Numbers by size, then everything else as text."""
    is_number = isinstance(value, int | float)
    return not is_number, value if is_number else 0.0, "" if is_number else str(value)


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
