"""zoerefine run: commit + config -> a run, in a workspace of its own."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from zoerefine.commands.executor_options import add_executor_options, resources_of
from zoerefine.errors import UserError
from zoerefine.launch.launcher import Job, default_home, launch

if TYPE_CHECKING:
    from zoerefine.launch.housekeeping import Kept

EPILOG = """\
examples:
  run_from_commit --repo . --commit HEAD --config configs/demo.yaml --module zoerefine.train \\
      DATA.ROOT data/synthetic TRAIN.LR 3e-4
  run_from_commit --repo https://host/team/any.git --commit 1a2b3c4 --config any.yaml \\
      --module tools/train.py -- --device cpu
  run_from_commit --repo . --commits main,v1.2 --configs a.yaml,b.yaml --seeds 0:5 --parallel 2
  run_from_commit --clean --older-than 14
"""


def main(argv: Sequence[str]) -> int:
    """Launch a job or a queue of them; the exit code is the job's."""
    words, arguments = split_arguments(argv)
    args = parser().parse_intermixed_args(words)
    home = (args.home or default_home()).expanduser().resolve()
    if args.list or args.clean:
        from zoerefine.launch.housekeeping import clean, kept

        removed = clean(home, args.older_than, args.keep) if args.clean else kept(home)
        print_kept(removed, "removed" if args.clean else "kept", home)
        return 0
    if not args.repo:
        raise UserError("--repo is missing: give a folder or a git URL")
    if not (args.config or args.configs):
        raise UserError("--config is missing: give a YAML file")
    if not (args.commit or args.commits or args.branch):
        raise UserError("--commit is missing: give a hash, a tag or a branch")
    job = job_of(args, arguments)
    if args.commits or args.configs or args.seeds or args.executor != "local":
        return queue(args, job, home)
    run, code = launch(job, args.runs, home)
    print(run.path)
    return code


def parser() -> argparse.ArgumentParser:
    """All options; the older spellings mean the same."""
    made = argparse.ArgumentParser(
        prog="run_from_commit",
        description="Check a commit out into a workspace of its own and run a job there, so that "
        "the result belongs to one commit and one config. The same command finds its run again: "
        "a finished one is left as it is, an unfinished one goes on.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument_group("the job").add_argument
    add("--repo", "--repo_url", metavar="URL", help="a folder or a git URL")
    add("--commit", "--commit_hash", metavar="REV", help="a hash, tag or branch")
    add("--branch", "--branch_name", default="", help="the commit must be on this branch")
    add("--config", "--cfg_path", type=Path, metavar="FILE",
        help="a YAML config: a file here, or else one of the commit")  # fmt: skip
    add("--config-flag", "--cfg_path_arg_name", default="--config", metavar="NAME",
        help="how the job takes its config (--config)")  # fmt: skip
    add("--module", "-m", "--module_path", default="zoerefine.train", metavar="NAME",
        help="package.module, or a script's path in the repository (zoerefine.train)")  # fmt: skip
    add("--runs", type=Path, metavar="DIR", help="where runs go (RUN.ROOT, or ./runs)")
    add("--home", "--copies_base_path", type=Path, metavar="DIR",
        help="where mirrors and workspaces go ($ZOEREFINE_HOME, or the user's cache)")  # fmt: skip
    add("--allow-dirty", action="store_true",
        help="record uncommitted changes of a local repository, and apply them")  # fmt: skip
    add("--environment", choices=["current", "venv"], default="current",
        help="venv: made from the commit's own requirements.lock, and kept")  # fmt: skip
    add("--caller", type=Path, default=Path.cwd(), metavar="DIR",
        help="relative paths in the config start here (this folder)")  # fmt: skip
    add("overrides", nargs="*", metavar="KEY VALUE", help="config keys set here; "
        "what stands behind -- goes to the job as it is")  # fmt: skip
    many = made.add_argument_group("many jobs")
    add = many.add_argument
    add("--commits", type=listed, metavar="A,B,...", help="each of these commits, ...")
    add("--configs", type=listed, metavar="X,Y,...", help="... with each of these configs, ...")
    add("--seeds", type=seeds, metavar="0:5", help="... and each of these seeds (0:5 or 1,3)")
    add("--seed-key", default="SEED", metavar="KEY", help="the config key of the seed (SEED)")
    add("--parallel", type=positive, default=1, metavar="N", help="how many at a time (1)")
    add_executor_options(many)
    add = made.add_argument_group("what is kept on disk").add_argument
    add("--list", action="store_true", help="list workspaces, environments and mirrors")
    add("--clean", action="store_true", help="remove those that no run is using")
    add("--older-than", type=float, default=0, metavar="DAYS",
        help="--clean: only what was not used for so long (0)")  # fmt: skip
    add("--keep", type=int, default=0, metavar="N",
        help="--clean: not the N workspaces that were used last (0)")  # fmt: skip
    return made


def split_arguments(argv: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Our own words, and those behind the first `--`, which are the job's."""
    words = list(argv)
    if "--" not in words:
        return words, ()
    place = words.index("--")
    return words[:place], tuple(words[place + 1 :])


def listed(text: str) -> list[str]:
    """`a,b` as a list."""
    return [part for part in text.split(",") if part]


def seeds(text: str) -> list[int]:
    """`0:5` (0 to 4) or `1,3` as a list."""
    first, colon, end = text.partition(":")
    found = list(range(int(first), int(end))) if colon else [int(part) for part in listed(text)]
    if not found:
        raise ValueError(text)
    return found


def positive(text: str) -> int:
    """A number of at least one."""
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


def job_of(args: argparse.Namespace, arguments: tuple[str, ...]) -> Job:
    """The job that the options describe."""
    flag = args.config_flag if args.config_flag.startswith("-") else f"--{args.config_flag}"
    return Job(
        repo=args.repo,
        ref=args.commit or (args.commits or [args.branch])[0],
        config=Path(args.config or args.configs[0]),
        module=args.module,
        overrides=tuple(args.overrides),
        arguments=arguments,
        config_flag=flag,
        branch=args.branch,
        allow_dirty=args.allow_dirty,
        environment=args.environment,
        caller=args.caller.resolve(),
    )


def queue(args: argparse.Namespace, job: Job, home: Path) -> int:
    """Launch the product of commits, configs and seeds."""
    from zoerefine.launch.executor import open_executor
    from zoerefine.launch.job_queue import make_queue, run_queue

    commits = args.commits or [job.ref]
    configs = [Path(name) for name in args.configs or [job.config]]
    entries = make_queue(job, commits, configs, args.seeds or [], args.seed_key, args.runs, home)
    with open_executor(args.executor, resources_of(args)) as executor:
        return run_queue(entries, executor, args.parallel)


def print_kept(entries: "Sequence[Kept]", word: str, home: Path) -> None:
    """A table of what is kept, or was removed."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{word} in {home}", title_justify="left")
    for column in ("kind", "name", "MB", "hours since use", "used by"):
        table.add_column(column, justify="right" if column[0] in "Mh" else "left", overflow="fold")
    for one in entries:
        name = one.folder.relative_to(home).as_posix().partition("/")[2]
        user = f"{one.run} (now)" if one.in_use and one.run else "in use" if one.in_use else one.run
        numbers = f"{one.bytes / 2**20:.1f}", f"{one.age_s / 3600:.1f}"
        table.add_row(one.kind, name, *numbers, user)
    Console(soft_wrap=True).print(table)
