"""The stores of other trackers that a script left: MLflow's folder or database, logs of W&B."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoerefine.base.errors import damage
from zoerefine.lab.runs.metrics.series import Kind, MetricLog, Series
from zoerefine.lab.runs.trackers.stores import TrackerStore, load_tracker

EXPERIMENT_FILE, WANDB_SUFFIX = "meta.yaml", ".wandb"


@dataclass(kw_only=True)
class StoreLog(MetricLog):
    """A store, read again whenever it has changed.

    Of several runs in it the last one counts. Where a metric goes on at the step at which an
    earlier run has ended, as after a resume, it has the values of both.
    """

    store: TrackerStore
    stamps: list[list[Any]] = field(default_factory=list)

    @property
    def kind(self) -> Kind:
        return Kind.STORES

    def update(self, ended: bool) -> None:
        """Read the store if it has changed."""
        stamps = self.store.stamps()
        if stamps == self.stamps:
            return
        self.stamps, self.points, self.finals, self.faults = stamps, {}, {}, {}
        try:
            stored = self.store.read(None)
        except Exception as error:  # whatever is in its files, other logs are read
            self.faults["store"] = damage(error)
            return
        self.faults |= stored.left_out
        for run in stored.runs:
            for name, series in run.series.items():
                self._continue(name, series)
            self.finals |= run.finals
            self.hyperparameters |= run.settings
            self.faults |= {fault: fault for fault in run.faults}

    def _continue(self, name: str, series: Series) -> None:
        """Take a metric of a later run. What began again replaces what was there."""
        known = self.points.get(name, {})
        begins_again = bool(known and series.steps) and series.steps[0] <= min(known)
        values = dict(zip(series.steps, series.values, strict=True))
        self.points[name] = values if begins_again else known | values


def find_store(path: Path) -> TrackerStore | None:
    """The store that a file shows to be there; None for another file."""
    if path.suffix == WANDB_SUFFIX:
        return TrackerStore("wandb", path.parent)
    is_folder = path.name == EXPERIMENT_FILE
    is_mlflow = load_tracker("mlflow").holds_runs(path.parent if is_folder else path)
    place = path.parent.parent if is_folder else path
    return TrackerStore("mlflow", place) if is_mlflow else None
