"""W&B: the folder of a run, `wandb/offline-run-*` or `wandb/run-*`, with its `.wandb` file."""

import json
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO

from zoerefine.base.errors import UserError, needed
from zoerefine.base.messages import counted
from zoerefine.base.yaml.keys import flatten
from zoerefine.lab.runs.group_key import GROUP, PROJECT, SCRIPT
from zoerefine.lab.runs.metrics.steps import STEP_NAMES, Points, Series, as_number, as_series
from zoerefine.lab.runs.trackers.stores import EXTRA, Stored, TrackedRun, environment

# The records in a `.wandb` file, which W&B writes in the format of LevelDB's logs.
#
# The file is a sequence of blocks. A block holds fragments: CRC-32 of type and data (uint32),
# length of the data (uint16), type (uint8), data; all little-endian. A record is one fragment, or
# several in a row. The first block begins with seven bytes of W&B's own.
# https://github.com/google/leveldb/blob/main/doc/log_format.md describes the format.

BLOCK_BYTES = 32 * 2**10
FILE_HEADER = struct.Struct("<4sHB")  # text, magic number, version
TEXT, MAGIC, VERSION = b":W&B", 0xBEE1, 0
HEADER = struct.Struct("<IHB")
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4


@dataclass
class WandbLog:
    """A `.wandb` file.

    Attributes:
        fault: what could not be read, as a sentence; complete after all records were read.
    """

    path: Path
    fault: str = ""

    def records(self) -> Iterator[bytes]:
        """The whole records. After damage, reading goes on in the next block."""
        parts: list[bytes] = []
        with open(self.path, "rb") as file:
            for kind, data in self._fragments(file):
                if kind in (WHOLE, FIRST):
                    parts = []
                elif not parts:  # its beginning is damaged
                    continue
                parts.append(data)
                if kind in (WHOLE, LAST):
                    yield b"".join(parts)
                    parts = []
        if parts:
            self.fault = self.fault or "its last record is cut off"

    def _fragments(self, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """Type and data of each fragment that matches its CRC."""
        start = FILE_HEADER.size
        head = file.read(start)
        if len(head) < start or FILE_HEADER.unpack(head) != (TEXT, MAGIC, VERSION):
            self.fault = "it is not a file of W&B in a known version"
            return
        file.seek(0)
        for number, block in enumerate(iter(lambda: file.read(BLOCK_BYTES), b"")):
            place = start if number == 0 else 0
            while place + HEADER.size <= len(block):
                crc, length, kind = HEADER.unpack_from(block, place)
                data = block[place + HEADER.size : place + HEADER.size + length]
                if kind == length == 0:  # the rest of the block is not used
                    break
                found = zlib.crc32(data, zlib.crc32(bytes([kind])))
                if not WHOLE <= kind <= LAST or len(data) < length or crc != found:
                    self.fault = f"damaged at byte {number * BLOCK_BYTES + place}"
                    break
                yield kind, data
                place += HEADER.size + length


LOG_FILES = "run-*.wandb"
OWN_STEP = "_step"  # W&B counts the calls of `log`
COUNTED = ""  # the rows of a metric, where no key counts them


def holds_runs(path: Path) -> bool:
    """Whether a folder has a run's log."""
    return next(path.glob(LOG_FILES), None) is not None


def read(path: Path, names: Sequence[str] | None) -> Stored:
    """The run; all its series are read, since its file holds them together."""
    record_class = import_record()
    runs = [read_log(log, record_class) for log in sorted(path.glob(LOG_FILES))]
    return Stored(runs)


def import_record() -> Any:
    """The class of W&B's records. Importing W&B contacts no server, and here it never may."""
    offline = environment(WANDB_MODE="offline", WANDB_ERROR_REPORTING="false")
    with needed("reading runs of W&B needs wandb", EXTRA), offline:
        from wandb.proto.wandb_internal_pb2 import Record
    return Record


@dataclass
class WandbFacts:
    """What the records of a log say, one after the other.

    Attributes:
        points: the values of each metric by each key of its rows that may count the steps.
        counts: how many rows have a metric.
        step_keys: the key that `define_metric` names for metrics of a name or glob.
    """

    name: str = ""
    places: dict[str, str] = field(default_factory=dict)
    commit: str = ""
    started: float = 0.0
    exit_code: int | None = None
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    points: dict[str, dict[str, Points]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    step_keys: dict[str, str] = field(default_factory=dict)
    rows: int = 0
    unreadable: set[str] = field(default_factory=set)

    def add(self, record: Any) -> None:
        """Take what a record says; most kinds of records say nothing for us."""
        kind = record.WhichOneof("record_type")
        if kind == "run":
            self.name = record.run.display_name
            self.places |= {PROJECT: record.run.project, GROUP: record.run.run_group}
            self.commit = record.run.git.commit or self.commit
            self.started = record.run.start_time.ToMicroseconds() / 1e6
            update(self.config, record.run.config)
        elif kind == "config":
            update(self.config, record.config)
        elif kind == "summary":
            update(self.summary, record.summary)
        elif kind == "history":
            self._add_row(record.history)
        elif kind == "metric" and record.metric.step_metric:
            glob = record.metric.glob_name or record.metric.name
            self.step_keys[glob] = record.metric.step_metric
        elif kind == "environment":
            self.commit = record.environment.git.commit or self.commit
            if program := record.environment.program:  # a later record lacks it
                self.places[SCRIPT] = Path(program).name
        elif kind == "exit":
            self.exit_code = record.exit.exit_code

    def _add_row(self, history: Any) -> None:
        self.rows += 1
        row = {}
        for item in history.item:
            try:
                row[key_of(item)] = value_of(item)
            except ValueError:
                self.unreadable.add(key_of(item))
        numbers = numbers_of(row)
        if history.HasField("step"):
            numbers.setdefault(OWN_STEP, float(history.step.num))
        keys = {*self.step_keys.values(), *STEP_NAMES, OWN_STEP} & numbers.keys()
        steps = {key: numbers[key] for key in keys}
        for name, value in metrics_in(numbers).items():
            self.counts[name] += 1
            for key, step in (steps | {COUNTED: float(self.counts[name])}).items():
                if step is not None and step == step:
                    self.points.setdefault(name, {}).setdefault(key, {})[step] = value

    def series(self) -> dict[str, Series]:
        """The metrics, each by the first key that has another value in each of its rows.

        A script may log the epoch with each batch: that does not count the batches.
        """
        names = [name for name in sorted(self.points) if name not in self.step_keys.values()]
        return {name: as_series(self._points_of(name)) for name in names}

    def _points_of(self, name: str) -> Points:
        defined = [key for glob, key in self.step_keys.items() if fnmatchcase(name, glob)]
        keys = [*reversed(defined), *STEP_NAMES, OWN_STEP, COUNTED]
        found = (self.points[name].get(key, {}) for key in keys)
        return next(points for points in found if len(points) == self.counts[name])

    def faults(self) -> list[str]:
        """What of the history could not be read."""
        found = []
        if self.unreadable:
            found.append(f"values that are not JSON: {', '.join(sorted(self.unreadable))}")
        if self.rows and not self.points:
            found.append(f"no number in its {counted(self.rows, 'row')} of history")
        return found

    @property
    def state(self) -> str:
        """A run without a record of its end counts as killed."""
        if self.exit_code is None:
            return "killed"
        return "failed" if self.exit_code else "finished"


def read_log(path: Path, record_class: Any) -> TrackedRun:
    """One run. Raises `UserError` where its file says nothing of a run."""
    from google.protobuf.message import DecodeError

    log, facts, faults = WandbLog(path), WandbFacts(), []
    known = False
    for data in log.records():
        try:
            record = record_class.FromString(data)
            known = known or record.WhichOneof("record_type") == "run"
            facts.add(record)
        except (DecodeError, ValueError, RecursionError):
            faults = [f"{path.name}: damaged records left out"]
    faults += [f"{path.name}: {log.fault}"] if log.fault else []
    faults += [f"{path.name}: {fault}" for fault in facts.faults()]
    if not known:
        raise UserError(f"{path} cannot be read: {log.fault or 'it has no record of a run'}")
    series = facts.series()
    last = {name: one.values[-1] for name, one in series.items()}
    finals = last | metrics_in(numbers_of(facts.summary))
    config = flatten(facts.config, keeps_empty=True)
    return TrackedRun(
        path=str(path.parent),
        name=facts.name,
        state=facts.state,
        settings={k: v for k, v in config.items() if not k.startswith("_wandb")},
        finals={k: v for k, v in finals.items() if k not in facts.step_keys.values()},
        series=series,
        commit=facts.commit,
        places=facts.places,
        started=facts.started,
        faults=faults,
        id=path.stem,  # its folder may be a copy of the link latest-run
    )


def update(tree: dict[str, Any], record: Any) -> None:
    """Apply a record's changes to the config or summary."""
    for item in record.update:
        tree[key_of(item)] = value_of(item)
    for item in record.remove:
        tree.pop(key_of(item), None)


def key_of(item: Any) -> str:
    """A key; the parts of a nested one are joined by dots."""
    return ".".join(item.nested_key) or item.key


def value_of(item: Any) -> Any:
    """A value: JSON, or in newer logs of a type of its own. Raises `ValueError` for other text."""
    kind = item.WhichOneof("value") if "value" in item.DESCRIPTOR.oneofs_by_name else None
    if kind in (None, "json"):
        return json.loads(item.json if kind else item.value_json)
    return None if kind == "none" else getattr(item, kind)


def numbers_of(tree: dict[str, Any]) -> dict[str, float | None]:
    """The leaves of a row or summary as numbers, without what describes tables and pictures."""
    leaves = flatten(tree)
    media = tuple(key.removesuffix("_type") for key in leaves if key.endswith("._type"))
    return {key: as_number(v) for key, v in leaves.items() if not key.startswith(media)}


def metrics_in(numbers: dict[str, float | None]) -> dict[str, float]:
    """The numbers that are metrics: not W&B's own, whose names begin with `_`, and no steps."""
    found = numbers.items()
    return {k: v for k, v in found if v is not None and k[:1] != "_" and k not in STEP_NAMES}
