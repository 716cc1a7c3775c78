"""A study: what is searched, how trials are judged, and the database that holds the trials."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.trial import FrozenTrial

from zoerefine.config import Config, to_dict
from zoerefine.errors import UserError
from zoerefine.identity import study_settings
from zoerefine.launch.provenance import source_facts
from zoerefine.registries import OBJECTIVES, PRUNERS
from zoerefine.run_dir import RunDir
from zoerefine.searching.check import check_search_space
from zoerefine.searching.criteria import read_criteria
from zoerefine.searching.space import size_of
from zoerefine.searching.space_reader import read_space
from zoerefine.searching.storage import open_storage, storage_url, study_lock
from zoerefine.searching.trial_record import exceeded_limits, without_duplicates
from zoerefine.training.job import CHECKOUT


class Study:
    """A study as one process sees it.

    Args:
        cfg: with what is searched under SEARCH.
        run: the study's run directory.

    Raises:
        UserError: SEARCH or STUDY has a wrong value, the database cannot be used, or it holds a
            study of this name that belongs to another commit or configuration.
    """

    def __init__(self, cfg: Config, run: RunDir) -> None:
        options = cfg.STUDY
        check_search_space(cfg)
        self.cfg, self.run = cfg, run
        self.space = read_space(cfg)
        self.criteria = read_criteria(cfg)
        run.path.mkdir(parents=True, exist_ok=True)
        self.url = storage_url(options.STORAGE, run.path)
        self.storage = open_storage(self.url, options.HEARTBEAT_S)
        with self.locked():
            self.optuna = optuna.create_study(
                study_name=cfg.RUN.NAME,
                storage=self.storage,
                directions=[OBJECTIVES.load(name).direction for name in self.criteria.objectives],
                pruner=PRUNERS.load(options.PRUNER)(options.EPOCHS or cfg.TRAIN.EPOCHS),
                load_if_exists=True,
            )
            self._check_identity()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the study's lock: of all workers on all machines, one at a time."""
        with study_lock(self.storage, self.cfg.RUN.NAME, self.run.path):
            yield

    def _check_identity(self) -> None:
        """Record what a new study searches; raises `UserError` where an old one differs."""
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
                f"study {self.cfg.RUN.NAME} in {self.url} has other settings: restore them, or "
                "give another RUN.NAME:\n" + "\n".join(lines)
            )

    def trials(self) -> list[FrozenTrial]:
        """The trials that count, in the order of their numbers."""
        return without_duplicates(self.optuna.get_trials(deepcopy=False))

    @property
    def budget(self) -> int:
        """How many trials are planned."""
        return int(size_of(self.space)) if self.is_grid else int(self.cfg.STUDY.TRIALS)

    @property
    def is_grid(self) -> bool:
        """Whether every combination is tried."""
        return bool(self.cfg.STUDY.SAMPLER == "grid")

    def is_over(self) -> bool:
        """Whether no trial runs or waits."""
        return all(trial.state.is_finished() for trial in self.trials())

    def best(self) -> list[FrozenTrial]:
        """The best trial within the limits; of several objectives, the Pareto front.

        Raises `UserError` where there is none.
        """
        front = [trial for trial in self.optuna.best_trials if not exceeded_limits(trial)]
        if not front:
            raise UserError(f"{self.run.path}: no trial was completed within the constraints")
        front.sort(key=lambda trial: (trial.values, trial.number))
        return front if len(self.criteria.objectives) > 1 else front[:1]


def identity(cfg: Config) -> dict[str, Any]:
    """What a study is of: its commit, changes to it, and the settings that decide its trials."""
    source = source_facts(CHECKOUT)
    found = {"commit": source["commit"], "uncommitted changes": source.get("dirty_digest", "")}
    return found | study_settings(to_dict(cfg))
