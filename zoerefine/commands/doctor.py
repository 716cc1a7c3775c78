"""zoerefine doctor: what this machine has and lacks, and what it costs to lack it."""

import argparse
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="doctor",
        description="What this machine has and lacks for zoerefine, and what it costs to lack it.",
    )
    parser.add_argument("--folder", type=Path, default=Path(), help="where caches would lie (here)")
    args = parser.parse_args(argv)

    from rich.console import Console
    from rich.table import Table

    from zoerefine.doctor import examine
    from zoerefine.errors import UserError

    if not args.folder.is_dir():
        raise UserError(f"no folder {args.folder}: give --folder an existing one")
    table = Table()
    for column in ("part", "here", "", "without it"):
        table.add_column(column, overflow="fold")
    for check in examine(args.folder.resolve()):
        mark = "[green]good[/]" if check.good else "[yellow]lacks[/]"
        table.add_row(check.what, check.here, mark, "" if check.good else check.cost)
    Console().print(table)
    return 0
