"""How trials are judged, and what a trial's record in the study's database says.

A trial keeps its number, and so its run directory, when another worker continues it. Its user
attributes are:

    worker           name of the worker that runs it, or ran it last
    claim            id of that worker's claim; empty while the trial waits for a worker
    lost_claims      claims whose workers died
    figures          what was measured, by objective
    objectives_at_steps  where there are several objectives, their values at each step, None for
                     those that are not known before the end
    reason           why it was pruned or failed
    known_from       of a trial that ended in an earlier study: that study's id, its number there,
                     and its run directory
    duplicate_of     number of an earlier trial with the same values; a duplicate is not run
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from optuna import Study
from optuna.trial import FrozenTrial, TrialState

from zoerefine.base.run_dir import RunDir
from zoerefine.base.yaml.equal_values import number_text

TAKEN_FROM = "taken from "  # and an earlier study's id: an attribute of a study
OBJECTIVES_AT_STEPS = "objectives_at_steps"
STATE_WORDS = {
    "RUNNING": "running",
    "COMPLETE": "completed",
    "PRUNED": "pruned",
    "FAIL": "failed",
    "WAITING": "waiting",
}
SCRIPT_STUDY = "study.yaml"  # of a study whose trials are launches of a script


Direction = Literal["minimize", "maximize"]


@dataclass(frozen=True)
class Limit:
    """An upper bound on a figure."""

    name: str
    at_most: float


@dataclass(frozen=True)
class Criteria:
    """A study's objectives by name with their directions, and its limits."""

    directions: Mapping[str, Direction]
    limits: tuple[Limit, ...] = ()

    @property
    def objectives(self) -> tuple[str, ...]:
        """The objectives' names, in order."""
        return tuple(self.directions)

    @property
    def measured(self) -> set[str]:
        """Every figure that has to be measured."""
        return {*self.objectives, *(limit.name for limit in self.limits)}

    def excess(self, figures: Mapping[str, float]) -> dict[str, float]:
        """How far each limit is exceeded; 0 or less where it is kept."""
        return {
            limit.name: figures[limit.name] - limit.at_most
            for limit in self.limits
            if limit.name in figures
        }


def trial_run(study: RunDir, number: int) -> RunDir:
    """The run directory of a trial."""
    return RunDir(study.path / "trials" / f"{number:04d}")


def settings_file(study: RunDir) -> Path:
    """The file with a study's name, its STUDY and its SEARCH."""
    script = study.path / SCRIPT_STUDY
    return script if script.exists() else study.config_file


def without_duplicates(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials that count."""
    return [trial for trial in trials if not is_duplicate(trial)]


def is_duplicate(trial: FrozenTrial) -> bool:
    """Whether an earlier trial has the same values."""
    return "duplicate_of" in trial.user_attrs


def is_known(trial: FrozenTrial) -> bool:
    """Whether a trial was taken from an earlier study, where it ended."""
    return "known_from" in trial.user_attrs


def skipped_numbers(study: Study) -> int:
    """How many numbers of earlier studies have no trial in a study that knows their trials.

    Values follow from a trial's number: with these added, no trial repeats an earlier one.
    """
    taken = [one for key, one in study.user_attrs.items() if key.startswith(TAKEN_FROM)]
    return sum(one["numbers"] - len(one["known"]) for one in taken)


def longest_trial(trials: Sequence[FrozenTrial]) -> int:
    """The highest step that a completed trial has reported; 0 where none has."""
    completed = (one for one in trials if one.state == TrialState.COMPLETE)
    return max((max(values_at_steps(one), default=0) for one in completed), default=0)


def values_at_steps(trial: FrozenTrial) -> dict[int, float]:
    """The first objective at each step that a trial has reported."""
    kept = objectives_at_steps(trial)
    return {step: first for step, (first, *_) in kept.items()} or trial.intermediate_values


def objectives_at_steps(trial: FrozenTrial) -> dict[int, list[Any]]:
    """All objectives at each step that a trial of several objectives has reported, in order."""
    kept = trial.user_attrs.get(OBJECTIVES_AT_STEPS, {})
    return {int(step): values for step, values in kept.items()}


def is_as_good(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether values that are minimized are nowhere above others."""
    return all(mine <= theirs for mine, theirs in zip(one, other, strict=True))


def has_begun(trial: FrozenTrial) -> bool:
    """Whether a worker has had the trial; one that has not waits in the queue."""
    return trial.state != TrialState.WAITING or "claim" in trial.user_attrs


def is_claimed(trial: FrozenTrial) -> bool:
    """Whether a worker has the trial; a running one without a claim lost its worker at once."""
    return bool(trial.user_attrs.get("claim"))


def params_key(params: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    """A key that is the same for equal parameters, where 0.1 + 2 * 0.1 equals 0.3."""
    return frozenset(
        (name, float(f"{value:.12g}") if isinstance(value, float) else value)
        for name, value in params.items()
    )


def reason_of(trial: FrozenTrial) -> str:
    """Why a trial failed or was pruned."""
    return str(trial.user_attrs.get("reason", ""))


def exceeded_limits(trial: FrozenTrial) -> list[str]:
    """The objectives of a trial that exceed their limits."""
    return [name for name, excess in trial.constraints.items() if excess > 0]


def best_trials(study: Study) -> list[FrozenTrial]:
    """The best trial within the limits, or the Pareto front of several objectives."""
    front = [trial for trial in study.best_trials if not exceeded_limits(trial)]
    front.sort(key=lambda trial: (trial.values, trial.number))
    return front if len(study.directions) > 1 else front[:1]


def format_values(values: Mapping[str, Any]) -> str:
    """Parameters or figures on one line, e.g. `TRAIN.LR 0.003, MODEL.BASE 16`."""
    return ", ".join(
        f"{key} {number_text(value, 4) if isinstance(value, float) else value}"
        for key, value in values.items()
    )
