"""Checks what a config searches, before torch, Optuna or any data are loaded."""

from zoerefine.config import Config
from zoerefine.errors import UserError
from zoerefine.searching.space import MAX_LISTED, size_of
from zoerefine.searching.space_reader import read_space


def check_search_space(cfg: Config) -> None:
    """Raises `UserError` where there is nothing to search, or a grid is too large.

    `load_config` has checked every single value.
    """
    space = read_space(cfg)
    size = size_of(space)
    if cfg.STUDY.SAMPLER == "grid" and size > MAX_LISTED:
        largest = max(space, key=lambda parameter: parameter.size)
        raise UserError(
            f"STUDY.SAMPLER grid cannot try {size:,.0f} combinations, the limit is {MAX_LISTED:,}: "
            f"list fewer values, above all of {largest.name}"
        )
