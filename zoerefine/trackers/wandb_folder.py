"""W&B: the folder of a run, `wandb/offline-run-*` or `wandb/run-*`, with its `.wandb` file."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoerefine.errors import UserError
from zoerefine.run_metrics.series import STEP_NAMES, Points, as_number, as_series
from zoerefine.trackers.tracked_run import INSTALL, Stored, TrackedRun
from zoerefine.trackers.wandb_log import WandbLog
from zoerefine.trees import flatten

LOG_FILES = "run-*.wandb"
OWN_STEP = "_step"  # W&B counts the calls of `log`


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
    os.environ["WANDB_MODE"] = "offline"
    os.environ["WANDB_ERROR_REPORTING"] = "false"
    try:
        from wandb.proto.wandb_internal_pb2 import Record
    except ImportError:
        raise UserError(f"reading runs of W&B needs wandb: {INSTALL}") from None
    return Record


@dataclass
class WandbFacts:
    """What the records of a log say, one after the other."""

    name: str = ""
    commit: str = ""
    exit_code: int | None = None
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    points: dict[str, Points] = field(default_factory=dict)

    def add(self, record: Any) -> None:
        """Take what a record says; most kinds of records say nothing for us."""
        kind = record.WhichOneof("record_type")
        if kind == "run":
            self.name = record.run.display_name
            self.commit = record.run.git.commit or self.commit
            update(self.config, record.run.config)
        elif kind == "config":
            update(self.config, record.config)
        elif kind == "summary":
            update(self.summary, record.summary)
        elif kind == "history":
            self._add_row({key_of(item): value_of(item) for item in record.history.item})
        elif kind == "environment":
            self.commit = record.environment.git.commit or self.commit
        elif kind == "exit":
            self.exit_code = record.exit.exit_code

    def _add_row(self, row: dict[str, Any]) -> None:
        numbers = {name: as_number(value) for name, value in flatten(row).items()}
        steps = (numbers.get(name) for name in (*STEP_NAMES, OWN_STEP))
        step = next((step for step in steps if step is not None and step == step), None)
        for name, value in metrics_in(numbers).items():
            if step is not None:
                self.points.setdefault(name, {})[step] = value

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
    if not known:
        raise UserError(f"{path} cannot be read: {log.fault or 'it has no record of a run'}")
    series = {name: as_series(points) for name, points in facts.points.items()}
    last = {name: one.values[-1] for name, one in series.items()}
    summary = {name: as_number(value) for name, value in flatten(facts.summary).items()}
    return TrackedRun(
        path=str(path.parent),
        name=facts.name,
        state=facts.state,
        settings={k: v for k, v in flatten(facts.config).items() if not k.startswith("_")},
        finals=last | metrics_in(summary),
        series=series,
        commit=facts.commit,
        faults=faults,
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
    """A value. Raises `ValueError` where it is not JSON."""
    return json.loads(item.value_json)


def metrics_in(numbers: dict[str, float | None]) -> dict[str, float]:
    """The numbers that are metrics: not W&B's own, whose names begin with `_`, and no steps."""
    found = numbers.items()
    return {k: v for k, v in found if v is not None and k[:1] != "_" and k not in STEP_NAMES}
