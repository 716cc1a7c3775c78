"""The options that choose where jobs run, shared by `run` and `search`.

Not in options.py: they load the executors, which other commands do not need.
"""

import argparse
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

from zoerefine.base.registries import EXECUTORS
from zoerefine.lab.launch.queue.executor import Resources

if TYPE_CHECKING:
    from zoerefine.base.config import Config


def add_executor_options(add: "argparse._ActionsContainer") -> None:
    """Add --executor, and an option for each field of `Resources`."""
    add.add_argument(
        "--executor",
        choices=list(EXECUTORS),
        default="local",
        help="where jobs run. local: on this machine (default); ray: on the Ray cluster whose "
        "head node RAY_ADDRESS names; slurm: as jobs of this machine's Slurm cluster",
    )
    for one in fields(Resources):
        add.add_argument(
            f"--{one.name}",
            type=partial(value_of, type(one.default)),
            metavar="VALUE" if isinstance(one.default, str) else "N",
            help=one.metadata["help"],
        )


def value_of(kind: type, text: str) -> Any:
    """An option's value. `Resources` refuses a text that is no number, and says what is allowed."""
    try:
        return kind(text)
    except ValueError:
        return text


def resources_of(args: argparse.Namespace, settings: Mapping[str, Any] | None = None) -> Resources:
    """The resources that the options ask for.

    Args:
        settings: the fields that a config sets. They are for clusters; options come before them.
    """
    given = {one.name: getattr(args, one.name) for one in fields(Resources)}
    options = {name: value for name, value in given.items() if value is not None}
    return Resources(**(options if args.executor == "local" else {**(settings or {}), **options}))


def settings_of(cfg: "Config") -> dict[str, Any]:
    """The fields of `Resources` by the keys of CLUSTER in a config."""
    return {one.name: getattr(cfg.CLUSTER, one.metadata["key"]) for one in fields(Resources)}
