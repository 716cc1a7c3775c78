"""How many trials a study may have."""

from collections.abc import Sequence

from zoerefine.config.study_keys import StudyKeys
from zoerefine.searching.space import Parameter, size_of


def planned_trials(space: Sequence[Parameter], options: StudyKeys, known: int = 0) -> int:
    """How many trials a study with these keys of STUDY has, if nothing ends it early.

    Args:
        known: combinations that an earlier study has tried.
    """
    left = size_of(space) - known
    return int(left if options.SAMPLER == "grid" else min(options.TRIALS, left))
