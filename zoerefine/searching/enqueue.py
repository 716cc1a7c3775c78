"""What a study tries first: given configs, the best trials of other studies, or a whole grid."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoerefine.errors import UserError
from zoerefine.searching.space import combinations, params_of
from zoerefine.searching.study import Study
from zoerefine.searching.trial_record import params_key


def enqueue(study: Study, sources: Sequence[Path]) -> None:
    """Queue the configs and the best trials of the studies given, then a grid's combinations.

    What was queued or tried before is left out. Raises `UserError` for a source that is neither a
    config nor a study's run, or whose values lie outside the search space.
    """
    for source in sources:
        for tree in study.subject.trees(source):
            params = params_of(study.space, tree)
            if params is None:
                raise UserError(f"{source}: its values lie outside what SEARCH lists")
            with study.locked():
                enqueue_untried(study, [params])
    if study.is_grid:
        enqueue_grid(study)


def enqueue_grid(study: Study) -> None:
    """Queue every combination of a finite space."""
    with study.locked():
        enqueue_untried(study, list(combinations(study.space)))


def enqueue_untried(study: Study, candidates: Sequence[Mapping[str, Any]]) -> None:
    """Queue parameters that were neither queued nor tried; the caller holds the study's lock."""
    trials = study.optuna.get_trials(deepcopy=False)
    known = {params_key(one.system_attrs.get("fixed_params", one.params)) for one in trials}
    for params in candidates:
        if params_key(params) not in known:
            study.optuna.enqueue_trial(dict(params))
