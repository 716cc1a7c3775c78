"""What an analysis compares: AbsRel of refined depth, or any metric of any runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from zoerefine.base.registries import SELECTION_METRIC
from zoerefine.lab.analysis.group_names import shortened
from zoerefine.lab.runs.record import Curve, Run


@dataclass(frozen=True)
class Measure:
    """A number of each run, and its curve.

    Attributes:
        split: the scenes that AbsRel is compared on: `val` or `test`.
        metric: the name of another metric, whose final value is compared; empty: AbsRel.
        maximize: whether higher is better.
    """

    split: str = "val"
    metric: str = ""
    maximize: bool = False

    @property
    def label(self) -> str:
        """Its name in texts."""
        return shortened(self.metric) or "AbsRel"

    @property
    def better(self) -> str:
        """`lower` or `higher`."""
        return "higher" if self.maximize else "lower"

    @property
    def sign(self) -> int:
        """A score times its sign is lower where it is better."""
        return -1 if self.maximize else 1

    @property
    def place(self) -> str:
        """What it was measured on, in texts; empty for a metric whose meaning is not known."""
        if self.metric:
            return ""
        return "test scenes" if self.split == "test" else "validation scenes"

    @property
    def on_place(self) -> str:
        """` on the test scenes`, where that is known."""
        return f" on the {self.place}" if self.place else ""

    def score(self, run: Run) -> float | None:
        """A run's final value; None where it has none, or it is not finite."""
        if self.metric:
            return run.final(self.metric)
        return run.metric(self.split, "refined", SELECTION_METRIC)

    def pseudo(self, run: Run) -> float | None:
        """The same of the pseudo depth itself."""
        return None if self.metric else run.metric(self.split, "pseudo", SELECTION_METRIC)

    def scenes(self, run: Run, which: str = "refined") -> dict[str, float]:
        """The final value by scene, of the refined or of the pseudo depth."""
        return {} if self.metric else run.scenes(self.split, which, SELECTION_METRIC)

    def curve(self, run: Run) -> Curve | None:
        """The values while training."""
        return run.curves.get(self.metric) if self.metric else run.curve


def choose_measure(runs: Sequence[Run]) -> Measure:
    """AbsRel, on `test` where every run with a finite AbsRel was tested, else on `val`."""
    val, test = Measure("val"), Measure("test")
    tested = [run for run in runs if test.score(run) is not None]
    only_val = [run for run in runs if test.score(run) is None and val.score(run) is not None]
    return test if tested and not only_val else val
