"""Text logs that another process may be writing: each line is read once."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from zoerefine.run_metrics.series import MetricLog

LONGEST_LINE = 2**20  # bytes; a longer one is read in parts


@dataclass
class LineReader:
    """Reads what was appended to a file since the last time; all of it where it became shorter.

    Attributes:
        number: the number of the last line that was read, from 1.
    """

    path: Path
    number: int = 0
    offset: int = 0

    def new_lines(self, ended: bool) -> Iterator[str]:
        """The complete new lines, with their ends.

        Args:
            ended: a last line without its end is complete, too.
        """
        with open(self.path, "rb") as file:
            if file.seek(0, 2) < self.offset:
                self.number = self.offset = 0
            file.seek(self.offset)
            while line := file.readline(LONGEST_LINE):
                if not line.endswith(b"\n") and not ended and len(line) < LONGEST_LINE:
                    return
                self.offset += len(line)
                self.number += 1
                yield line.decode("utf-8", "replace")


@dataclass
class LineLog(MetricLog):
    """A log that is read line by line."""

    reader: LineReader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = LineReader(self.path)
