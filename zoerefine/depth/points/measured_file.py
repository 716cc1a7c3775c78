"""Distances in a room that were measured once, as a CSV file, which is read and changed.

A file has the columns frame, x, y and metres: the depth of a pixel along the camera's axis. With
`ray` in the column along, metres is the distance from the camera, as of a tape measure. With the
columns x2 and y2 filled in, it is the distance between two pixels. Both need the camera's
intrinsics. Further columns are ignored, and kept.

Importing this file does not import torch.
"""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import write_text
from zoerefine.base.messages import one_line
from zoerefine.depth.data.layouts.csv_table import CsvTable, Row, number_of
from zoerefine.depth.data.metric_points import FARTHEST_POINT_M, refuse_shares

NEEDED, SECOND, ALONG = ("frame", "x", "y", "metres"), ("x2", "y2"), "along"
AXIS, RAY = "axis", "ray"  # values of the column along; empty is axis
MOST = 1000  # measurements of a room: the effort grows with the third power


@dataclass(frozen=True)
class Measured:
    """A line of the file.

    Attributes:
        frame: the name of a picture, without its suffix.
        x, y: a pixel of it; whole numbers are the pixels' centres.
        metres: its depth along the camera's axis or its ray, or the distance to `second`.
        second: x and y of another pixel of the frame.
        along_ray: whether metres is the distance from the camera.
        where: the file and the line, for messages.
    """

    frame: str
    x: float
    y: float
    metres: float
    second: tuple[float, float] | None
    where: str
    along_ray: bool = False

    @property
    def pixels(self) -> list[tuple[float, float]]:
        """Its one or two pixels."""
        return [(self.x, self.y), *([self.second] if self.second else [])]


@dataclass(frozen=True)
class MeasuredFile:
    """A file of measurements, as it was read or will be written.

    Attributes:
        columns: their names, in order.
        rows: the texts of each line.
        lines: the same as measurements.
    """

    path: Path
    columns: list[str]
    rows: list[Row]
    lines: list[Measured]

    @classmethod
    def read(cls, path: Path) -> "MeasuredFile":
        """A file; one that does not exist has no measurements.

        Raises `UserError`, with the line, for what is no measurement.
        """
        if not path.exists():
            return cls(path, list(NEEDED), [], [])
        table = CsvTable(path, NEEDED, (*SECOND, ALONG), rewritten=True)
        rows, lines = [], []
        seen: dict[object, int] = {}
        for number, row in table:
            line = measured(row, f"{path} line {number}")
            same = line.frame, frozenset(line.pixels), line.metres, line.along_ray
            if (first := seen.setdefault(same, number)) != number:
                raise UserError(f"{line.where} is the same as line {first}: remove one")
            rows.append(row)
            lines.append(line)
        if len(rows) > MOST:
            raise UserError(f"{path} has {len(rows)} measurements, more than {MOST}: remove some")
        refuse_shares([one.x for one in lines], [one.y for one in lines], str(path))
        return cls(path, table.columns, rows, lines)

    def added(self, row: Row) -> "MeasuredFile":
        """With one more line, in the place of one of the same pixel or pixels.

        Raises `UserError` for what is no measurement.
        """
        new = measured(row, f"frame {row.get('frame')}")
        same = [number for number, line in enumerate(self.lines)
                if line.frame == new.frame and {*line.pixels} == {*new.pixels}]  # fmt: skip
        kept = self.without(*same)
        columns = [*kept.columns, *(name for name in row if row[name] and name not in kept.columns)]
        return MeasuredFile(self.path, columns, [*kept.rows, row], [*kept.lines, new])

    def without(self, *numbers: int) -> "MeasuredFile":
        """Without the lines of these numbers, counted from 0."""
        kept = [number for number in range(len(self.rows)) if number not in numbers]
        rows = [self.rows[number] for number in kept]
        lines = [self.lines[number] for number in kept]
        return MeasuredFile(self.path, self.columns, rows, lines)

    def save(self) -> None:
        """Write the file; a reader sees the old one or the new one."""
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self.columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_text(self.path, text.getvalue())


def read_measured(path: Path) -> list[Measured]:
    """The measurements in a file. Raises `UserError`, with the line, for what is none."""
    if not path.exists():
        raise UserError(f"there is no file {path}")
    found = MeasuredFile.read(path).lines
    if not found:
        raise UserError(f"{path} has no measurements: add lines of frame, x, y, metres")
    return found


def measured(row: Row, where: str) -> Measured:
    """A line. Raises `UserError` for one that is no measurement."""
    x, y, metres = (number_of(row, name, where) for name in NEEDED[1:])
    if not row["frame"]:
        raise UserError(f"{where} names no frame")
    if not 0 < metres <= FARTHEST_POINT_M:
        raise UserError(
            f"{where}: metres must be above 0 and at most {FARTHEST_POINT_M:g}, got {metres:g}; "
            "centimetres and millimetres are not converted"
        )
    given = [bool(row.get(name)) for name in SECOND]
    if any(given) and not all(given):
        raise UserError(f"{where}: a distance between two pixels needs both x2 and y2")
    second = (number_of(row, "x2", where), number_of(row, "y2", where)) if all(given) else None
    if second == (x, y):
        raise UserError(f"{where}: a distance needs two different pixels")
    along = row.get(ALONG) or AXIS
    if along not in (AXIS, RAY) or (along == RAY and second):
        raise UserError(
            f"{where}: along must be {AXIS} or {RAY}, and empty for a distance between two pixels; "
            f"got {one_line(along)!r}"
        )
    return Measured(row["frame"], x, y, metres, second, where, along == RAY)
