"""The option --quiet, which every command that prints progress has."""

import argparse
from typing import Any

from zoerefine.progress import be_quiet


class BeQuiet(argparse.Action):
    """Hides progress and messages as soon as it is read."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, **options)

    def __call__(self, *_: object) -> None:
        be_quiet()


def add_quiet_option(options: "argparse._ActionsContainer") -> None:
    """Add --quiet."""
    options.add_argument(
        "-q", "--quiet", action=BeQuiet, dest=argparse.SUPPRESS,
        help="print only results, warnings and errors: no progress, no messages",
    )  # fmt: skip
