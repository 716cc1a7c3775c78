"""TensorBoard's event files: metrics over steps, and hyper-parameters."""

from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG
from typing import Any

import numpy as np

from zoerefine.lab.runs.metrics import event_bytes
from zoerefine.lab.runs.metrics.find_files import EVENT_FILES, natural_order
from zoerefine.lab.runs.metrics.metric_log import Kind, MetricLog
from zoerefine.lab.runs.metrics.steps import as_number

ALWAYS_CHECKED = 1024  # bytes of a record


@dataclass
class EventLog(MetricLog):
    """All event files of one folder, in the order of their names, which contain a time.

    Attributes:
        after: seconds since the epoch; files that were not written later are left out.
        restarted: when the job was started again, in seconds since the epoch; 0: not known.
        offsets: how far each file was read.
    """

    kind: Kind = Kind.EVENTS
    after: float = 0.0
    restarted: float = 0.0
    offsets: dict[str, int] = field(default_factory=dict)

    def update(self, ended: bool) -> None:
        """Read the records that were added."""
        files = sorted(self.path.glob(EVENT_FILES), key=lambda path: natural_order(path.name))
        for path in files:
            status = path.lstat()
            has_more = status.st_size > self.offsets.get(path.name, 0)
            if S_ISREG(status.st_mode) and status.st_mtime >= self.after and has_more:
                if self.restarted and status.st_mtime >= self.restarted:
                    self.restarted = 0.0
                    self.begin_attempt()
                self._read(path)

    def _read(self, path: Path) -> None:
        self.faults.pop(path.name, None)
        while True:
            records = event_bytes.read_records(path, self.offsets.get(path.name, 0))
            self.offsets[path.name] = records.offset
            damaged = self._add(records)
            if damaged or records.fault:
                self.faults[path.name] = records.fault or f"{damaged} damaged records left out"
            if records.is_last or records.fault:
                return

    def _add(self, records: event_bytes.Records) -> int:
        """Add the metrics of a part of a file; returns how many records are damaged."""
        groups = [read_group(records, *group) for group in records.by_length()]
        for group in groups:  # before the scalars, since it may discard those of earlier parts
            for event in group.events:
                self._add_event(event)
        for group in groups:
            for one in (one for one in group.scalars if len(one.steps)):
                self._add_scalars(one)
        return sum(group.damaged for group in groups)

    def _add_scalars(self, one: event_bytes.Scalars) -> None:
        """Add values of a tag, at once where their steps are new and only rise.

        Those of steps with as many bytes are in the order of the file.
        """
        steps = one.steps.tolist()
        values = np.where(np.isfinite(one.values), one.values, np.nan).tolist()
        points = self.points.setdefault(one.tag, {})
        is_rising = next(reversed(points), -np.inf) < steps[0] and (np.diff(one.steps) > 0).all()
        if is_rising and one.tag not in self.earlier and points.keys().isdisjoint(steps):
            points.update(zip(steps, values, strict=True))
            return
        for step, value in zip(steps, values, strict=True):
            self.add(one.tag, step, value)

    def _add_event(self, event: Any) -> None:
        """Add the metrics and hyper-parameters of an event of TensorBoard's own class."""
        if discards(event):
            for points in self.points.values():
                for step in [step for step in points if step >= event.step]:
                    del points[step]
        for value in event.summary.value:
            if is_hyperparameters(value):
                self.hyperparameters |= read_hyperparameters(value.metadata.plugin_data.content)
            elif (number := scalar_of(value)) is not None:
                self.add(value.tag, event.step, number)


@dataclass(frozen=True)
class Group:
    """What the records of one length hold, and how many of them are damaged."""

    scalars: list[event_bytes.Scalars]
    events: list[Any]
    damaged: int


def read_group(records: event_bytes.Records, length: int, starts: np.ndarray) -> Group:
    """Read the records of one length, and leave out those that do not match their CRC.

    Long records without a metric, such as histograms, are not checked, since that takes long.
    """
    rows = event_bytes.rows_of(records.data, starts, length + event_bytes.FOOTER_BYTES)
    data = rows[:, :length]
    scalars = list(event_bytes.find_scalars(data))
    is_scalar = np.zeros(len(starts), bool)
    for one in scalars:
        is_scalar[one.rows] = True
    events = {row: parse_event(data[row].tobytes()) for row in np.flatnonzero(~is_scalar)}
    holding = [row for row, event in events.items() if event is not None]
    is_checked = is_scalar | (length <= ALWAYS_CHECKED)
    is_checked[holding] = True
    sound = np.zeros(len(starts), bool)
    sound[is_checked] = event_bytes.are_sound(rows if is_checked.all() else rows[is_checked])
    return Group(
        [one.where(sound) for one in scalars],
        [events[row] for row in holding if sound[row]],
        int((~sound & is_checked).sum()),
    )


def parse_event(data: bytes) -> Any:
    """An event of TensorBoard's own class; None where it holds nothing for us.

    What is not an event becomes an empty one: its CRC shows whether it is damaged.
    """
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    try:
        event = Event.FromString(data)
    except DecodeError:
        return Event()
    wanted = discards(event) or any(
        is_hyperparameters(value) or scalar_of(value) is not None for value in event.summary.value
    )
    return event if wanted else None


def discards(event: Any) -> bool:
    """Whether a resumed job will log the event's step and later ones again (`purge_step`)."""
    return event.session_log.status == event.session_log.START


def scalar_of(value: Any) -> float | None:
    """The number of a summary's value; None if it holds something else."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return as_number(value.simple_value)
    if kind != "tensor":
        return None
    from tensorboard.util.tensor_util import make_ndarray

    try:
        array = make_ndarray(value.tensor)
    except (TypeError, ValueError):
        return None
    return as_number(array.item()) if array.size == 1 and array.dtype.kind in "fiu" else None


def is_hyperparameters(value: Any) -> bool:
    """Whether a summary's value belongs to TensorBoard's HParams plugin."""
    return value.metadata.plugin_data.plugin_name == "hparams"


def read_hyperparameters(content: bytes) -> dict[str, Any]:
    """The hyper-parameters of a session; empty where the plugin's data are others or damaged.

    TensorBoard stores every number as a double: whole ones are read as integers.
    """
    from google.protobuf.message import DecodeError
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    try:
        session = HParamsPluginData.FromString(content).session_start_info
    except DecodeError:
        return {}
    values = {
        name: getattr(v, v.WhichOneof("kind") or "", None) for name, v in session.hparams.items()
    }
    return {name: whole(value) for name, value in values.items()}


def whole(value: Any) -> Any:
    """A float without a fraction as an integer; any other value as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
