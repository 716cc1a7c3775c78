"""zoerefine runs: changes the labels of the selected runs, or removes them."""

import argparse
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from zoerefine.errors import UserError, damage

if TYPE_CHECKING:
    from zoerefine.listing.labels import Labels
    from zoerefine.listing.run_row import RunRow


def change(rows: "list[RunRow]", args: argparse.Namespace) -> int:
    """Change the labels of the selected runs; exit code 1 where that fails for some."""
    from zoerefine.listing.labels import change_labels
    from zoerefine.visible_text import visible

    faults = []
    for row in rows:
        try:
            change_labels(Path(row.path), lambda old: new_labels(old, args))
        except (UserError, OSError) as error:  # the other runs can be changed
            faults.append((row.path, damage(error)))
        else:
            print(visible(row.path))
    say_reasons("not changed", faults)
    return 1 if faults else 0


def new_labels(old: "Labels", args: argparse.Namespace) -> "Labels":
    """The labels that a run gets."""
    from zoerefine.listing.labels import with_tags

    labels = with_tags(old, args.tag, args.untag)
    if args.note is not None:
        labels = replace(labels, note=args.note)
    return replace(labels, archived=args.archive or (labels.archived and not args.unarchive))


def remove(found: "list[RunRow]", rows: "list[RunRow]", args: argparse.Namespace) -> int:
    """Remove what the rule names, or print what would be removed.

    The exit code is 1 where some of it cannot be removed, though nothing protects it.
    """
    from functools import partial

    from zoerefine.listing.protection import Protection
    from zoerefine.listing.removal import Rule, preview, remove_runs, to_remove
    from zoerefine.visible_text import visible

    rule = Rule(args.keep_best, args.older_than, args.metric, args.maximize)
    protection = Protection(args.runs or ["runs"], found)
    named = to_remove(rows, rule)
    look = partial(preview, protection=protection)
    outcomes = []
    for one in remove_runs(named, protection) if args.yes else map(look, named):
        outcomes.append(one)
        if not one.reason:
            print(visible(f"{'removed' if args.yes else 'would remove'} {one.row.path}"))
    say_reasons("stays", [(one.row.path, one.reason) for one in outcomes if one.reason])
    say_reasons("may use others", [(path, CLOSED) for path in protection.users.closed])
    say_total([one.row for one in outcomes if not one.reason], len(rows), args.yes)
    if args.yes:
        delete_trash(args)
    return 1 if any(one.is_fault for one in outcomes) else 0


CLOSED = "it may not be read, so what it uses is not known and not protected"


def say_reasons(what: str, reasons: Iterable[tuple[str, str]]) -> None:
    """Say why something was not done with runs: a line for each reason, with the first run."""
    from zoerefine.progress import say
    from zoerefine.visible_text import visible

    paths: dict[str, list[str]] = {}
    for path, reason in reasons:
        paths.setdefault(reason.replace(path, "it"), []).append(path)
    for reason, some in paths.items():
        more = f" and {len(some) - 1:,} more" if len(some) > 1 else ""
        say(visible(f"{what}: {some[0]}{more}: {reason}"))


def say_total(removed: "list[RunRow]", count: int, is_done: bool) -> None:
    """Say how many runs are removed, or would be, and their size."""
    from zoerefine.listing.run_row import shown_size
    from zoerefine.progress import say

    size = shown_size(sum(row.bytes for row in removed))
    done = "removed" if is_done else "--yes removes"
    say(f"{done} {len(removed):,} of {count:,} runs, {size}")


def delete_trash(args: argparse.Namespace) -> None:
    """Delete what removals that were killed have left, and say what cannot be deleted."""
    from zoerefine.listing.protection import roots_of
    from zoerefine.listing.trash import empty_all_trash
    from zoerefine.progress import say
    from zoerefine.visible_text import visible

    roots = [Path(root) for pattern in args.runs or ["runs"] for root in roots_of(pattern)]
    for path in empty_all_trash(roots):
        say(visible(f"{path} cannot be deleted completely"))
