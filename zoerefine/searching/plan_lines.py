"""A search space and a budget in words, for `zoerefine search --plan`."""

import math
from collections.abc import Sequence
from pathlib import Path

from zoerefine.config.study_keys import StudyKeys
from zoerefine.run_dir import RunDir
from zoerefine.searching.budget import planned_trials
from zoerefine.searching.space import Parameter, size_of
from zoerefine.searching.trial_runner import Subject
from zoerefine.wording import counted


def space_lines(space: Sequence[Parameter]) -> list[str]:
    """The parameters, and how many combinations they have."""
    lines = (f"  {line}" for one in space for line in one.lines())
    return ["the space:", *lines, f"  in total {size_in_words(space)}"]


def size_in_words(space: Sequence[Parameter]) -> str:
    """How many combinations a space has."""
    size = size_of(space)
    if math.isinf(size):
        return "infinitely many combinations"
    return counted(int(size), "combination")


def budget_line(space: Sequence[Parameter], options: StudyKeys) -> str:
    """How many trials there are at most, and by what means."""
    most = planned_trials(space, options)
    if options.SAMPLER == "grid" or most == options.TRIALS:
        line = f"{counted(most, 'trial')} by {options.SAMPLER}"
    else:
        line = f"{most} of {counted(options.TRIALS, 'trial')} by {options.SAMPLER}"
        line += f" (the space has {size_in_words(space)})"
    line += f", workers: {options.WORKERS}"
    if options.PATIENCE:
        line += f", fewer once {options.PATIENCE} ended without a better one"
    if options.TIMEOUT_S:
        line += f", none started after {options.TIMEOUT_S:g} s"
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
        lines.append(tried_first(subject, len(params_to_try(subject, enqueued))))
    return lines


def tried_first(subject: Subject, queued: int) -> str:
    """How many of the queued combinations are tried; they are trials as all others."""
    most = planned_trials(subject.space, subject.options)
    line = f"tried first (--enqueue): {min(queued, most)}"
    return line if queued <= most else f"{line} of {queued}, as many as there are trials"
