"""What a study tries first, and what it knows from its beginning (`--enqueue`, `--from`).

What is taken from an earlier study is decided once and recorded, before the first trial is added.
After a kill the same command adds those that are missing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FixedTrial, FrozenTrial, TrialState

from zoerefine.base.errors import UserError
from zoerefine.base.messages import counted, say
from zoerefine.lab.launch.record import provenance
from zoerefine.lab.search.script.study import recorded_tree
from zoerefine.lab.search.space.space import Values, combinations, params_of
from zoerefine.lab.search.study.earlier import (
    EarlierStudy,
    best_trees,
    comparison_fault,
    params_inside,
)
from zoerefine.lab.search.study.study import Study
from zoerefine.lab.search.study.trials import (
    OBJECTIVES_AT_STEPS,
    TAKEN_FROM,
    is_known,
    params_key,
    skipped_numbers,
    trial_run,
    values_at_steps,
    without_duplicates,
)
from zoerefine.lab.search.subject import Subject


def params_to_try(subject: Subject, sources: Sequence[Path]) -> list[Values]:
    """The parameters of configs and of the best trials of other studies.

    Raises `UserError` for a source that is neither a config nor a study's run, or whose values lie
    outside the search space.
    """
    found = []
    for source in sources:
        for tree in trees_of(subject, source):
            params = params_of(subject.space, tree)
            if params is None:
                raise UserError(f"{source}: its values lie outside what SEARCH lists")
            found.append(params)
    return found


def trees_of(subject: Subject, source: Path) -> Sequence[Mapping[str, Any]]:
    """The config in a file, or those of the best trials of the study in a folder."""
    if source.is_dir():
        return best_trees(source)
    if not source.exists():
        raise UserError(
            f"no config file or study {source} for --enqueue: give an existing one; KEY VALUE "
            "words stand before --enqueue"
        )
    say(f"{source}: its values of the searched keys are tried first; all else is the study's own")
    return [subject.tree_in(source)]


def enqueue(study: Study, candidates: Sequence[Values]) -> None:
    """Queue parameters, then a grid's combinations, unless they were queued or tried before."""
    with study.locked():
        grid = combinations(study.space) if study.is_grid else ()
        enqueue_untried(study, [*candidates, *grid])


def enqueue_untried(study: Study, candidates: Sequence[Mapping[str, Any]]) -> None:
    """Queue parameters that were neither queued nor tried; the caller holds the study's lock."""
    trials = study.optuna.get_trials(deepcopy=False)
    known = {params_key(one.system_attrs.get("fixed_params", one.params)) for one in trials}
    for params in candidates:
        if (key := params_key(params)) not in known:
            known.add(key)
            study.optuna.enqueue_trial(dict(params))


KEPT = ("figures", "reason", OBJECTIVES_AT_STEPS)  # attributes of a trial


def take_trials(study: Study, sources: Sequence[EarlierStudy]) -> None:
    """Add the trials of earlier studies to a study, or queue their best where values differ."""
    for earlier in sources:
        taking = Taking(study, earlier)
        with study.locked():
            taken = study.optuna.user_attrs.get(TAKEN_FROM + earlier.id)
            if taken is None:
                taken = taking.choose()
                study.optuna.set_user_attr(TAKEN_FROM + earlier.id, taken)
            taking.add(taken)
        for line in taken["lines"]:
            say(f"--from {earlier.run.path}: {line}")
    if known := sum(map(is_known, study.trials())):
        provenance.add(study.run, known_trials=known)  # they have no runs here that could be read


class Taking:
    """Takes the trials of one earlier study. The caller holds the lock of the study."""

    def __init__(self, study: Study, earlier: EarlierStudy) -> None:
        self.study, self.earlier = study, earlier
        self.tree, _ = recorded_tree(study.run)

    def choose(self) -> dict[str, Any]:
        """Which trials are known here, which are tried again, and the lines that say why."""
        trials = self.earlier.optuna.get_trials(deepcopy=False)
        inside, left = self.sort(without_duplicates(trials))
        lines = [f"{counted(count, 'trial')} left out: {reason}" for reason, count in left.items()]
        known, again = inside, []
        if fault := comparison_fault(self.study, self.earlier):
            known, again = [], self.earlier.best_of(inside)
            first = f"values cannot be compared ({fault}): the best {len(again)} are queued first"
        else:
            first = f"{counted(len(known), 'trial')} known here"
        return {
            "known": [one.number for one in known],
            "again": [one.number for one in again],
            "numbers": len(trials) + skipped_numbers(self.earlier.optuna),
            "lines": [first, *lines],
        }

    def sort(self, trials: Sequence[FrozenTrial]) -> tuple[list[FrozenTrial], Counter[str]]:
        """The trials from which this study can learn, and how many are left out, by reason."""
        here = [one for one in self.study.trials() if one.state != TrialState.WAITING]
        tried = {params_key(one.params) for one in here}
        left: Counter[str] = Counter()
        inside: list[FrozenTrial] = []
        for trial in trials:
            found = self.params(trial) if trial.state.is_finished() else None
            if reason := fault_of(self.study, trial):
                left[reason] += 1
            elif found is None:
                left["values outside what SEARCH lists"] += 1
            elif params_key(found.params) in tried:
                left["tried here before"] += 1
            else:
                tried.add(params_key(found.params))
                inside.append(trial)
        return inside, left

    def params(self, trial: FrozenTrial) -> FixedTrial | None:
        """A trial's parameters in this study's space; None where it lies outside."""
        return params_inside(self.tree, self.study.space, self.earlier, trial)

    def add(self, taken: dict[str, Any]) -> None:
        """Add what is missing."""
        trials = {one.number: one for one in self.earlier.optuna.get_trials(deepcopy=False)}
        there = {
            one.user_attrs["known_from"]["number"]
            for one in self.study.optuna.get_trials(deepcopy=False)
            if is_known(one) and one.user_attrs["known_from"]["study"] == self.earlier.id
        }
        for number in taken["known"]:
            if number not in there and (found := self.params(trials[number])):
                self.study.optuna.add_trial(self.known_trial(trials[number], found))
        again = [self.params(trials[number]) for number in taken["again"]]
        enqueue_untried(self.study, [found.params for found in again if found])

    def known_trial(self, trial: FrozenTrial, found: FixedTrial) -> FrozenTrial:
        """An earlier trial as one of this study, with this study's limits."""
        attributes = {key: trial.user_attrs[key] for key in KEPT if key in trial.user_attrs}
        run = str(trial_run(self.earlier.run, trial.number).path)
        if is_known(trial):
            run = trial.user_attrs["known_from"]["run"]
        attributes["known_from"] = {"study": self.earlier.id, "number": trial.number, "run": run}
        made = optuna.trial.create_trial(
            state=trial.state,
            values=trial.values,
            params=found.params,
            distributions=found.distributions,
            user_attrs=attributes,
            intermediate_values=dict(trial.intermediate_values),
            constraints=self.study.criteria.excess(attributes.get("figures", {})),
        )
        made.datetime_start, made.datetime_complete = trial.datetime_start, trial.datetime_complete
        return made


def fault_of(study: Study, trial: FrozenTrial) -> str:
    """Why nothing can be learned from a trial, wherever it lies; empty where something can."""
    if not trial.state.is_finished():
        return "not ended"
    if trial.state == TrialState.FAIL:
        return "failed"
    if trial.state == TrialState.PRUNED and not values_at_steps(trial):
        return "not trained, since a limit was exceeded"
    figures = trial.user_attrs.get("figures", {})
    lacking = [one.name for one in study.criteria.limits if one.name not in figures]
    if lacking and trial.state == TrialState.COMPLETE:
        return f"no figure of {' and '.join(lacking)}, which STUDY.CONSTRAINTS limits"
    return ""
