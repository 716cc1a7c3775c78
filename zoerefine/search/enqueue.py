"""What a study tries first: configs, the best of other studies, or a grid's every combination."""

from collections.abc import Sequence
from pathlib import Path

from zoerefine.config import load_config
from zoerefine.errors import UserError
from zoerefine.run_dir import RunDir
from zoerefine.search.study import Study

FROM_A_STUDY = 5  # of another study's best trials


def enqueue(study: Study, sources: Sequence[Path]) -> None:
    """Queue what each source gives, and with STUDY.SAMPLER grid all combinations.

    Nothing is queued twice, nor what was tried. Raises `UserError` for a source that is neither a
    config nor a study's run, or whose values lie outside the space.
    """
    for source in sources:
        for config in best_configs(RunDir(source)) if source.is_dir() else [source]:
            study.enqueue_config(load_config(config), str(config))
    if study.cfg.STUDY.SAMPLER == "grid":
        study.enqueue_all()


def best_configs(run: RunDir) -> list[Path]:
    """The configs of a study's best trials, the best first."""
    scored = []
    for results in run.path.glob("trials/*/results.json"):
        trial = RunDir(results.parent)
        found = trial.read_json(results)
        if not found["pruned"]:
            scored.append((found["val"]["refined"]["abs_rel"], trial.config_file))
    if not scored:
        raise UserError(f"{run.path} is no study with finished trials: give a study's run")
    return [config for _, config in sorted(scored)[:FROM_A_STUDY]]
