"""A study: its trials in a database, who may begin the next one, and what became of each.

A trial counts once. One that continues another (its worker died, or was asked to stop) replaces
it; one whose values had been tried before is not run and does not count. Who begins a trial holds
the study for that moment, so neither the number of trials nor a pair of equal ones is left to
chance, however many workers there are.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState
from yacs.config import CfgNode

from zoerefine.config import to_dict
from zoerefine.errors import UserError
from zoerefine.identity import study_settings
from zoerefine.launch.provenance import source_facts
from zoerefine.registries import OBJECTIVES, PRUNERS, SAMPLERS
from zoerefine.run_dir import RunDir
from zoerefine.search.criteria import read_criteria
from zoerefine.search.notes import describe
from zoerefine.search.space import Values, combinations, params_of, read_space, size_of, suggest
from zoerefine.search.storage import alone, open_storage, storage_url
from zoerefine.train.job import CHECKOUT

TRIES = 3  # asks for values that were not tried before, ahead of looking for some
ENUMERATED = 100_000  # combinations of a finite space that are looked through
HOPELESS = 5  # failures without a single success that end a study


class TakenOver(Exception):
    """Another worker has this trial: this one was taken for dead."""


@dataclass(frozen=True)
class Claim:
    """A trial that this worker runs: its values, and its run directory."""

    trial: optuna.Trial
    values: Values
    run: RunDir

    @property
    def number(self) -> int:
        return self.trial.number


class Study:
    """A study, opened by one process; `worker` is the name that its trials bear."""

    def __init__(self, cfg: CfgNode, run: RunDir, worker: str = "") -> None:
        options = cfg.STUDY
        _check_options(options)
        self.cfg, self.run, self.worker = cfg, run, worker
        self.space = read_space(cfg)
        self.criteria = read_criteria(cfg)
        run.path.mkdir(parents=True, exist_ok=True)
        self.url = storage_url(options.STORAGE, run.path)
        self.storage = open_storage(self.url, options.HEARTBEAT_S)
        with self.alone():
            self.optuna = optuna.create_study(
                study_name=cfg.RUN.NAME,
                storage=self.storage,
                directions=[OBJECTIVES.load(name).direction for name in self.criteria.objectives],
                pruner=PRUNERS.load(options.PRUNER)(options.EPOCHS or cfg.TRAIN.EPOCHS),
                load_if_exists=True,
            )
            self._belongs_here()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the study: nobody else begins, sweeps or enqueues meanwhile."""
        with alone(self.storage, self.cfg.RUN.NAME, self.run.path):
            yield

    def _belongs_here(self) -> None:
        """Mark a new study with what it is of; raises `UserError` where it is of something else."""
        ours = identity(self.cfg)
        theirs = self.optuna.user_attrs.get("identity")
        if theirs is None:
            self.optuna.set_user_attr("identity", ours)
            self.optuna.set_metric_names(list(self.criteria.objectives))
        elif theirs != ours:
            lines = [
                f"  {key}: {theirs.get(key)} there, {ours.get(key)} here"
                for key in sorted({*ours, *theirs})
                if theirs.get(key) != ours.get(key)
            ]
            raise UserError(
                f"study {self.cfg.RUN.NAME} in {self.url} is of something else; go back to that, "
                "or give another RUN.NAME:\n" + "\n".join(lines)
            )

    def trials(self) -> list[FrozenTrial]:
        """The trials that count."""
        return counted(self.optuna.get_trials(deepcopy=False))

    @property
    def budget(self) -> int:
        """How many trials there are to be."""
        size = size_of(self.space)
        return int(size) if self.cfg.STUDY.SAMPLER == "grid" else self.cfg.STUDY.TRIALS

    def is_over(self) -> bool:
        """Whether nothing runs or waits."""
        return not any(t.state in (TrialState.RUNNING, TrialState.WAITING) for t in self.trials())

    # Beginning a trial.

    def claim(self) -> Claim | None:
        """The next trial, one that was cut off before a new one; None where none is to begin.

        Raises `UserError` where the first trials all failed.
        """
        with self.alone():
            self._sweep()
            trials = self.trials()
            self._raise_if_hopeless(trials)
            waiting = any(t.state == TrialState.WAITING for t in trials)
            if not waiting and (len(trials) >= self.budget or self._exhausted(trials)):
                return None
            return self._begin()

    def _begin(self) -> Claim | None:
        for _ in range(TRIES):
            claim = self._ask()
            if claim is not None:
                return claim
        left = self._untried()
        if left is None:
            return None
        self.optuna.enqueue_trial(left)
        return self._ask()

    def _ask(self) -> Claim | None:
        """A new trial, or one of the queue; None where its values were tried before."""
        existing = self.optuna.get_trials(deepcopy=False)
        # A sampler of its own for every trial: what is asked follows from the trials so far, and
        # from no worker's history; and two workers never begin with the same values.
        seed = np.random.SeedSequence((self.cfg.SEED, len(existing))).generate_state(1)[0]
        self.optuna.sampler = SAMPLERS.load(self.cfg.STUDY.SAMPLER)(int(seed))
        trial = self.optuna.ask()
        self.storage.record_heartbeat(trial._trial_id)
        values = suggest(self.space, trial)
        tried = (t for t in counted(existing) if t.state != TrialState.WAITING)
        twin = next((t for t in tried if t.params == trial.params), None)
        if twin is not None:
            trial.set_user_attr("twin", twin.number)
            self.optuna.tell(trial, state=TrialState.FAIL)
            return None
        folder = trial.user_attrs.get("run", f"trials/{trial.number:04d}")
        trial.set_user_attr("run", folder)
        trial.set_user_attr("worker", self.worker)  # last: only now has it really begun
        return Claim(trial, values, RunDir(self.run.path / folder))

    def _exhausted(self, trials: Sequence[FrozenTrial]) -> bool:
        """Whether every combination has been tried."""
        size = size_of(self.space)
        return len(trials) >= size and len({key_of(t.params) for t in trials}) >= size

    def _untried(self) -> Values | None:
        """Any combination of a finite space that was not tried; None where there is none."""
        if size_of(self.space) > ENUMERATED:
            return None
        tried = {key_of(t.params) for t in self.trials()}
        left = [one for one in combinations(self.space) if key_of(one) not in tried]
        return random.Random(len(tried)).choice(left) if left else None

    def enqueue(self, params: Mapping[str, Any]) -> None:
        """Have these parameters tried next, unless they were."""
        with self.alone():
            self.optuna.enqueue_trial(dict(params), skip_if_exists=True)

    def enqueue_config(self, cfg: CfgNode, source: str) -> None:
        """Have a config's values tried next. Raises `UserError` where they are not in the space."""
        params = params_of(self.space, cfg)
        if params is None:
            raise UserError(f"{source}: its values lie outside what SEARCH lists")
        self.enqueue(params)

    def enqueue_all(self) -> None:
        """Have every combination tried. Raises `UserError` where there is no end to them."""
        endless = [line for one in self.space if one.size > ENUMERATED for line in one.lines()]
        if size_of(self.space) > ENUMERATED:
            raise UserError(
                f"a grid of {size_of(self.space):g} combinations has no end: give lists, or ranges "
                f"with steps ({'; '.join(endless[:3])})"
            )
        with self.alone():
            trials = self.optuna.get_trials(deepcopy=False)
            known = {key_of(t.system_attrs.get("fixed_params", t.params)) for t in trials}
            for params in combinations(self.space):
                if key_of(params) not in known:
                    self.optuna.enqueue_trial(params)

    # What becomes of a trial.

    def is_mine(self, claim: Claim) -> bool:
        """Whether this worker still has the trial."""
        return self.storage.get_trial(claim.trial._trial_id).state == TrialState.RUNNING

    def complete(self, claim: Claim, figures: Mapping[str, float]) -> None:
        """The trial's figures, and so its objectives."""
        self._note_figures(claim, figures)
        values = [figures[name] for name in self.criteria.objectives]
        self._tell(claim, TrialState.COMPLETE, values)

    def prune(self, claim: Claim, figures: Mapping[str, float], reason: str) -> None:
        """The trial was not worth going on with."""
        self._note_figures(claim, figures)
        self._tell(claim, TrialState.PRUNED, reason=reason)

    def fail(self, claim: Claim, reason: str) -> None:
        """The trial went wrong, and would again."""
        self._tell(claim, TrialState.FAIL, reason=reason)

    def put_back(self, claim: Claim) -> None:
        """The trial was asked to stop; who comes next goes on with it from its checkpoint."""
        with self.alone():
            claim.trial.set_user_attr("stopped", True)
            self._tell(claim, TrialState.FAIL)
            self._sweep()

    def release(self, worker: str) -> None:
        """A worker is known to be dead: its trial is free."""
        with self.alone():
            for trial in self.optuna.get_trials(states=(TrialState.RUNNING,)):
                if trial.user_attrs.get("worker") == worker:
                    self.optuna.tell(trial.number, state=TrialState.FAIL)
            self._sweep()

    def _note_figures(self, claim: Claim, figures: Mapping[str, float]) -> None:
        claim.trial.set_user_attr("figures", dict(figures))
        for name, excess in self.criteria.excess(figures).items():
            claim.trial.set_constraint(name, excess)

    def _tell(
        self,
        claim: Claim,
        state: TrialState,
        values: Sequence[float] | None = None,
        reason: str = "",
    ) -> None:
        try:
            if reason:
                claim.trial.set_user_attr("reason", reason)
            describe(self.optuna, claim.trial, claim.run, self.run.path / "artifacts")
            self.optuna.tell(claim.trial, values, state)
        except (optuna.exceptions.UpdateFinishedTrialError, ValueError) as error:
            if self.is_mine(claim):
                raise
            raise TakenOver from error

    def _sweep(self) -> None:
        """Free the trials of workers that are gone, and queue what they leave.

        A trial that failed without a reason lost its worker. Whoever is killed between any two
        lines here leaves a state in which the next sweep does the rest.
        """
        optuna.storages.fail_stale_trials(self.optuna)
        for trial in self.optuna.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if "worker" not in trial.user_attrs:  # killed on the way to it: we hold the study
                self.optuna.tell(trial.number, state=TrialState.FAIL)
        for trial in self.trials():
            if trial.state == TrialState.FAIL and "reason" not in trial.user_attrs:
                self._continue(trial)

    def _continue(self, trial: FrozenTrial) -> None:
        """Queue a trial that goes on where another was cut off, unless too many workers died."""
        known = dict(trial.user_attrs)
        deaths = known.get("deaths", 0) + (0 if known.pop("stopped", False) else 1)
        if deaths > self.cfg.STUDY.RETRIES:
            return
        known.pop("worker", None)
        again = optuna.create_trial(
            state=TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs={**known, "continues": trial.number, "deaths": deaths},
            intermediate_values=trial.intermediate_values,
        )
        self.optuna.add_trial(again)

    def _raise_if_hopeless(self, trials: Sequence[FrozenTrial]) -> None:
        failed = [t for t in trials if t.state == TrialState.FAIL]
        ended = [t for t in trials if t.state.is_finished()]
        if len(failed) >= HOPELESS and len(failed) == len(ended):
            raise UserError(
                f"the first {len(failed)} trials all failed; the last one: {reason_of(failed[-1])}"
            )

    # What came out.

    def best(self) -> list[FrozenTrial]:
        """The best trial within the limits; of several objectives, the Pareto front.

        Raises `UserError` where there is none.
        """
        front = [t for t in self.optuna.best_trials if not excess_of(t)]
        if not front:
            raise UserError(f"{self.run.path}: no trial was completed within the constraints")
        front.sort(key=lambda t: (t.values, t.number))
        return front if len(self.criteria.objectives) > 1 else front[:1]


def counted(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Trials but those that another continues, and those not run for having been run before."""
    replaced = {t.user_attrs["continues"] for t in trials if "continues" in t.user_attrs}
    return [t for t in trials if t.number not in replaced and "twin" not in t.user_attrs]


def key_of(params: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    """The same for equal parameters: 0.3 is also what three steps of 0.1 sum up to."""
    return frozenset(
        (name, float(f"{value:.12g}") if isinstance(value, float) else value)
        for name, value in params.items()
    )


def reason_of(trial: FrozenTrial) -> str:
    """Why a trial failed or was pruned."""
    return str(trial.user_attrs.get("reason", "its workers died, one after another"))


def excess_of(trial: FrozenTrial) -> dict[str, float]:
    """The limits that a trial exceeds, and by how much."""
    return {name: value for name, value in trial.constraints.items() if value > 0}


def identity(cfg: CfgNode) -> dict[str, Any]:
    """What a study is of: its commit, changes to it, and the settings that decide its trials."""
    source = source_facts(CHECKOUT)
    found = {"commit": source["commit"], "uncommitted changes": source.get("dirty_digest", "")}
    return found | study_settings(to_dict(cfg))


def _check_options(options: CfgNode) -> None:
    """Raises `UserError` for a STUDY that means nothing."""
    SAMPLERS.check(options.SAMPLER, "STUDY.SAMPLER")
    PRUNERS.check(options.PRUNER, "STUDY.PRUNER")
    for key in ("TRIALS", "WORKERS", "HEARTBEAT_S", "SEEDS"):
        if options[key] < 1:
            raise UserError(f"STUDY.{key} must be 1 or more, got {options[key]}")
    if options.THEN not in ("", "train", "train,export"):
        raise UserError(f"STUDY.THEN must be empty, train or train,export, got {options.THEN!r}")
