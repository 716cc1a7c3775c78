"""How long each case takes: every run notes it, and `durations.tsv` holds what it was.

    python -m tests.durations            prints the cases that grew by more than a third
    python -m tests.durations --write    writes what was noted to durations.tsv

Folders are dealt to the processes so that each has as much work. All of depth goes to one, since
its tests share what takes long to load and to build. Those that take long come first, so that what
a process takes over from another one at the end is short.
"""

import json
import statistics
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.tiers import exists

TABLE = Path(__file__).with_name("durations.tsv")
NOTED = "zoerefine/durations"  # in pytest's cache
HEAD = (
    "# seconds\tcase: the call of every case of a second or more, written by tests/durations.py\n"
)
SHORTEST_S = 1.0
SHORT_S = 0.07  # the mean of the cases that the table does not name
GROWN = 4 / 3


def pytest_configure(config):
    # A worker reports to the process that started it; `-p no:cacheprovider` leaves no place.
    if not hasattr(config, "workerinput") and config.pluginmanager.hasplugin("cacheprovider"):
        config.pluginmanager.register(Notes(config))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    known = read_table()
    by_file, by_folder, by_share = Counter(), Counter(), Counter()
    for item in items:
        for counter, part in ((by_file, item.path), (by_folder, item.path.parent),
                              (by_share, share_of(item))):  # fmt: skip
            counter[part] += known.get(item.nodeid, SHORT_S)
    place = deal(by_share, getattr(config, "workerinput", {}).get("workercount", 1))

    def place_of(item):
        folder = item.path.parent
        return place[share_of(item)], -by_folder[folder], str(folder), -by_file[item.path]

    items.sort(key=place_of)


def share_of(item):
    """What one process gets as a whole: a folder, or all of depth."""
    folders = item.nodeid.partition("::")[0].split("/")[:-1]
    return tuple(folders[:2] if "depth" in folders else folders)


def deal(by_share, processes):
    """The place of each share: its process, and its place among the shares of that process."""
    work, place = [0.0] * processes, {}
    for share, seconds in by_share.most_common():
        process = work.index(min(work))
        work[process] += seconds
        place[share] = process, len(place)
    return place


class Notes:
    """The seconds of a run's cases, added to those of earlier runs at its end."""

    def __init__(self, config):
        self.cache, self.seconds = config.cache, {}

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.seconds[report.nodeid] = round(report.duration, 1)

    def pytest_sessionfinish(self):
        self.cache.set(NOTED, self.cache.get(NOTED, {}) | self.seconds)


def read_table():
    """Seconds by case."""
    rows = (line.split("\t", 1) for line in TABLE.read_text().splitlines() if line[0] != "#")
    return {case: float(seconds) for seconds, case in rows}


def write_table(seconds):
    rows = sorted(seconds.items(), key=lambda row: (-row[1], row[0]))
    TABLE.write_text(HEAD + "".join(f"{s:.1f}\t{case}\n" for case, s in rows if s >= SHORTEST_S))


def grown(before, now):
    """Lines on cases that take longer than before, beyond what most do: machines differ."""
    pace = statistics.median([now[case] / before[case] for case in now if case in before] or [1.0])
    return [
        f"{seconds:6.1f} s, was {before.get(case, 0) * pace:.1f} s: {case}"
        for case, seconds in sorted(now.items(), key=lambda row: -row[1])
        if seconds / pace > max(GROWN * before.get(case, 0), 2 * SHORTEST_S)
    ]


if __name__ == "__main__":
    noted = json.loads((TABLE.parents[1] / ".pytest_cache/v" / NOTED).read_text())
    if sys.argv[1:] == ["--write"]:
        write_table({case: s for case, s in (read_table() | noted).items() if exists(case)})
    else:
        print(*grown(read_table(), noted), sep="\n")
