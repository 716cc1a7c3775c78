"""What a search space must fulfil: lengths, sampler, ranges and size.

A command checks it once, before torch, Optuna or any data are loaded.
"""

import math
from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from zoerefine.base.config import Config
from zoerefine.base.config.study_keys import StudyKeys
from zoerefine.base.errors import UserError, missing_package
from zoerefine.lab.search.space.reader import read_space
from zoerefine.lab.search.space.space import MAX_LISTED, Parameter, Range, all_keys, every, size_of

# That samplers need, from the extra `samplers`.
PACKAGES = {"gp": ("scipy",), "cmaes": ("cmaes",), "auto": ("scipy", "cmaes")}


def check_search_space(cfg: Config) -> tuple[Parameter, ...]:
    """The parameters of a config.

    Raises `UserError` where there is nothing to search, or it cannot be searched like this.

    `load_config` has checked every single value.
    """
    if not cfg.DATA.SPLIT and not cfg.DATA.VAL_FRACTION:
        raise UserError("a search chooses by validation scenes: set DATA.VAL_FRACTION above 0")
    space = read_space(cfg.SEARCH)
    check_lengths(cfg, space)
    check_sampler(cfg.STUDY, space)
    return space


def check_lengths(cfg: Config, space: Sequence[Parameter]) -> None:
    """Raises `UserError` where a trial would ignore a searched number of epochs or steps."""
    lengths = sorted(all_keys(space) & {"TRAIN.EPOCHS", "TRAIN.STEPS"})
    if lengths and cfg.STUDY.EPOCHS:
        fixed = f"STUDY.EPOCHS {cfg.STUDY.EPOCHS}"
    elif lengths == ["TRAIN.EPOCHS"] and cfg.TRAIN.STEPS:
        fixed = f"TRAIN.STEPS {cfg.TRAIN.STEPS}"
    else:
        return
    raise UserError(
        f"{fixed} sets how long every trial is, so SEARCH cannot list {' and '.join(lengths)}: "
        f"set {fixed.split()[0]} 0, or search other keys"
    )


def check_sampler(options: StudyKeys, space: Sequence[Parameter]) -> None:
    """Raises `UserError` where STUDY.SAMPLER cannot search a space, or is not installed."""
    sampler = options.SAMPLER
    is_tpe = sampler == "auto" and not all(isinstance(one, Range) for one in space)
    for package in () if is_tpe else PACKAGES.get(sampler, ()):
        if find_spec(package) is None:
            raise missing_package(f"STUDY.SAMPLER {sampler} needs {package}", "samplers")
    if sampler == "grid":
        check_size(space)
    if sampler == "cmaes":
        check_ranges(options, space)


def check_ranges(options: StudyKeys, space: Sequence[Parameter]) -> None:
    """Raises `UserError` where there are not two ranges or not one objective, as CMA-ES needs."""
    ranges = [one for one in space if isinstance(one, Range) and one.size > 1]
    if len(ranges) < 2:
        raise UserError(
            f"STUDY.SAMPLER cmaes needs two ranges or more that every trial has, and SEARCH has "
            f"{len(ranges)}: write {{low, high}} instead of lists, or take tpe"
        )
    if len(options.OBJECTIVES) > 1:
        raise UserError(
            "STUDY.SAMPLER cmaes has one objective, and STUDY.OBJECTIVES has "
            f"{len(options.OBJECTIVES)}: take nsga2, gp or tpe"
        )


def check_size(space: Sequence[Parameter]) -> None:
    """Raises `UserError` where a grid would have too many combinations."""
    if endless := next(endless_ranges(space), None):
        raise UserError(
            f"STUDY.SAMPLER grid tries every combination, and SEARCH.{endless.key} has no end of "
            "them: give a list, or a range with a step"
        )
    size = size_of(space)
    if size > MAX_LISTED:
        largest = max(space, key=lambda parameter: parameter.size)
        raise UserError(
            f"STUDY.SAMPLER grid cannot try {size:,.0f} combinations, the limit is {MAX_LISTED:,}: "
            f"list fewer values, above all of {largest.name}"
        )


def endless_ranges(space: Sequence[Parameter]) -> Iterator[Range]:
    """The ranges that have no finite number of values, those inside options too."""
    return (one for one in every(space) if isinstance(one, Range) and math.isinf(one.size))
