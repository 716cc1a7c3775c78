"""A training job: config -> data set -> cache -> run."""

import sys
from pathlib import Path
from typing import Any

from yacs.config import CfgNode

from zoerefine.config import config_digest, load_config, resolve_path, save_config
from zoerefine.errors import UserError
from zoerefine.progress import say
from zoerefine.run_dir import RunDir, launched_run


def open_run(cfg: CfgNode) -> RunDir:
    """The run directory of a configuration: the launcher's, or one named by commit and config.

    The same commit and configuration find the same run again, so an unfinished one goes on.
    Raises `UserError` where the folder belongs to another configuration.
    """
    from zoerefine.launch.provenance import tree_commit

    run = launched_run()
    if run is None:
        commit = tree_commit(Path(__file__).parent) or "untracked"
        name = f"{commit[:8]}-{config_digest(cfg)[:8]}"
        run = RunDir(resolve_path(cfg.RUN.ROOT) / cfg.RUN.NAME / name)
    if run.config_file.exists() and load_config(run.config_file) != cfg:
        raise UserError(f"{run.path} belongs to another configuration: give another RUN.NAME")
    run.path.mkdir(parents=True, exist_ok=True)
    save_config(cfg, run.config_file)
    return run


def prepare(cfg: CfgNode) -> tuple[Any, Any]:
    """The packed cache of the configured data, built where needed, and its split by scene."""
    from zoerefine.data.cache import build_cache
    from zoerefine.data.dataset import open_dataset, split_scenes

    dataset = open_dataset(resolve_path(cfg.DATA.ROOT))
    split = split_scenes(
        dataset, cfg.DATA.VAL_FRACTION, cfg.DATA.TEST_FRACTION, cfg.DATA.SPLIT_SEED
    )
    cache = build_cache(
        dataset, cfg.CACHE.HEIGHT, cfg.CACHE.WIDTH, resolve_path(cfg.CACHE.ROOT), cfg.CACHE.WORKERS
    )
    return cache, split


def run_training(cfg: CfgNode) -> RunDir:
    """Train as configured; a finished run is left as it is, an unfinished one goes on."""
    from zoerefine.launch import provenance
    from zoerefine.train.loop import train

    run = open_run(cfg)
    if run.results_file.exists():
        say(f"{run.path} is finished: nothing to do")
        return run
    say(f"writing to {run.path}")
    with run.writing():
        cache, split = prepare(cfg)
        provenance.write(run, cfg, sys.argv, cache.dataset_digest, cache.digest)
        train(cfg, run, cache, split)
    return run
