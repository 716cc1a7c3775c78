"""zoerefine doctor: what is installed on this machine, what is missing, and what that costs."""

from collections.abc import Sequence
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.commands.options import Parser, add_shared, as_path, print_json


def main(argv: Sequence[str]) -> int:
    """Print the table."""
    parser = Parser(
        "zoerefine doctor",
        "Check this machine: what is installed and how fast it is, what is missing, "
        "and what that costs. Everything in the table is optional except git.",
    )
    parser.add_argument(
        "--folder",
        type=as_path,
        default=Path(),
        metavar="DIR",
        help="where caches will be written (default: the current folder)",
    )
    add_shared(parser, "--json")
    args = parser.parse_args(argv)

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from zoerefine.base.machine.doctor import examine

    if not args.folder.is_dir():
        raise UserError(f"--folder {args.folder} does not exist: give an existing folder")
    checks = examine(args.folder.resolve())
    if args.json:
        print_json({"checks": [vars(check) for check in checks]})
        return 0
    table = Table()
    for column in ("part", "found", "", "cost if missing"):
        table.add_column(column, overflow="fold")
    for check in checks:
        mark = "[green]good[/]" if check.good else "[yellow]missing[/]"
        table.add_row(check.part, escape(check.found), mark, "" if check.good else check.cost)
    Console().print(table)
    return 0
