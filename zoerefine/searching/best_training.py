"""A best configuration of our own training: written, trained at full length and exported."""

from zoerefine.config import Config, save_config
from zoerefine.data.cache import Cache
from zoerefine.data.split import Split
from zoerefine.errors import UserError
from zoerefine.progress import say
from zoerefine.run_dir import RunDir
from zoerefine.searching.config_values import with_values
from zoerefine.searching.trial_processes import in_processes
from zoerefine.training.job import train_for_study


def publish_training(study: RunDir, name: str, cfg: Config, cache: Cache, split: Split) -> None:
    """Write `<name>.yaml`, then train and export it as STUDY.THEN says.

    The file is an ordinary configuration: training it gives the run `<name>` again. Trainings with
    further seeds are in `<name>-seed<seed>`.

    Args:
        cfg: with the best values, not frozen. It is changed.
    """
    then, seeds = cfg.STUDY.THEN, cfg.STUDY.SEEDS
    cfg.STUDY.THEN = ""
    cfg.DATA.VAL_FRACTION = 0.0  # at full length, validation scenes included in training
    save_config(cfg, study.path / f"{name}.yaml")
    for seed in range(cfg.SEED, cfg.SEED + seeds) if then else ():
        run = RunDir(study.path / (name if seed == cfg.SEED else f"{name}-seed{seed}"))
        seeded = with_values(cfg, {"SEED": seed})
        seeded.freeze()
        train_fully(study, seeded, run, cache, split)
        if "export" in then and not run.bundle.exists():
            export_run(run)


def train_fully(study: RunDir, cfg: Config, run: RunDir, cache: Cache, split: Split) -> None:
    """Train on all scenes but the test scenes, and test; a finished run is left as it is."""
    if run.status().state != "finished":
        say(f"training {run.path.name} at full length, validation scenes included")
    everything = Split(tuple(sorted(split.train + split.val)), (), split.test)
    elsewhere = in_processes(study, cfg.STUDY.DEVICES)
    train_for_study(study, run, cfg, cache, everything, elsewhere=elsewhere)


def export_run(run: RunDir) -> None:
    """Build the run's engine; print why where it cannot be built."""
    from zoerefine.exporting.export import export

    try:
        say(f"exported {export(run)}")
    except UserError as error:
        say(f"{run.path.name} was not exported: {error}")
