"""Checks what a config searches, before torch, Optuna or any data are loaded."""

from collections.abc import Sequence

from zoerefine.config import Config
from zoerefine.errors import UserError
from zoerefine.searching.space import MAX_LISTED, Parameter, size_of
from zoerefine.searching.space_reader import read_space


def check_search_space(cfg: Config) -> None:
    """Raises `UserError` where there is nothing to search, or a grid is too large.

    `load_config` has checked every single value.
    """
    check_size(read_space(cfg.SEARCH), cfg.STUDY.SAMPLER)


def check_size(space: Sequence[Parameter], sampler: str) -> None:
    """Raises `UserError` where a grid would have too many combinations."""
    size = size_of(space)
    if sampler == "grid" and size > MAX_LISTED:
        largest = max(space, key=lambda parameter: parameter.size)
        raise UserError(
            f"STUDY.SAMPLER grid cannot try {size:,.0f} combinations, the limit is {MAX_LISTED:,}: "
            f"list fewer values, above all of {largest.name}"
        )
