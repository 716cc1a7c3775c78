"""The end of a study: its best configurations are written, trained at full length and exported."""

from optuna.trial import FrozenTrial

from zoerefine.config import Config, save_config
from zoerefine.data.cache import Cache
from zoerefine.data.split import Split
from zoerefine.errors import UserError
from zoerefine.progress import say
from zoerefine.run_dir import RunDir
from zoerefine.searching.config_values import with_values
from zoerefine.searching.space import suggest
from zoerefine.searching.study import Study
from zoerefine.searching.trial_record import format_values
from zoerefine.training.job import train_for_study


def finish(study: Study, cache: Cache, split: Split) -> None:
    """Write the best configurations, then train and export them as STUDY.THEN says.

    `best.yaml` is an ordinary configuration: training it gives the run `best` again. With several
    objectives, each point of the Pareto front has its own `pareto-<trial>.yaml`. Trainings with
    further seeds are in `<name>-seed<seed>`. Raises `UserError` where no trial was completed.
    """
    several = len(study.criteria.objectives) > 1
    options = study.cfg.STUDY
    for trial in study.best():
        name = f"pareto-{trial.number:04d}" if several else "best"
        cfg = full_config(study, trial)
        save_config(cfg, study.run.path / f"{name}.yaml")
        say(f"{name}: trial {trial.number}, {format_values(trial.user_attrs['figures'])}; "
            f"{format_values(trial.params)}")  # fmt: skip
        if not options.THEN:
            continue
        for seed in range(cfg.SEED, cfg.SEED + options.SEEDS):
            folder = name if seed == cfg.SEED else f"{name}-seed{seed}"
            run = RunDir(study.run.path / folder)
            seeded = with_values(cfg, {"SEED": seed})
            seeded.freeze()
            train_fully(study, seeded, run, cache, split)
            if "export" in options.THEN and not run.bundle.exists():
                export_run(run)


def full_config(study: Study, trial: FrozenTrial) -> Config:
    """A trial's configuration at full length, validation scenes included in training."""
    cfg = with_values(study.cfg, suggest(study.space, trial))  # type: ignore[arg-type]
    cfg.STUDY.THEN = ""
    cfg.DATA.VAL_FRACTION = 0.0
    cfg.freeze()
    return cfg


def train_fully(study: Study, cfg: Config, run: RunDir, cache: Cache, split: Split) -> None:
    """Train on all scenes but the test scenes, and test; a finished run is left as it is."""
    if run.status().state != "finished":
        say(f"training {run.path.name} at full length, validation scenes included")
    everything = Split(tuple(sorted(split.train + split.val)), (), split.test)
    train_for_study(study.run, run, cfg, cache, everything)


def export_run(run: RunDir) -> None:
    """Build the run's engine; print why where it cannot be built."""
    from zoerefine.exporting.export import export

    try:
        say(f"exported {export(run)}")
    except UserError as error:
        say(f"{run.path.name} was not exported: {error}")
