"""zoerefine runs push and pull: copy runs to an object store or another folder, and back."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from zoerefine.commands.options import Parser, add_quiet_option, as_path

PUSH = """\
Copy runs to URL/NAME/ID: an object store (s3://bucket/folder) or a folder of another disk. Files
that are there already are verified and not sent again. Every digest is verified, and the archive
is complete when its manifest is written, last. A run that is running is refused. After a kill the
same command goes on.

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
    args = push_options().parse_args(argv)

    from zoerefine.base.texts import visible
    from zoerefine.lab.archive.local_run import find_run
    from zoerefine.lab.archive.push import push
    from zoerefine.lab.archive.remote import Remote

    remote = Remote(args.url)
    for run in dict.fromkeys(map(find_run, args.runs)):
        print(visible(push(run, remote)), flush=True)
    return 0


def pull(argv: Sequence[str]) -> int:
    """Fetch archived runs."""
    args = pull_options().parse_args(argv)

    from zoerefine.base.texts import visible
    from zoerefine.lab.archive.pull import pull
    from zoerefine.lab.archive.remote import Remote

    for url in dict.fromkeys(args.urls):
        print(visible(str(pull(Remote(url), args.runs))), flush=True)
    return 0


# The words that follow `zoerefine runs`.
ARCHIVE_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {"push": push, "pull": pull}


def push_options() -> argparse.ArgumentParser:
    """The options of `zoerefine runs push`."""
    made = parser("push", PUSH, PUSH_EXAMPLES)
    made.add_argument("runs", nargs="+", metavar="RUN", help="run directories, studies included")
    made.add_argument("url", metavar="URL", help="the folder of archives: any URL of fsspec, or a "
                      "path")  # fmt: skip
    return made


def pull_options() -> argparse.ArgumentParser:
    """The options of `zoerefine runs pull`."""
    made = parser("pull", PULL, PULL_EXAMPLES)
    made.add_argument("urls", nargs="+", metavar="URL", help="archives, as `push` printed them")
    made.add_argument("--runs", type=as_path, default=Path("runs"), metavar="DIR",
                      help="the runs folder that they are copied into (default: runs)")  # fmt: skip
    return made


def parser(verb: str, description: str, examples: str) -> argparse.ArgumentParser:
    """A parser with the options that both have."""
    made = Parser(
        prog=f"zoerefine runs {verb}",
        description=description,
        epilog=examples,
    )
    add_quiet_option(made)
    return made
