"""Which metrics are better where they are higher."""

import re

from zoerefine.base.errors import UserError

# The names of our own runs' metrics that are better where they are higher.
HIGHER_IS_BETTER = re.compile(
    r"(val|test)(_scenes)?\.(.+\.)?(delta[123]|boundary_f1)|(train\.)?images_per_s"
)
BEST_AT = re.compile(r"(val|test)(?:_scenes)?\.(.+\.)?coverage(90)")  # percent


def is_maximized(metric: str, asked: bool) -> bool:
    """Whether a metric is better where it is higher: as it is asked for, or known of ours.

    Raises `UserError` for one of ours that is best in between, unless it is asked for.
    """
    if not asked and (found := BEST_AT.fullmatch(metric)):
        raise UserError(
            f"{metric} is best at 0.{found[3]}, so neither its lowest nor its highest value is: "
            "give another metric, or --maximize"
        )
    return asked or HIGHER_IS_BETTER.fullmatch(metric) is not None
