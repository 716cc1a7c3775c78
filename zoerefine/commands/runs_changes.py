"""zoerefine runs: changes labels, removes runs, and copies them to an archive and back."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoerefine.base.errors import UserError, damage
from zoerefine.base.messages import say, visible, warn
from zoerefine.base.metric_direction import is_maximized
from zoerefine.commands.options import Parser, add_shared, as_path

if TYPE_CHECKING:
    from zoerefine.lab.listing.labels import Labels
    from zoerefine.lab.listing.table import RunRow


def filters(args: argparse.Namespace) -> tuple[str, tuple[str, ...], str, str, str, bool]:
    """What the options select, as the fields of a `Selection`."""
    return args.where, tuple(args.state), args.commit, args.name, args.tagged, args.archived


def changes_labels(args: argparse.Namespace) -> bool:
    """Whether tags, notes or the archived mark are changed."""
    asked = args.tag or args.untag or args.note is not None or args.archive or args.unarchive
    return bool(asked)


def check_changes(args: argparse.Namespace) -> None:
    """Raises `UserError` for options of changes that do not fit together, or name too little."""
    from zoerefine.lab.listing.labels import check_note, check_tag

    for tag in [*args.tag, *args.untag]:
        check_tag(tag)
    check_note(args.note or "")
    rule = args.keep_best is not None or args.older_than is not None
    if args.remove and not (rule or args.runs or any(filters(args))):
        raise UserError("--remove needs runs, a filter such as --state failed, or a rule: "
                        "--keep-best N, --older-than DAYS")  # fmt: skip
    if (rule or args.yes or args.maximize) and not args.remove:
        raise UserError("--keep-best, --older-than, --maximize and --yes belong to --remove")
    if args.remove and (args.tag or args.untag or args.note is not None):
        raise UserError("--remove cannot be given with --tag, --untag or --note")
    if (args.keep_best or 0) < 0:
        raise UserError("--keep-best must not be negative")
    in_trash = args.restore is not None or args.empty_trash
    if in_trash and (changes_labels(args) or any(filters(args)) or args.limit is not None):
        raise UserError("--restore and --empty-trash only take folders of runs")
    if args.limit is not None and (args.remove or changes_labels(args)):
        raise UserError(
            "--limit only shortens the list: name runs, or give a filter such as --name"
        )


def change(rows: "list[RunRow]", args: argparse.Namespace) -> int:
    """Change the labels of the selected runs; exit code 1 where that fails for some."""
    from zoerefine.lab.listing.labels import change_labels

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
    from zoerefine.lab.listing.labels import with_tags

    labels = with_tags(old, args.tag, args.untag)
    if args.note is not None:
        labels = replace(labels, note=args.note)
    return replace(labels, archived=args.archive or (labels.archived and not args.unarchive))


def remove(found: "list[RunRow]", rows: "list[RunRow]", args: argparse.Namespace) -> int:
    """Move the runs to the trash, those that a rule names, or print what would be removed.

    The exit code is 1 where some of it cannot be removed, though nothing protects it. Raises
    `UserError` where the best runs are asked for, and none has the metric.
    """
    from zoerefine.lab.listing.protection import Protection
    from zoerefine.lab.listing.removal import Rule, delete_old, preview, remove_run, to_remove

    if rows and args.keep_best is not None and not any(args.metric in row.metrics for row in rows):
        raise UserError(f"--keep-best: no run has {args.metric}: give another --metric")
    highest = args.keep_best is not None and is_maximized(args.metric, args.maximize)
    rule = Rule(args.keep_best, args.older_than, args.metric, highest)
    protection = Protection(args.runs or ["runs"], found)
    left = delete_old(map(Path, protection.roots)) if args.yes else []
    outcomes = []
    for row in to_remove(rows, rule):
        outcomes.append(one := (remove_run if args.yes else preview)(row, protection))
        if not one.reason:
            print(visible(f"{'removed' if args.yes else 'would remove'} {one.row.path}"))
    say_reasons("stays", [(one.row.path, one.reason) for one in outcomes if one.reason])
    say_reasons("may use others", [(str(path), UNREADABLE) for path in protection.unreadable])
    say_reasons("stays in the trash", [(str(path), LEFT) for path in left])
    if args.keep_best is not None:
        otherwise = "" if highest else " (--maximize: the highest)"
        say(f"best is the {'highest' if highest else 'lowest'} {args.metric}{otherwise}")
    say_total([one.row for one in outcomes if not one.reason], len(rows), args.yes)
    return 1 if any(one.is_fault for one in outcomes) else 0


def all_removed(args: argparse.Namespace) -> bool:
    """Whether each of the folders had runs, and all of them are in the trash."""
    from zoerefine.lab.listing.removal import removed_runs
    from zoerefine.lab.runs.find import find_runs

    patterns = args.runs or ["runs"]
    if any(find_runs(pattern) for pattern in patterns):
        return False
    return all(removed_runs(trash_places([pattern])) for pattern in patterns)


def trash_places(patterns: Sequence[str]) -> list[Path]:
    """The folders in which, or one level below which, removed runs are looked for."""
    from zoerefine.lab.listing.protection import roots_of

    return [Path(root) for pattern in patterns for root in roots_of(pattern)]


UNREADABLE = "it cannot be read, so what it starts from is not known and not protected"
LEFT = "it cannot be deleted completely"


def say_reasons(what: str, reasons: Iterable[tuple[str, str]]) -> None:
    """Say why something was not done with runs: a line for each reason, with the first run."""
    paths: dict[str, list[str]] = {}
    for path, reason in reasons:
        paths.setdefault(reason.replace(path, "it"), []).append(path)
    for reason, some in paths.items():
        more = f" and {len(some) - 1:,} more" if len(some) > 1 else ""
        say(visible(f"{what}: {some[0]}{more}: {reason}"))


def say_total(removed: "list[RunRow]", count: int, is_done: bool) -> None:
    """Say how many runs are removed, or would be, their size, and how they come back."""
    from zoerefine.lab.listing.removal import KEPT_DAYS
    from zoerefine.lab.listing.table import shown_size

    size = shown_size(sum(row.bytes for row in removed))
    done = "removed" if is_done else "--yes removes"
    say(f"{done} {len(removed):,} of {count:,} runs, {size}")
    if is_done and removed:
        say(f"kept for {KEPT_DAYS} days: --restore brings them back, --empty-trash frees the disk")


def change_trash(args: argparse.Namespace) -> int:
    """Bring removed runs back, or delete all; exit code 1 where that fails for some."""
    from zoerefine.lab.listing.removal import delete, removed_runs, restore

    places = trash_places(args.runs or ["runs"])
    if args.empty_trash:
        removed = removed_runs(places)
        faults = [(str(path), LEFT) for path in delete(removed)]
        say(f"deleted {len(removed) - len(faults):,} of {len(removed):,} removed runs")
    else:
        faults = []
        for run, reason in restore(args.restore, places):
            if reason:
                faults.append((str(run), reason))
            else:
                print(visible(f"restored {run}"))
    say_reasons("stays in the trash", faults)
    return 1 if faults else 0


PUSH = """\
Copy runs to URL/NAME/ID: an object store (s3://bucket/folder) or a folder of another disk. Files
that are there already are verified and not sent again. Every digest is verified, and the archive
is complete when its manifest is written, last. A run that is running is refused; the others
are copied, and the exit code is 1. After a kill the same command goes on.

Credentials come from the environment or from the store's own files, such as ~/.aws.
"""
PUSH_EXAMPLES = """\
examples, after `make demo`:
  zoerefine runs push runs/demo/latest s3://bucket/runs
  zoerefine runs push runs/demo/* /mnt/archive
"""
PULL = """\
Copy archived runs back into a runs folder. A run appears there when every digest is verified. A run
that is there already is compared and never overwritten. After a kill the same command goes on.
"""
PULL_EXAMPLES = """\
example:
  zoerefine runs pull s3://bucket/runs/demo/b77d9226-3c3c1f53
"""


def push(argv: Sequence[str]) -> int:
    """Archive runs."""
    options = Parser("zoerefine runs push", PUSH, PUSH_EXAMPLES)
    add_shared(options, "--quiet")
    add = options.add_argument
    add("runs", nargs="+", metavar="RUN", help="run directories, studies included")
    add("url", metavar="URL", help="the folder of archives: any URL of fsspec, or a path")
    args = options.parse_args(argv)

    from zoerefine.lab.archive.push import find_run, push
    from zoerefine.lab.archive.remote import Remote

    remote = Remote(args.url)
    return copy_each(map(find_run, args.runs), lambda run: push(run, remote))


def pull(argv: Sequence[str]) -> int:
    """Fetch archived runs."""
    options = Parser("zoerefine runs pull", PULL, PULL_EXAMPLES)
    add_shared(options, "--quiet")
    add = options.add_argument
    add("urls", nargs="+", metavar="URL", help="archives, as `push` printed them")
    add("--runs", type=as_path, default=Path("runs"), metavar="DIR",
        help="the runs folder that they are copied into (default: runs)")  # fmt: skip
    args = options.parse_args(argv)

    from zoerefine.lab.archive.pull import pull
    from zoerefine.lab.archive.remote import Remote

    return copy_each(args.urls, lambda url: str(pull(Remote(url), args.runs)))


def copy_each(places: Iterable[Any], copy: Callable[[Any], str]) -> int:
    """Copy runs, and print where they are now; where one is refused, name it and go on.

    Raises the `UserError` where there is no other run.
    """
    several, faults = list(dict.fromkeys(places)), 0
    for place in several:
        try:
            print(visible(copy(place)), flush=True)
        except UserError as error:
            if len(several) == 1:
                raise
            warn(f"not copied: {error}")
            faults += 1
    return 0 if not faults else 1 if faults < len(several) else 2


# The words that follow `zoerefine runs`.
ARCHIVE_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {"push": push, "pull": pull}
