"""What a study tries first: given configs, the best trials of other studies, or a whole grid."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.lab.search.space.space import Values, combinations, params_of
from zoerefine.lab.search.study.earlier import best_trees
from zoerefine.lab.search.study.study import Study
from zoerefine.lab.search.study.trials import params_key
from zoerefine.lab.search.subject import Subject


def params_to_try(subject: Subject, sources: Sequence[Path]) -> list[Values]:
    """The parameters of configs and of the best trials of other studies.

    Raises `UserError` for a source that is neither a config nor a study's run, or whose values lie
    outside the search space.
    """
    found = []
    for source in sources:
        for tree in trees_of(subject, source):
            params = params_of(subject.space, tree)
            if params is None:
                raise UserError(f"{source}: its values lie outside what SEARCH lists")
            found.append(params)
    return found


def trees_of(subject: Subject, source: Path) -> Sequence[Mapping[str, Any]]:
    """The config in a file, or those of the best trials of the study in a folder."""
    if source.is_dir():
        return best_trees(source)
    if not source.exists():
        raise UserError(
            f"no config file or study {source} for --enqueue: give an existing one; KEY VALUE "
            "words stand before --enqueue"
        )
    return [subject.tree_in(source)]


def enqueue(study: Study, candidates: Sequence[Values]) -> None:
    """Queue parameters, then a grid's combinations, unless they were queued or tried before."""
    with study.locked():
        enqueue_untried(study, candidates)
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
        if (key := params_key(params)) not in known:
            known.add(key)
            study.optuna.enqueue_trial(dict(params))
