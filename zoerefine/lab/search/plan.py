"""A search space and a budget, in words and for programs, for `zoerefine search --plan`."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from zoerefine.base.config.study_keys import StudyKeys
from zoerefine.base.messages import counted
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.search.space.space import Parameter, Range, size_of
from zoerefine.lab.search.study.ending import planned_trials
from zoerefine.lab.search.study.trials import Criteria
from zoerefine.lab.search.subject import Subject


def plan_lines(
    space: Sequence[Parameter], options: StudyKeys, criteria: Criteria, about: Sequence[str] = ()
) -> list[str]:
    """The parameters, how many combinations they have, what trials are judged by, and the budget.

    Args:
        about: further lines before the budget.
    """
    lines = (f"  {line}" for one in space for line in one.lines())
    return [
        *("the space:", *lines, f"  in total {size_in_words(space)}"),
        *(f"{direction}: {name}" for name, direction in criteria.directions.items()),
        *(f"limit: {limit.name} at most {limit.at_most:g}" for limit in criteria.limits),
        *about,
        budget_line(space, options),
    ]


def plan_facts(
    space: Sequence[Parameter], options: StudyKeys, criteria: Criteria
) -> dict[str, Any]:
    """The same for programs; None for infinitely many combinations, and where nothing is set."""
    size = size_of(space)
    return {
        "space": parameter_facts(space),
        "combinations": None if math.isinf(size) else int(size),
        "objectives": dict(criteria.directions),
        "limits": {limit.name: limit.at_most for limit in criteria.limits},
        "trials": planned_trials(space, options),
        "sampler": options.SAMPLER,
        "workers": options.WORKERS,
        "patience": options.PATIENCE or None,
        "timeout_s": options.TIMEOUT_S or None,
    }


def parameter_facts(space: Sequence[Parameter]) -> list[dict[str, Any]]:
    """Ranges with their bounds; choices with what each option sets, and its own parameters."""
    found: list[dict[str, Any]] = []
    for one in space:
        if isinstance(one, Range):
            bounds = {"low": one.low, "high": one.high, "log": one.log, "step": one.step}
            found.append({"range": one.key, **bounds})
        else:
            options = [
                {"label": o.label, "sets": o.fixed, "space": parameter_facts(o.inner)}
                for o in one.options
            ]
            found.append({"choice": one.name, "options": options})
    return found


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


def first_lines(
    subject_of: Callable[[], Subject], enqueued: Sequence[Path], earlier: Sequence[Path]
) -> list[str]:
    """What a study tries first, and how many trials there are in the studies that it starts from.

    Args:
        subject_of: called where there is something to check.

    Raises `UserError` where the search would refuse what --enqueue or --from names.
    """
    found = first_facts(subject_of, enqueued, earlier)
    lines = [f"--from {one['run']}: trials there: {one['trials']}" for one in found["earlier"]]
    if enqueued:
        lines.append(tried_first(subject_of(), found["queued"]))
    return lines


def first_facts(
    subject_of: Callable[[], Subject], enqueued: Sequence[Path], earlier: Sequence[Path]
) -> dict[str, Any]:
    """The same for programs. Raises as `first_lines`."""
    if not (enqueued or earlier):
        return {"earlier": [], "queued": 0}
    from zoerefine.lab.search.study.earlier import open_earlier  # imports Optuna
    from zoerefine.lab.search.study.enqueue import params_to_try

    subject = subject_of()
    studies = [open_earlier(path, subject, RunDir(subject.folder)) for path in earlier]
    return {
        "earlier": [{"run": str(one.run.path), "trials": len(one.trials())} for one in studies],
        "queued": len(params_to_try(subject, enqueued)) if enqueued else 0,
    }


def tried_first(subject: Subject, queued: int) -> str:
    """How many of the queued combinations are tried; they are trials as all others."""
    most = planned_trials(subject.space, subject.options)
    line = f"tried first (--enqueue): {min(queued, most)}"
    return line if queued <= most else f"{line} of {queued}, as many as there are trials"
