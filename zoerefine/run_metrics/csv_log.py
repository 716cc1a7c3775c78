"""CSV logs: a header, a column that counts steps, and columns of numbers."""

import csv
import io
from dataclasses import dataclass
from math import isnan

from zoerefine.run_metrics.series import STEP_NAMES, Kind, MetricLog, parse_number

MAX_BYTES = 64 * 2**20  # a larger file is data, not a log
CSV_SUFFIXES = {".csv", ".tsv"}
DELIMITERS = ",;\t"


@dataclass
class CsvLog(MetricLog):
    """A CSV file. It is read again whenever it has changed, since many scripts write it anew.

    Attributes:
        has_steps: whether a column counts steps; otherwise a row's number, from 1, is its step.
    """

    has_steps: bool = False
    stamp: tuple[int, ...] = ()

    @property
    def kind(self) -> Kind:
        return Kind.TABLE if self.has_steps else Kind.LOOSE_TABLE

    def update(self, ended: bool) -> None:
        """Read the file if it has changed."""
        status = self.path.stat()
        stamp = (status.st_size, status.st_mtime_ns, status.st_ino, ended)
        if stamp == self.stamp:
            return
        self.stamp, self.points, self.faults = stamp, {}, {}
        if status.st_size > MAX_BYTES:
            self.faults["size"] = f"larger than {MAX_BYTES >> 20} MiB, so it is not read"
            return
        text = self.path.read_text(encoding="utf-8-sig", errors="replace")
        complete = text if ended else text[: text.rfind("\n") + 1]
        try:
            self._read(complete)
        except csv.Error as error:
            self.faults["row"] = f"not a valid CSV file: {error}"

    def _read(self, text: str) -> None:
        head = text.partition("\n")[0]
        rows = csv.DictReader(io.StringIO(text), delimiter=max(DELIMITERS, key=head.count))
        columns = {name: name.strip() for name in rows.fieldnames or []}
        if any(parse_number(name) is not None for name in columns.values()):
            return  # the first row is no header
        counters = {name.lower(): column for column, name in columns.items()}
        counter = next((counters[name] for name in STEP_NAMES if name in counters), None)
        self.has_steps = counter is not None
        metrics = {
            c: name for c, name in columns.items() if name and name.lower() not in STEP_NAMES
        }
        for number, row in enumerate(rows, 1):
            step = number if counter is None else parse_number(row[counter] or "")
            if step is None or isnan(step):
                continue
            for column, name in metrics.items():
                value = parse_number(row[column] or "")
                if value is not None:
                    self.add(name, step, value)
