"""A CSV file whose first line names its columns: a list of frames, or of measurements."""

import csv
import io
import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from zoerefine.base.errors import UserError, number
from zoerefine.base.messages import one_line
from zoerefine.depth.data.layouts.recordings import read_text

Row = dict[str, str]


class CsvTable:
    """The lines of a file, read one after the other: each with its number, and its texts by column.

    Args:
        needed: columns that it must have.
        optional: others that are read. Further ones are ignored.
        rewritten: whether it will be written again: then no column at all may be there twice.

    Attributes:
        columns: their names, in order.

    Raises `UserError`, with the line, for a file that is no such table.
    """

    def __init__(
        self,
        path: Path,
        needed: Collection[str],
        optional: Collection[str],
        rewritten: bool = False,
    ) -> None:
        self.path, known = path, {*needed, *optional}
        self.reader = csv.DictReader(io.StringIO(read_text(path), newline=""), restval="")
        with self.naming_line():
            self.columns = list(self.reader.fieldnames or ())
        if missing := [name for name in needed if name not in self.columns]:
            hint = "; separate columns by commas" if len(self.columns) == 1 else ""
            raise UserError(f"{path} line 1 has no column {', '.join(missing)}: add it{hint}")
        for name in self.columns:
            if self.columns.count(name) > 1 and (rewritten or name in known):
                raise UserError(f"{path} line 1 has two columns {name!r}: remove one")
            meant = name.strip().lower()
            if name not in known and meant in known:  # what it says would be ignored
                raise UserError(f"{path} line 1 has a column {name!r}: write {meant!r}")

    def __iter__(self) -> Iterator[tuple[int, Row]]:
        with self.naming_line():
            for row in self.reader:
                line = self.reader.line_num
                if None in row:
                    raise UserError(
                        f"{self.path} line {line} has more values than columns: write a decimal "
                        "point, not a comma"
                    )
                yield line, row

    @contextmanager
    def naming_line(self) -> Iterator[None]:
        """Raises `UserError`, with the line, where the reader finds no CSV."""
        try:
            yield
        except csv.Error as error:
            line = self.reader.reader.line_num
            raise UserError(f"{self.path} line {line} is no CSV ({error})") from None


def number_of(row: Row, name: str, where: str) -> float:
    """A finite number of a line. Raises `UserError` for anything else."""
    text = row.get(name) or ""
    try:
        value = number(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{where}: {name} must be a number, got {one_line(text)!r}")
    return value
