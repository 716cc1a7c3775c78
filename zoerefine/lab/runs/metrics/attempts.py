"""Which logs are of several attempts of one script, and how these continue each other.

A log's lasting place is its path without what differs each time a script starts, and on each
machine.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from zoerefine.lab.runs.metrics.find_files import EVENT_FILES
from zoerefine.lab.runs.metrics.metric_log import Kind, MetricLog
from zoerefine.lab.runs.metrics.steps import Points, discard_after

DAY, MONTH, YEAR = r"(?:[12]\d|3[01]|0?[1-9])", r"(?:1[0-2]|0?[1-9])", r"(?:19|20)\d\d"
MMDD = r"(?:1[0-2]|0[1-9])(?:[12]\d|3[01]|0[1-9])"
CLOCK = r"(?:\d\d?[-_.:h]\d\d?[-_.:m]\d\d?s?|\d\d[-_.:h]\d\d|\d{6})(?:\.\d{3,9}|[-_]\d{6})?"
NAMED_DATE = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)\d\d?_\d\d-\d\d-\d\d"
# A date, with or without the time of day, or seconds since 1970, anywhere in a name.
TIME = re.compile(
    rf"""(?<![\d.]) (?:
      (?: {YEAR} (?P<a>[-_.]) {MONTH} (?P=a) {DAY}  # 2026-01-31
        | {DAY} (?P<b>[-_.]) {MONTH} (?P=b) {YEAR} | {MONTH} (?P<c>[-_.]) {DAY} (?P=c) {YEAR}
        | {YEAR} {MMDD}  # 20260131
      ) (?: [-_T\ ,.@]+ {CLOCK} | \d{{6}})?
      | \d\d {MMDD} [-_T] \d{{6}}  # 260131_123456
      | 1[4-9]\d{{8}} (?: \.\d+ | \d{{3}})?
    ) (?!\d) | {NAMED_DATE} (?!\d)  # Jan31_12-34-56: TensorBoard's""",
    re.IGNORECASE | re.VERBOSE,
)
# Parts of a path that differ each time a script starts: version_3, attempt-2, a time, also without
# the year (Hydra: 12-34-56). And runs of W&B, and the checkpoints of Hugging Face's Trainer.
EACH_TIME = re.compile(
    rf"""version_\d+ | attempt\W?\d+ | checkpoint-\d+ | (?:offline-)?run-\d{{8}}_\d{{6}}-\w+
    | [-_.]* (?:{TIME.pattern}
    ) [-_.]* | (?:[01]\d|2[0-3])(?:-[0-5]\d){{2}}
    | (?:{MMDD} | {MONTH} [-_.] {DAY}) [-_] {CLOCK}""",
    re.IGNORECASE | re.VERBOSE,
)
NUMBERED_FOLDER = re.compile(r"^(exp|train)\d+$")  # of each start of YOLO
MACHINE = re.compile(rf"{NAMED_DATE}_([^/]*)", re.IGNORECASE)  # and a comment behind it


def lasting_place(place: str) -> str:
    """A place without what differs each time a script starts."""
    parts = (part for part in Path(place).parts if not EACH_TIME.fullmatch(part))
    lasting = (NUMBERED_FOLDER.sub(r"\1", TIME.sub("time", part)) for part in parts)
    return str(PurePosixPath(*lasting))


def place_on_any_machine(log: MetricLog) -> str:
    """A log's place without the machine's name, which TensorBoard puts into a folder's.

    The name of the event file has it, too: `events.out.tfevents.<time>.<machine>.<process>.0`.
    """
    found = MACHINE.search(log.place)
    if found is None or log.kind is not Kind.EVENTS:
        return log.place
    machine = next(iter(log.path.glob(EVENT_FILES))).name.split(".", 4)[-1]
    same = len(os.path.commonprefix([found[1], machine]))  # noqa: RUF071
    return log.place[: found.start(1)] + log.place[found.start(1) + same :]


def named_points(
    logs: Sequence[MetricLog], restarted: float
) -> Iterator[tuple[str, Points, float | None]]:
    """The metrics of logs of one kind, and the final values that were reported beside them.

    Those of equal name are told apart by their folders. Logs whose places differ only in a time or
    version continue each other; where the job was started again, the first log of that attempt
    from its first step on.

    Args:
        restarted: when it was, in seconds since the epoch; 0 where it was not.
    """
    if restarted:
        logs = sorted(logs, key=lambda log: not log.is_before(restarted))
    found: dict[str, dict[str, Points]] = {}
    ends: dict[tuple[str, str], float | None] = {}
    later: set[tuple[str, str]] = set()
    places_of = [lasting_place(place_on_any_machine(log)) for log in logs]
    restarts = {
        (place, name)
        for place, log in zip(places_of, logs, strict=True)
        for name, one in log.counted.items()
        if one.restarts
    }
    for place, log in zip(places_of, logs, strict=True):
        for name, points in log.points.items():
            if (place, name) in restarts:  # also where this log is of one epoch
                points = log.counted[name].by_coarse or points
            if not points or name in log.repeated:  # or discarded, or damaged
                continue
            ends[name, place] = log.reported.get(name)
            known = found.setdefault(name, {}).setdefault(place, {})
            if restarted and (name, place) not in later and not log.is_before(restarted):
                later.add((name, place))
                discard_after(known, min(points))
            known.update(points)
    for name, places in found.items():
        first = next(iter(places.values()))
        if logs[0].kind is Kind.DOCUMENT and all(points == first for points in places.values()):
            places = {"": first}  # all_results.json repeats what others state
        common = os.path.commonpath(places)
        for place, points in places.items():
            inner = PurePosixPath(place).relative_to(common)
            full = str(inner / name) if inner.parts and len(places) > 1 else name
            yield full, points, ends.get((name, place))
