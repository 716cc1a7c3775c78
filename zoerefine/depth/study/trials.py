"""Our own training as what a study searches: trials train in the worker's process.

Only a trial of several STUDY.DEVICES has processes of its own (`processes.py`). The others stay
in the worker because a new one would import torch for seconds before each trial
(`benchmarks/launch.py` measures it).
"""

import math
from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from yacs.config import CfgNode

from zoerefine.base.config import Config, load_config, save_config
from zoerefine.base.config.schema import check_combinations
from zoerefine.base.config_roles import study_settings
from zoerefine.base.errors import UserError
from zoerefine.base.messages import say, warn
from zoerefine.base.registries import OBJECTIVES
from zoerefine.base.run_dir import RunDir
from zoerefine.base.yaml.keys import with_values
from zoerefine.depth.data.cache.cache import Cache
from zoerefine.depth.data.split import Split
from zoerefine.depth.metrics import arrow
from zoerefine.depth.study.objectives import measure, measure_config
from zoerefine.depth.study.processes import train_in_processes
from zoerefine.depth.training import job
from zoerefine.depth.training.binding import data_digest, identified
from zoerefine.depth.training.verdict import warnings
from zoerefine.lab.launch.record.provenance import source_facts
from zoerefine.lab.search.space.reader import read_space
from zoerefine.lab.search.space.space import Parameter, Values
from zoerefine.lab.search.study.pruning import prune_reason_before_training
from zoerefine.lab.search.study.trials import Criteria, Limit
from zoerefine.lab.search.subject import TrialMonitor, TrialOutcome, TrialRunner
from zoerefine.lab.search.worker_pool import visible_gpus


def publish_training(study: RunDir, name: str, cfg: Config, cache: Cache, split: Split) -> None:
    """Write `<name>.yaml`, then train and export it as STUDY.THEN says.

    The file is an ordinary configuration: training it gives the run `<name>` again. Trainings with
    further seeds are in `<name>-seed<seed>`. The validation scenes stay apart, since the refiner is
    calibrated on them.

    Args:
        cfg: with the best values, not frozen. It is changed.
    """
    then, seeds = cfg.STUDY.THEN, cfg.STUDY.SEEDS
    cfg.STUDY.THEN = ""
    save_config(cfg, study.path / f"{name}.yaml")
    for seed in range(cfg.SEED, cfg.SEED + seeds) if then else ():
        run = RunDir(study.path / (name if seed == cfg.SEED else f"{name}-seed{seed}"))
        seeded = with_values(cfg, {"SEED": seed})
        seeded.freeze()
        train_fully(study, seeded, run, cache, split)
        if "export" in then and not run.bundle.exists():
            export_run(run)


def train_fully(study: RunDir, cfg: Config, run: RunDir, cache: Cache, split: Split) -> None:
    """Train and test; a finished run is left as it is."""
    if run.status().state != "finished":
        say(f"training {run.path.name} at full length")
    count = cfg.STUDY.DEVICES
    elsewhere = partial(train_in_processes, study, count, None) if count > 1 else None
    results = job.train_for_study(study, run, cfg, cache, split, elsewhere=elsewhere)
    for line in warnings(results):
        warn(f"{run.path.name}: {line}")


def export_run(run: RunDir) -> None:
    """Build the run's engine; print why where it cannot be built."""
    from zoerefine.depth.exporting.export import export

    try:
        say(f"exported {export(run)}")
    except UserError as error:
        say(f"{run.path.name} was not exported: {error}")


ALWAYS_MEASURED = {"abs_rel", "parameters"}  # results.json has them


class OwnTraining:
    """What SEARCH of a config lists, each trial a training of ours.

    Args:
        cfg: that `check_search_space` has passed.
        space: what that has returned; None: SEARCH is read here.

    Raises `UserError` where the data folder is missing.
    """

    name_key = "RUN.NAME"

    def __init__(self, cfg: Config, space: tuple[Parameter, ...] | None = None) -> None:
        self.space = space or read_space(cfg.SEARCH)
        job.check_data_root(cfg)
        self.cfg, self.options = cfg, cfg.STUDY
        self.tree = identified(cfg)
        self.name, self.seed = cfg.RUN.NAME, cfg.SEED
        self.folder = study_folder(cfg)
        self.criteria = read_criteria(cfg)
        self.steps = cfg.STUDY.EPOCHS or cfg.TRAIN.EPOCHS
        self.devices = self.processes = cfg.STUDY.DEVICES

    @cached_property
    def data(self) -> tuple[Cache, Split]:
        """The packed cache, built if needed, and its split by scene."""
        cache, split = job.prepare(self.cfg)
        if not split.val:
            raise UserError("a search chooses by validation scenes: raise DATA.VAL_FRACTION")
        return cache, split

    def identity(self) -> dict[str, Any]:
        """Commit, changes to it, and the settings that decide the trials."""
        source = source_facts(job.CHECKOUT)
        found = {"commit": source["commit"], "uncommitted changes": source.get("dirty_digest", "")}
        return found | study_settings(self.tree)

    def data_digest(self) -> str:
        return data_digest(self.cfg, self.data[0])

    def save(self, run: RunDir) -> None:
        """Write the config and the provenance; build the cache."""
        save_config(self.cfg, run.config_file)
        job.record_provenance(run, self.cfg, self.data[0])

    def runner(self, run: RunDir) -> TrialRunner:
        """Trains in this process, or in several where STUDY.DEVICES says so.

        Raises `UserError` where this machine has GPUs, but fewer than a trial needs.
        """
        if self.devices > 1:
            visible_gpus(self.devices)  # raises here: it may be a cluster's node
        return partial(self.run_trial, run)

    def run_trial(
        self, study: RunDir, run: RunDir, values: Values, monitor: TrialMonitor
    ) -> TrialOutcome:
        """Train one configuration, unless it exceeds a limit that is known before."""
        cfg, criteria = self.trial_config(values), self.criteria
        known = measure_config(cfg, criteria.measured)
        if reason := prune_reason_before_training(criteria, known):
            return TrialOutcome(known, reason)

        monitor.known, elsewhere = known, None
        if self.processes > 1:
            elsewhere = partial(train_in_processes, study, self.processes, monitor)
        results = job.train_for_study(
            study, run, cfg, *self.data, monitor.is_pruned, test=False, elsewhere=elsewhere
        )
        note = training_note(results)
        if results["pruned"]:
            reason = f"pruned after epoch {results['epochs']}"
            return TrialOutcome(measure(run, results, ALWAYS_MEASURED), reason, note)
        return TrialOutcome(measure(run, results, ALWAYS_MEASURED | criteria.measured), note=note)

    def trial_config(self, values: Values) -> Config:
        """A trial's own configuration. Raises `UserError` for values that exclude each other."""
        cfg = searched_config(self.cfg, values)
        if cfg.STUDY.EPOCHS:
            cfg.TRAIN.EPOCHS, cfg.TRAIN.STEPS = cfg.STUDY.EPOCHS, 0
        cfg.freeze()
        check_combinations(cfg)
        return cfg

    def tree_in(self, file: Path) -> Config:
        return load_config(file)

    def publish(self, study: RunDir, name: str, values: Values) -> None:
        publish_training(study, name, searched_config(self.cfg, values), *self.data)


def study_folder(cfg: Config) -> Path:
    return Path(cfg.RUN.ROOT) / cfg.RUN.NAME / "study"


def read_criteria(cfg: Config) -> Criteria:
    """STUDY's objectives and constraints."""
    limits = (Limit(one["name"], one["at_most"]) for one in cfg.STUDY.CONSTRAINTS)
    directions = {name: OBJECTIVES.load(name).direction for name in cfg.STUDY.OBJECTIVES}
    return Criteria(directions, tuple(limits))


def searched_config(cfg: Config, values: Mapping[str, Any]) -> Config:
    """A copy of the config with values set and nothing left to search; not frozen."""
    changed = with_values(cfg, values)
    changed.defrost()
    changed.SEARCH = CfgNode()
    return changed


def training_note(results: Mapping[str, Any]) -> str:
    """How a training ended, and its metrics beside the pseudo depth's, in Markdown."""
    state = "pruned" if results["pruned"] else "finished"
    validation = results["val"]
    rows = [f"**{state}** after epoch {results['epochs']}", ""]
    rows += ["| validation | pseudo depth | refined | ratio |", "|---|---:|---:|---:|"]
    for name, refined in validation["refined"].items():
        if name not in validation["pseudo"]:  # of the confidence, which the pseudo depth lacks
            continue
        pseudo, ratio = validation["pseudo"][name], validation["ratio"].get(name, math.nan)
        rows.append(f"| {name} {arrow(name)} | {pseudo:.4f} | {refined:.4f} | {ratio:.3f} |")
    return "\n".join(rows)
