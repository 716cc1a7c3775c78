"""A study: what is searched, how trials are judged, the database that holds them, and its end."""

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import optuna
from optuna.trial import FrozenTrial

from zoerefine.base.errors import UserError
from zoerefine.base.registries import PRUNERS
from zoerefine.base.run_dir import RunDir
from zoerefine.base.yaml.equal_values import differing
from zoerefine.lab.launch.record import provenance
from zoerefine.lab.search.study.pruning import FirstObjective
from zoerefine.lab.search.study.storage import open_storage, storage_url, study_lock
from zoerefine.lab.search.study.trials import (
    best_trials,
    has_begun,
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

    Raises `UserError` where the database cannot be used, or it holds a study of this name that
    belongs to another commit or configuration.
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
