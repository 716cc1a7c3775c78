"""A search space and a budget in words, for `zoerefine search --plan`."""

import math
from collections.abc import Sequence
from pathlib import Path

from zoerefine.config.study_keys import StudyKeys
from zoerefine.run_dir import RunDir
from zoerefine.searching.space import Parameter, size_of
from zoerefine.searching.trial_runner import Subject


def space_lines(space: Sequence[Parameter]) -> list[str]:
    """The parameters, and how many combinations they have."""
    size = size_of(space)
    finite = f"{size:,.0f} combinations" if math.isfinite(size) else "infinitely many combinations"
    lines = (f"  {line}" for one in space for line in one.lines())
    return ["the space:", *lines, f"  in total {finite}"]


def planned_trials(space: Sequence[Parameter], options: StudyKeys) -> int:
    """How many trials a study with these keys of STUDY has."""
    size = size_of(space)
    is_grid = options.SAMPLER == "grid" and math.isfinite(size)
    return int(size) if is_grid else int(options.TRIALS)


def budget_line(space: Sequence[Parameter], options: StudyKeys) -> str:
    """How many trials there are, and by what means."""
    trials = planned_trials(space, options)
    line = f"{trials} trials by {options.SAMPLER}, workers: {options.WORKERS}"
    if options.PATIENCE:
        line += f", fewer once {options.PATIENCE} ended without a better one"
    return line


def first_lines(subject: Subject, enqueued: Sequence[Path], earlier: Sequence[Path]) -> list[str]:
    """What a study tries first, and how many trials there are in the studies that it starts from.

    Raises `UserError` where the search would refuse what --enqueue or --from names.
    """
    from zoerefine.searching.earlier_study import open_earlier  # imports Optuna
    from zoerefine.searching.enqueue import params_to_try

    studies = [open_earlier(path, subject, RunDir(subject.folder)) for path in earlier]
    lines = [f"--from {one.run.path}: trials there: {len(one.trials())}" for one in studies]
    if enqueued:
        lines.append(f"tried first (--enqueue): {len(params_to_try(subject, enqueued))}")
    return lines
