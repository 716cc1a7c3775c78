"""A study: what is searched, how trials are judged, the database that holds them, and its end."""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from zoerefine.base.config.study_keys import StudyKeys
from zoerefine.base.errors import UserError
from zoerefine.base.registries import PRUNERS
from zoerefine.base.run_dir import RunDir
from zoerefine.base.yaml.equal_values import differing
from zoerefine.lab.launch.record import provenance
from zoerefine.lab.search.space.space import Parameter, size_of, unknown_parameter
from zoerefine.lab.search.study.pruning import FirstObjective
from zoerefine.lab.search.study.storage import open_storage, storage_url, study_lock
from zoerefine.lab.search.study.trials import (
    best_trials,
    exceeded_limits,
    has_begun,
    is_as_good,
    is_known,
    longest_trial,
    without_duplicates,
)
from zoerefine.lab.search.subject import Subject

METRIC, PATTERN = "--metric", "--metric-pattern"  # of a script, in its study's identity


class Study:
    """A study as one process sees it.

    Args:
        subject: what is searched.
        run: the study's run directory.

    Raises:
        UserError: the database cannot be used, or it holds a study of this name that belongs to
            another commit or configuration.
    """

    def __init__(self, subject: Subject, run: RunDir) -> None:
        self.subject, self.run = subject, run
        self.name, self.options = subject.name, subject.options
        self.space, self.criteria = subject.space, subject.criteria
        self.url = storage_url(self.options.STORAGE, run.path)
        run.create()
        self.storage = open_storage(self.url, self.options.HEARTBEAT_S)
        with self.locked():
            self.optuna = optuna.create_study(
                study_name=self.name,
                storage=self.storage,
                directions=list(self.criteria.directions.values()),
                load_if_exists=True,
            )
            self._check_identity()
            self._check_names()
            self._check_folder()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the study's lock: of all workers on all machines, one at a time."""
        with study_lock(self.storage, self.name, self.run.path):
            yield

    def _check_identity(self) -> None:
        """Record what a new study searches; raises `UserError` where an old one differs."""
        ours = json.loads(json.dumps(self.subject.identity()))  # as the database returns it
        theirs = self.optuna.user_attrs.get("identity")
        if theirs is None or self._has_only_another_metric(theirs, ours):
            self.optuna.set_user_attr("identity", ours)
            self.optuna.set_metric_names(list(self.criteria.objectives))
        elif different := sorted(differing(theirs, ours)):
            pairs = ((key, theirs.get(key, "absent"), ours.get(key, "absent")) for key in different)
            lines = [f"  {key}: {there} there, {here} here" for key, there, here in pairs]
            raise UserError(
                f"study {self.name} in {self.url} has other settings: restore them, or give "
                f"another {self.subject.name_key}:\n" + "\n".join(lines)
            )

    def _has_only_another_metric(self, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
        """Whether a script's metric has another name or pattern, and no trial has ended yet."""
        changed = differing(theirs, ours).keys()
        if not changed or not changed <= {METRIC, PATTERN}:
            return False
        directions = {identity[METRIC].rpartition(", ")[2] for identity in (theirs, ours)}
        ended = (trial.state.is_finished() for trial in self.optuna.get_trials(deepcopy=False))
        return len(directions) == 1 and not any(ended)

    def _check_names(self) -> None:
        """Raises `UserError` where an earlier version called the parameters otherwise.

        Optuna keeps them by name, and the options of a choice by label.
        """
        for trial in self.optuna.get_trials(deepcopy=False):
            if other := unknown_parameter(self.space, trial.params):
                raise UserError(
                    f"study {self.name} in {self.url} was begun by a version of zoerefine that "
                    f"named its parameters otherwise ({other}): continue it with that version, or "
                    f"give another {self.subject.name_key}"
                )

    def _check_folder(self) -> None:
        """Raises `UserError` where the folder holds the trials of another study."""
        if "id" not in self.optuna.user_attrs:
            self.optuna.set_user_attr("id", uuid.uuid4().hex)
        ours, file = self.optuna.user_attrs["id"], self.run.provenance_file
        theirs = self.run.read_json(file).get("study_id") if file.exists() else None
        if theirs == ours:
            return
        if any((self.run.path / "trials").glob("*")):
            raise UserError(
                f"{self.run.path} holds trials of another study than {self.name} in {self.url}: "
                "give the database that they belong to, remove the folder, or give another "
                f"{self.subject.name_key}"
            )
        provenance.add(self.run, study_id=ours)

    def bind_data(self) -> None:
        """Record the digest of the data of a new study.

        Raises `UserError` where the study was begun with other data.
        """
        ours = self.subject.data_digest()
        with self.locked():
            theirs = self.optuna.user_attrs.get("data")
            if theirs is None:
                self.optuna.set_user_attr("data", ours)
            elif theirs != ours:
                raise UserError(
                    f"study {self.name} was begun with other data: their digest is {theirs[:12]} "
                    f"there and {ours[:12]} here; restore them, or give another "
                    f"{self.subject.name_key}"
                )

    def is_pruned(self, trial: optuna.Trial, step: int, figures: Mapping[str, float]) -> bool:
        """Report the objectives that are known at a step; whether STUDY.PRUNER stops the trial.

        Without the first objective no trial is stopped.
        """
        first, *others = (figures.get(name) for name in self.criteria.objectives)
        if first is None:
            return False
        steps = self.subject.steps or longest_trial(self.trials())
        pruner = PRUNERS.load(self.options.PRUNER)(steps)
        if others:
            return self.first_objective.is_pruned(trial._trial_id, step, [first, *others], pruner)
        trial.report(first, step)
        self.optuna.pruner = pruner
        return trial.should_prune()

    @cached_property
    def first_objective(self) -> FirstObjective:
        """The study as a pruner sees it."""
        return FirstObjective(self.optuna, self.storage)

    def trials(self) -> list[FrozenTrial]:
        """The trials that count, in the order of their numbers."""
        return without_duplicates(self.optuna.get_trials(deepcopy=False))

    @property
    def is_grid(self) -> bool:
        """Whether every combination is tried."""
        return bool(self.options.SAMPLER == "grid")

    def is_idle(self) -> bool:
        """Whether every trial that has begun has ended."""
        return all(trial.state.is_finished() or not has_begun(trial) for trial in self.trials())

    def best(self) -> list[FrozenTrial]:
        """The best trial within the limits; of several objectives, the Pareto front.

        Raises `UserError` where there is none.
        """
        best = best_trials(self.optuna)
        if not best:
            limits = " within the constraints" if self.options.CONSTRAINTS else ""
            raise UserError(f"{self.run.path}: no trial was completed{limits}")
        return best


def is_out_of_patience(study: Study, trials: Sequence[FrozenTrial]) -> bool:
    """Whether STUDY.PATIENCE trials have ended since the last better one."""
    patience = study.options.PATIENCE
    return 0 < patience <= trials_since_better(trials, list(study.criteria.directions.values()))


def trials_since_better(trials: Sequence[FrozenTrial], directions: Sequence[str]) -> int:
    """How many trials have ended since the last better one, by their numbers.

    A trial is better if it is within the limits and no earlier one is as good in every objective.
    With several objectives it is a new point of the Pareto front. Trials of an earlier study are
    not counted, and the others must be better than they.
    """
    signs = [-1 if direction == "maximize" else 1 for direction in directions]
    front: list[list[float]] = []
    since = 0
    for trial in (one for one in trials if one.state.is_finished()):
        since += not is_known(trial)
        if trial.state != TrialState.COMPLETE or exceeded_limits(trial):
            continue
        values = [sign * value for sign, value in zip(signs, trial.values, strict=True)]
        if not any(is_as_good(one, values) for one in front):
            front = [one for one in front if not is_as_good(values, one)] + [values]
            since = 0
    return since


def planned_trials(space: Sequence[Parameter], options: StudyKeys, known: int = 0) -> int:
    """How many trials a study with these keys of STUDY has, if nothing ends it early.

    Args:
        known: combinations that an earlier study has tried.
    """
    left = size_of(space) - known
    return int(left if options.SAMPLER == "grid" else min(options.TRIALS, left))


def may_begin(study: Study, trials: Sequence[FrozenTrial]) -> bool:
    """Whether a trial may begin that no worker has had yet: a queued one or a new one."""
    if count_begun(trials) >= planned(study, trials):
        return False
    return not is_out_of_patience(study, trials)


def count_begun(trials: Sequence[FrozenTrial]) -> int:
    """How many trials have begun in this study."""
    return sum(has_begun(trial) and not is_known(trial) for trial in trials)


def planned(study: Study, trials: Sequence[FrozenTrial]) -> int:
    """How many trials of its own a study has, if nothing ends it early."""
    return planned_trials(study.space, study.options, known=sum(map(is_known, trials)))


def is_over(study: Study) -> bool:
    """Whether every trial that has begun has ended, and no other may begin."""
    return study.is_idle() and not may_begin(study, study.trials())


def early_end(study: Study) -> str:
    """Why a study that has ended has fewer trials than it might; empty where it has all."""
    trials, options = study.trials(), study.options
    ended = sum(trial.state.is_finished() and not is_known(trial) for trial in trials)
    most = planned(study, trials)
    if ended < most and is_out_of_patience(study, trials):
        reason = f"no better trial among the last {options.PATIENCE} (STUDY.PATIENCE)"
    elif ended < most:
        reason = f"the time limit of {options.TIMEOUT_S:g} s has passed (STUDY.TIMEOUT_S)"
    elif not study.is_grid and ended < options.TRIALS:
        most, reason = options.TRIALS, "every combination has been tried"
    else:
        return ""
    return f"ended after {ended} of {most} trials: {reason}"
