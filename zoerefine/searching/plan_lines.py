"""A search space and a budget in words, for `zoerefine search --plan`."""

import math
from collections.abc import Sequence

from zoerefine.config.study_keys import StudyKeys
from zoerefine.searching.space import Parameter, size_of


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
