"""zoerefine runs: list, tag, archive and remove runs."""

import argparse
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zoerefine.base.errors import UserError
from zoerefine.base.messages import say, visible
from zoerefine.commands.options import CommandParser, add_shared, days, print_json
from zoerefine.commands.runs_changes import (
    ARCHIVE_COMMANDS,
    all_removed,
    change,
    change_trash,
    changes_labels,
    check_changes,
    filters,
    remove,
)
from zoerefine.lab.launch.record.times_and_speeds import by_weight

if TYPE_CHECKING:
    from zoerefine.lab.listing.table import RunRow

USUAL_METRIC = "val.refined.abs_rel"
# The options that --help lists; --help-all lists all.
USUAL = (
    "--where", "--state", "--name", "--sort", "--metric", "--tag", "--note", "--archive",
    "--remove", "--restore", "--keep-best", "--older-than", "--yes", "--watch",
)  # fmt: skip
DESCRIPTION = """\
List runs with state, start, size and a metric. Filters select runs; --tag, --note, --archive and
--remove change the selected ones. Archived runs are listed only with --archived.

--remove never removes a run that is running, damaged or tagged, that belongs to a study, that an
engine bundle was exported from, whose weights another run or a study starts from, or whose files
another run has as --input. It prints what it would remove, and with --yes moves it to the trash,
from which --restore brings it back for 30 days.

`zoerefine runs push` and `zoerefine runs pull` copy runs to an object store or another disk, and
back. Each has its own --help.
"""
EXAMPLES = """\
examples, after `make demo`:
  zoerefine runs
  zoerefine runs --where "state=='finished' and TRAIN.LR>1e-4" --sort val.refined.abs_rel
  zoerefine runs runs/demo/latest/best --tag paper --note "table 2"
  zoerefine runs --remove --keep-best 5 --older-than 30
  zoerefine runs --restore 'unet/*'
  zoerefine runs --watch
  zoerefine runs push runs/demo/latest s3://bucket/runs

exit codes:
  0  done; runs that are protected stay
  1  some runs could not be changed or removed, the message says why
  2  nothing was done, the message says why
"""


def main(argv: Sequence[str]) -> int:
    """List runs, or change the selected ones."""
    if argv and argv[0] in ARCHIVE_COMMANDS:
        return ARCHIVE_COMMANDS[argv[0]](argv[1:])
    args = options().parse_args(argv)
    check_options(args)
    if args.watch:
        from zoerefine.lab.listing.table import watch

        watch(lambda: selected(args)[1][: args.limit], args.metric)
        return 0
    if args.restore is not None or args.empty_trash:
        return change_trash(args)
    if args.remove and args.yes and all_removed(args):
        say("nothing to remove: every run there is in the trash")
        return 0
    found, rows, left_out = selected(args)
    report_left_out(left_out)
    if changes_labels(args):
        return change(rows, args)
    if args.remove:
        return remove(found, rows, args)
    return show(rows, args)


def selected(args: argparse.Namespace) -> "tuple[list[RunRow], list[RunRow], dict[str, str]]":
    """All runs, the selected ones in order, and what `--where` could not be applied to."""
    from zoerefine.lab.listing.index import find_rows
    from zoerefine.lab.listing.selection import Selection, select, sort_rows

    selection = Selection(*filters(args))
    if changes_labels(args) and not args.runs and selection.is_everything:
        raise UserError("this would change every run: name runs, or give a filter such as --state")
    found, index = find_rows(args.runs or ["runs"], patterns_of_output=args.metric_pattern)
    chosen, left_out = select(found, index, selection)
    rows = sort_rows(chosen, index, args.sort, args.reverse != (args.sort == "started"))
    index.save()
    return found, rows, left_out


def options() -> argparse.ArgumentParser:
    """The command's options."""
    parser = CommandParser("zoerefine runs", DESCRIPTION, EXAMPLES, USUAL)
    add = parser.add_argument
    add("runs", nargs="*", metavar="RUN", help="folders of runs, runs, studies, or globs of them "
        "(default: runs)")  # fmt: skip
    add("--where", default="", metavar="FILTER", help="only runs that match: comparisons of config "
        "keys, metrics, state, seed, commit, name and tags, joined by and, or, not")  # fmt: skip
    add("--state", action="append", default=[],
        choices=("running", "finished", "failed", "killed", "damaged"),
        help="only runs in this state; may be repeated")  # fmt: skip
    add("--commit", default="", metavar="HASH", help="only runs of this commit, by its beginning")
    add("--name", default="", metavar="GLOB", help="only runs of this name, such as 'unet*'")
    add("--tagged", default="", metavar="TAG", help="only runs with this tag")
    add("--archived", action="store_true", help="archived runs in the place of the others")
    add("--sort", default="started", metavar="KEY", help="started (newest first, the default), "
        "state, name, size, commit, seed, a metric or a config key")  # fmt: skip
    add("--reverse", action="store_true", help="sort in the other direction")
    add("--limit", type=int, metavar="N", help="list at most N runs")
    add("--metric", default=USUAL_METRIC, metavar="NAME", help="the metric that is listed "
        "and that --keep-best compares (default: %(default)s; where no run has it, the list shows "
        "one that all runs share)")  # fmt: skip
    add_shared(parser, "--metric-pattern")
    add("--tag", action="append", default=[], metavar="TAG", help="add a tag; may be repeated")
    add("--untag", action="append", default=[], metavar="TAG", help="take a tag away")
    add("--note", metavar="TEXT", help="write a note; an empty text removes it")
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--archive", action="store_true", help="list the runs no longer by default")
    one.add_argument("--unarchive", action="store_true", help="list them again; needs --archived")
    one.add_argument("--remove", action="store_true", help="remove the selected runs, or those "
        "of them that a rule names")  # fmt: skip
    one.add_argument("--restore", metavar="NAME", help="bring removed runs back: ID, NAME/ID or a "
        "glob")  # fmt: skip
    one.add_argument("--empty-trash", action="store_true", help="delete removed runs for good")
    one.add_argument("--watch", action="store_true", help="redraw the list until Ctrl-C")
    add("--keep-best", type=int, metavar="N", help="rule: not among the N best of their name; runs "
        "without the metric stay")  # fmt: skip
    add_shared(parser, "--maximize")
    add("--older-than", type=days, metavar="DAYS", help="rule: ended more than DAYS days ago")
    add("--yes", action="store_true", help="remove, do not only print")
    add_shared(parser, "--json", "--quiet")
    return parser


def check_options(args: argparse.Namespace) -> None:
    """Raises `UserError` for options that do not fit together."""
    check_changes(args)
    changes = args.remove or args.restore is not None or args.empty_trash or changes_labels(args)
    if (args.limit or 0) < 0:
        raise UserError("--limit must not be negative")
    if args.watch and changes_labels(args):
        raise UserError("--watch changes nothing: leave out the other options")
    if args.json and (args.watch or changes):
        raise UserError("--json is for the list: leave out --watch and the options of changes")
    if args.watch and not sys.stdout.isatty():
        raise UserError("--watch needs a terminal")


def report_left_out(left_out: dict[str, str]) -> None:
    """Say how many runs the filter could not be applied to, with the first reason."""
    if left_out:
        path, reason = next(iter(left_out.items()))
        count = len(left_out)
        say(visible(f"--where cannot be applied to {count:,} runs, such as {path}: {reason}"))


def listed_metric(rows: "list[RunRow]", asked: str) -> str:
    """The metric of the list: the default only where a run has it, else one that all share."""
    measured = [row.metrics for row in rows if row.metrics]
    if asked != USUAL_METRIC or not measured or any(asked in found for found in measured):
        return asked
    shared = [name for name in measured[0] if all(name in one for one in measured)]
    return min(shared, key=by_weight, default=asked)


def show(rows: "list[RunRow]", args: argparse.Namespace) -> int:
    """Print the list."""
    from zoerefine.lab.listing.table import fitted, header, line_of, summary

    shown = rows if args.limit is None else rows[: args.limit]
    if args.json:
        print_json({"runs": [row.facts() for row in shown]})
        return 0
    metric = listed_metric(shown, args.metric)
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        lines = [header(metric)[:width], *(fitted(row, metric, width) for row in shown)]
    else:  # a pipe gets whole lines
        lines = [header(metric), *(line_of(row, metric) for row in shown)]
    print("\n".join(lines))
    say(summary(rows))
    return 0
