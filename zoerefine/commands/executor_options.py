"""The options that choose where jobs run, shared by `run` and `search`."""

import argparse
from dataclasses import fields

from zoerefine.launch.executor import Resources
from zoerefine.registries import EXECUTORS


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
            type=type(one.default),
            default=one.default,
            metavar="VALUE" if isinstance(one.default, str) else "N",
            help=f"clusters only: {one.metadata['help']}",
        )


def resources_of(args: argparse.Namespace) -> Resources:
    """The resources that the options ask for."""
    return Resources(**{one.name: getattr(args, one.name) for one in fields(Resources)})
