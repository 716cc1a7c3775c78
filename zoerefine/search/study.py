"""A study: trials of a search space, each an ordinary run, and then the best at full length.

The study's run directory holds `study.db`, `trials/0000/`, `trials/0001/`, ..., `best.yaml` and
`best/`. A study that was killed goes on: a trial that was running goes on from its checkpoint.
"""

from collections.abc import Mapping
from typing import Any

import optuna
from optuna.trial import TrialState
from yacs.config import CfgNode

from zoerefine.config import save_config
from zoerefine.data.cache import Cache
from zoerefine.data.split import Split
from zoerefine.errors import UserError
from zoerefine.progress import say
from zoerefine.run_dir import RunDir
from zoerefine.search.space import Parameter, read_space, with_values
from zoerefine.train.job import open_run, prepare, record_provenance
from zoerefine.train.loop import train

Values = dict[str, Any]


def run_study(cfg: CfgNode) -> RunDir:
    """Run the trials that are left, then what STUDY.THEN says; returns the study's run."""
    space = read_space(cfg)
    if cfg.STUDY.THEN not in ("", "train"):
        raise UserError(f"STUDY.THEN must be empty or train, got {cfg.STUDY.THEN!r}")
    run = open_run(cfg)
    with run.writing():
        cache, split = prepare(cfg)
        if not split.val:
            raise UserError("a search chooses by validation scenes: raise DATA.VAL_FRACTION")
        record_provenance(run, cfg, cache)
        study = Study(cfg, run, space, cache, split)
        study.run_trials()
        best = study.save_best()
        if cfg.STUDY.THEN == "train":
            study.train_best(best)
    return run


class Study:
    """The trials of one study, one after the other."""

    def __init__(
        self, cfg: CfgNode, run: RunDir, space: list[Parameter], cache: Cache, split: Split
    ) -> None:
        self.cfg, self.run, self.space = cfg, run, space
        self.cache, self.split = cache, split
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.optuna = optuna.create_study(
            study_name=run.path.name,
            storage=f"sqlite:///{run.path / 'study.db'}",
            sampler=optuna.samplers.TPESampler(seed=cfg.SEED),
            pruner=optuna.pruners.MedianPruner(),
            load_if_exists=True,
        )

    def run_trials(self) -> None:
        """Go on with trials that were cut off, then ask for new ones up to STUDY.TRIALS."""
        for frozen in self.optuna.get_trials(states=(TrialState.RUNNING,)):
            # A trial's values are in the database: asking again gives the same ones.
            self.run_trial(optuna.Trial(self.optuna, frozen._trial_id))
        while len(self.optuna.trials) < self.cfg.STUDY.TRIALS:
            self.run_trial(self.optuna.ask())

    def run_trial(self, trial: optuna.Trial) -> None:
        """Train one configuration and tell the study its validation AbsRel."""
        values = {parameter.key: parameter.suggest(trial) for parameter in self.space}
        say(f"trial {trial.number} (of {self.cfg.STUDY.TRIALS}): {shown(values)}")
        twin = self.same_trial(trial)
        if twin is not None:
            say(f"  the same as trial {twin.number}, AbsRel {twin.value:.4f}")
            self.optuna.tell(trial, twin.value)
            return

        def report(epoch: int, abs_rel: float) -> bool:
            trial.report(abs_rel, epoch)
            return trial.should_prune()

        results = self.train_one(self.trial_config(values), self.trial_run(trial.number), report)
        abs_rel = results["val"]["refined"]["abs_rel"]
        state = TrialState.PRUNED if results["pruned"] else TrialState.COMPLETE
        self.optuna.tell(trial, None if results["pruned"] else abs_rel, state=state)
        word = "pruned at" if results["pruned"] else "validation"
        say(f"  {word} AbsRel {abs_rel:.4f}, best {self.best_value():.4f}")

    def same_trial(self, trial: optuna.Trial) -> optuna.trial.FrozenTrial | None:
        """A finished trial with the same values."""
        for other in self.optuna.get_trials(states=(TrialState.COMPLETE,)):
            if other.params == trial.params:
                return other
        return None

    def trial_config(self, values: Mapping[str, Any]) -> CfgNode:
        """A trial's own configuration."""
        cfg = with_values(self.cfg, values)
        if self.cfg.STUDY.EPOCHS:
            cfg.TRAIN.EPOCHS, cfg.TRAIN.STEPS = self.cfg.STUDY.EPOCHS, 0
        cfg.freeze()
        return cfg

    def trial_run(self, number: int) -> RunDir:
        return RunDir(self.run.path / "trials" / f"{number:04d}")

    def best_value(self) -> float:
        values = [t.value for t in self.optuna.trials if t.value is not None]
        return min(values, default=float("nan"))

    def train_one(self, cfg: CfgNode, run: RunDir, report: Any, test: bool = False) -> Values:
        """Train into a run directory of its own, or read what a finished one found."""
        if run.status().state == "finished":
            return run.read_json(run.results_file)
        run.path.mkdir(parents=True, exist_ok=True)
        save_config(cfg, run.config_file)
        with run.writing():
            record_provenance(run, cfg, self.cache, parent=self.run)
            return train(cfg, run, self.cache, self.split_of(cfg), report, test)

    def split_of(self, cfg: CfgNode) -> Split:
        """The study's split; without a validation share, its scenes are for training."""
        if cfg.DATA.VAL_FRACTION > 0:
            return self.split
        return Split(tuple(sorted(self.split.train + self.split.val)), (), self.split.test)

    def save_best(self) -> CfgNode:
        """Write best.yaml: an ordinary configuration that gives the best run by itself."""
        if not self.optuna.get_trials(states=(TrialState.COMPLETE,)):
            raise UserError(f"{self.run.path}: no trial of the study was completed")
        trial = self.optuna.best_trial
        values = {p.key: p.suggest(trial) for p in self.space}  # type: ignore[arg-type]
        cfg = with_values(self.cfg, values)
        cfg.STUDY.THEN = ""
        cfg.DATA.VAL_FRACTION = 0.0
        cfg.freeze()
        save_config(cfg, self.run.path / "best.yaml")
        say(f"best: trial {trial.number}, AbsRel {trial.value:.4f}, {shown(values)}")
        return cfg

    def train_best(self, cfg: CfgNode) -> Values:
        """Train the best configuration at full length on all scenes but the test's."""
        say("training the best configuration at full length, validation scenes included")
        return self.train_one(cfg, RunDir(self.run.path / "best"), report=None, test=True)


def shown(values: Values) -> str:
    """Parameters in a line."""
    return ", ".join(
        f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in values.items()
    )
