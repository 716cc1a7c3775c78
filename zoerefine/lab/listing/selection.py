"""Which runs of a list are chosen, by --where and other options, and their order."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from glob import escape
from typing import Any

from zoerefine.base.errors import UserError, damage
from zoerefine.lab.listing.index import RunIndex
from zoerefine.lab.listing.table import RunRow
from zoerefine.lab.runs.filter import number_of, parse_filter
from zoerefine.lab.runs.record import finite_number

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
    """Numbers by size, such as the word 0.10 of a command, then everything else as text."""
    if isinstance(value, str) and (number := finite_number(number_of(value))) is not None:
        value = number
    is_number = isinstance(value, int | float)
    return not is_number, value if is_number else 0.0, "" if is_number else str(value)
