"""What a study tries first: given configs, the best trials of other studies, or a whole grid."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoerefine.config import load_config
from zoerefine.errors import UserError
from zoerefine.metrics import SELECTION_METRIC
from zoerefine.run_dir import RunDir
from zoerefine.searching.space import combinations, params_of
from zoerefine.searching.study import Study
from zoerefine.searching.trial_record import params_key

FROM_A_STUDY = 5  # best trials that another study gives


def enqueue(study: Study, sources: Sequence[Path]) -> None:
    """Queue the configs and the best trials of the studies given, then a grid's combinations.

    What was queued or tried before is left out. Raises `UserError` for a source that is neither a
    config nor a study's run, or whose values lie outside the search space.
    """
    for source in sources:
        for config in best_configs(RunDir(source)) if source.is_dir() else [source]:
            enqueue_config(study, config)
    if study.is_grid:
        enqueue_grid(study)


def best_configs(run: RunDir) -> list[Path]:
    """The configs of a study's best trials by validation AbsRel, the best first."""
    scored = []
    for results in run.path.glob("trials/*/results.json"):
        trial = RunDir(results.parent)
        found = trial.read_json(results)
        if not found["pruned"]:
            scored.append((found["val"]["refined"][SELECTION_METRIC], trial.config_file))
    if not scored:
        raise UserError(f"{run.path} is not a study with completed trials: give a study's run")
    return [config for _, config in sorted(scored)[:FROM_A_STUDY]]


def enqueue_config(study: Study, config: Path) -> None:
    """Queue a config's values. Raises `UserError` where they lie outside the search space."""
    params = params_of(study.space, load_config(config))
    if params is None:
        raise UserError(f"{config}: its values lie outside what SEARCH lists")
    with study.locked():
        _enqueue_untried(study, [params])


def enqueue_grid(study: Study) -> None:
    """Queue every combination of a finite space."""
    with study.locked():
        _enqueue_untried(study, list(combinations(study.space)))


def _enqueue_untried(study: Study, candidates: Sequence[Mapping[str, Any]]) -> None:
    trials = study.optuna.get_trials(deepcopy=False)
    known = {params_key(one.system_attrs.get("fixed_params", one.params)) for one in trials}
    for params in candidates:
        if params_key(params) not in known:
            study.optuna.enqueue_trial(dict(params))
