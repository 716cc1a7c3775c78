"""zoerefine doctor: what is installed on this machine, what is missing, and what that costs."""

import argparse
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="zoerefine doctor",
        description="Check this machine: what is installed and how fast it is, what is missing, "
        "and what that costs. Everything in the table is optional except git.",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="where caches will be written (default: the current folder)",
    )
    args = parser.parse_args(argv)

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from zoerefine.doctor import examine
    from zoerefine.errors import UserError

    if not args.folder.is_dir():
        raise UserError(f"--folder {args.folder} does not exist: give an existing folder")
    table = Table()
    for column in ("part", "found", "", "cost if missing"):
        table.add_column(column, overflow="fold")
    for check in examine(args.folder.resolve()):
        mark = "[green]good[/]" if check.good else "[yellow]missing[/]"
        table.add_row(check.part, escape(check.found), mark, "" if check.good else check.cost)
    Console().print(table)
    return 0
