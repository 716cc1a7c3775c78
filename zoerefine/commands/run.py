"""zoerefine run: a commit and a config become a run, in a workspace of its own."""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from zoerefine.base.config_roles import OWN_MODULES
from zoerefine.base.errors import UserError
from zoerefine.base.messages import counted, is_quiet, say
from zoerefine.base.yaml.keys import paired
from zoerefine.commands.options import (
    SHARED,
    CommandParser,
    add_executor_options,
    add_shared,
    as_path,
    days,
    existing_config,
    notifying,
    resources_of,
    whole,
)
from zoerefine.lab.launch.home import home_folder
from zoerefine.lab.launch.housekeeping import (
    clean,
    print_cluster_jobs,
    print_stored,
    stored_folders,
    to_clean,
)
from zoerefine.lab.launch.job import NO_CONFIG, OPTIONS, Job, usual_overrides, with_tuples
from zoerefine.lab.launch.launcher import launch
from zoerefine.lab.launch.queue.executor import NO_RESOURCES
from zoerefine.lab.launch.variables import read_named

if TYPE_CHECKING:
    from zoerefine.lab.launch.queue.job_queue import QueuedJob

MOST_SEEDS = 10_000
# Option names of the first launcher, which ran jobs in the caller's folder.
OLDER_SPELLINGS = (
    *("--repo_url", "--branch_name", "--commit_hash", "--cfg_path", "--cfg_path_arg_name"),
    *("--copies_base_path", "--module_path"),
)
# The options that --help lists; --help-all lists all.
USUAL = (
    "--repo", "--commit", "--config", "--config-flag", "--module", "--overrides", "--seeds",
    "--seed-key", "--configs", "--parallel", "--environment", "--executor", "--list", "--clean",
)  # fmt: skip
EPILOG = """\
examples, after `zoerefine data synthesize data/synthetic`; --repo may be any git URL:
  zoerefine run --repo . --commit HEAD --config configs/demo.yaml DATA.ROOT data/synthetic
  zoerefine run --repo . --commit HEAD --config configs/search.yaml --module zoerefine.search \\
      DATA.ROOT data/synthetic -- --workers 2
  zoerefine run --repo . --commits HEAD,HEAD~1 --configs configs/demo.yaml,configs/search.yaml \\
      --seeds 0:2 --parallel 2 DATA.ROOT data/synthetic
  zoerefine run --repo . --commit HEAD --config configs/demo.yaml --overrides file \\
      TRAIN.EPOCHS 2 +DATA.ROOT data/synthetic
  zoerefine run --clean --older-than 14 --yes

a script without a config, called with --lr=0.2:
  zoerefine run --repo . --commit HEAD --module train.py lr 0.2

docs/run-contract.md lists what a job is given, and what becomes of the files that it leaves.

exit code: the job's own; 2: the launch was refused, the message says why; 130: stopped by Ctrl-C
"""


def main(argv: Sequence[str]) -> int:
    """Launch a job or a queue of jobs; the exit code is the job's."""
    args, arguments = parsed(parser(), argv)
    home = home_folder(args.home)
    if args.list or args.clean:
        if args.clean and args.yes:
            removed = clean(home, args.older_than, args.keep, args.discard)
            print_stored(removed, "removed from", home)
        elif args.clean:
            found = to_clean(home, args.older_than, args.keep)
            print_stored(found, "would be removed from", home)
            say(f"--yes removes {counted(len(found), 'folder')}, of every repository")
        else:
            print_stored(stored_folders(home), "kept in", home)
        if args.list:
            print_cluster_jobs()
        return 0
    args.config = args.config or (args.configs or [None])[0]
    if not args.config and args.module.startswith(OWN_MODULES):
        raise UserError("--config is missing: give a YAML file")
    args.ref = args.ref or (args.commits or [args.branch])[0]
    if not args.ref:
        raise UserError("--commit is missing: give HEAD, a hash, a tag or a branch")
    job = job_of(args, arguments)
    if args.seeds and not args.seed_key and job.overrides_in in OPTIONS:
        mark = "--" if job.overrides_in == "options" else ""
        raise UserError("--seeds: give --seed-key with the script's name for its seed, such as "
                        f"seed for {mark}seed=0")  # fmt: skip
    cluster = args.executor != "local" or resources_of(args) != NO_RESOURCES
    if args.commits or args.configs or args.seeds or cluster:
        return queue(args, job, home)
    with notifying(args.notify, "launch") as ending:
        run, code = launch(job, args.runs, home, args.once_more, args.planned)
        ending.run, ending.code, ending.message = run.path, code, run.status().reason
    if code and (is_quiet() or job.processes > 1):  # after torchrun's report, or instead of all
        print(f"error: {run.status().reason}; see {run.log_file}", file=sys.stderr)
    print(run.path)
    return code


def parser() -> argparse.ArgumentParser:
    """All options; older spellings have the same meaning."""
    made = CommandParser(
        "zoerefine run",
        "Run a job from a git commit and a config. The commit is checked out into a "
        "workspace, so your working tree is not used and may change meanwhile. The same command "
        "finds its run again: a finished run is left as it is, an unfinished one resumes.",
        EPILOG,
        USUAL,
    )
    add_job_options(made.add_argument_group("the job"))
    many = made.add_argument_group("several jobs: every combination of commits, configs and seeds")
    add = many.add_argument
    add("--commits", type=listed, metavar="A,B,...", help="commits, tags or branches")
    add("--configs", type=listed, metavar="X,Y,...", help="config files")
    add("--seeds", type=seeds, metavar="SEEDS", help="0:5 for 0, 1, 2, 3, 4; or a list: 1,3")
    add("--fail-fast", action="store_true",
        help="when a job fails, stop the others and start no more")  # fmt: skip
    add("--metric", default="", metavar="NAME",
        help="the metric that the table shows of each job (default: the first ones)")  # fmt: skip
    add("--parallel", type=whole(1), default=0, metavar="N",
        help="run N jobs at a time (default: 1; with slurm all at once)")  # fmt: skip
    add_executor_options(many)
    add_shared(made, "--notify", "--quiet")
    made.add_argument("--planned", type=Path, help=argparse.SUPPRESS)  # by a queue
    add = made.add_argument_group("disk space").add_argument
    add("--list", action="store_true",
        help="list the workspaces, environments and mirrors on disk")  # fmt: skip
    add("--clean", action="store_true",
        help="print which of them no run is using; with --yes remove these, but workspaces with "
        "files that were not collected")  # fmt: skip
    add("--yes", action="store_true", help="with --clean: remove, do not only print")
    add("--discard", action="store_true",
        help="with --clean: delete these files, too")  # fmt: skip
    add("--older-than", type=days, default=0, metavar="DAYS",
        help="with --clean: keep what was used within the last DAYS days (default: 0)")  # fmt: skip
    add("--keep", type=whole(0), default=0, metavar="N",
        help="with --clean: keep the N most recently used workspaces (default: 0)")  # fmt: skip
    return made


def listed(text: str) -> list[str]:
    """`a,b` as a list."""
    return [part for part in text.split(",") if part]


def seeds(text: str) -> list[int]:
    """`0:5` (0 to 4) or `1,3` as a list."""
    first, colon, end = text.partition(":")
    found = range(int(first), int(end)) if colon else [int(part) for part in listed(text)]
    if not found:
        raise ValueError(text)
    if len(found) > MOST_SEEDS:
        raise argparse.ArgumentTypeError(f"{len(found)} seeds; the limit is {MOST_SEEDS}")
    return list(found)


def queue(args: argparse.Namespace, job: Job, home: Path) -> int:
    """Launch every combination of commits, configs and seeds, or one job on a cluster."""
    from zoerefine.lab.launch.queue.executor import agreed_settings, open_executor
    from zoerefine.lab.launch.queue.job_queue import make_queue, run_queue

    commits = args.commits or [job.ref]
    configs = [existing_config(str(name)) for name in args.configs or [job.config]]
    with notifying(args.notify, "queue") as ending:
        jobs = make_queue(job, commits, configs, args.seeds or [], args.runs, home, args.once_more)
        for one in jobs:
            one.metric = args.metric
        agreed = agreed_settings([one.cluster for one in jobs]) if args.executor != "local" else {}
        resources = resources_of(args, agreed)
        if job.processes % resources.nodes:
            raise UserError(
                f"--processes {job.processes} cannot be divided among --nodes {resources.nodes}: "
                "give a multiple"
            )
        with open_executor(args.executor, resources) as executor:
            ending.code = run_queue(jobs, executor, args.parallel, args.fail_fast)
        if is_quiet():  # in place of the table
            print_queue(jobs)
        if not (args.commits or args.configs or args.seeds) and jobs[0].code is not None:
            ending.code = jobs[0].code  # one job: its own
        states = Counter(one.state for one in jobs)
        ending.message = ", ".join(f"{count} {state}" for state, count in states.items())
    return ending.code


def print_queue(jobs: "Sequence[QueuedJob]") -> None:
    """The runs of a queue, and why jobs failed."""
    for one in jobs:
        if one.state in ("failed", "killed"):
            print(f"error: {one.title} {one.state}: {one.message}", file=sys.stderr)
        print(one.run.path)


def add_job_options(group: "argparse._ArgumentGroup") -> None:
    """The options that describe one job, and where it runs."""
    add = group.add_argument
    for one in fields(Job):
        if one.name == "again":
            add("--again", dest="once_more", action="store_true",
                help="run a finished job once more, beside the first run")  # fmt: skip
        if one.name == "allow_dirty":
            add("--runs", type=as_path, metavar="DIR",
                help="where run directories are made (default: RUN.ROOT, or ./runs)")  # fmt: skip
            add("--home", "--copies_base_path", type=as_path, metavar="DIR",
                help="where mirrors, workspaces and environments are kept (default: "
                "$ZOEREFINE_HOME, or ~/.cache/zoerefine)")  # fmt: skip
        if words := one.metadata.get("words"):
            words, shared = SHARED.get(words[0], (words, {}))
            dest = {"dest": one.name} if words[0].startswith("-") else {}
            add(*words, **shared | one.metadata["parsed"] | dest)


def parsed(
    parser: argparse.ArgumentParser, argv: Sequence[str]
) -> tuple[argparse.Namespace, tuple[str, ...]]:
    """The options, with a default of --cwd, and the job's words after the first `--`."""
    place = argv.index("--") if "--" in argv else len(argv)
    words = join_config_flag(argv[:place])
    args, unknown = parser.parse_known_intermixed_args(words)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)} (the script's own are given as "
                     "KEY VALUE, such as lr 0.1, or after --, such as -- --fast)")  # fmt: skip
    older = any(word.partition("=")[0] in OLDER_SPELLINGS for word in words)
    args.cwd = args.cwd or ("caller" if older else Job.cwd)
    return args, tuple(argv[place + 1 :])


def join_config_flag(words: Sequence[str]) -> list[str]:
    """`--config-flag --cfg` as `--config-flag=--cfg`, which argparse needs for its value."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in ("--config-flag", "--cfg_path_arg_name"):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def job_of(args: argparse.Namespace, arguments: tuple[str, ...]) -> Job:
    """The job that the options describe. Raises `UserError` for words that are no pairs."""
    paired(args.overrides)
    given = {one.name: getattr(args, one.name) for one in fields(Job) if one.metadata}
    flag, config = args.config_flag, Path(args.config or NO_CONFIG)
    given |= {
        "ref": args.ref or args.branch,
        "config": config,
        "repo": args.repo or ".",
        "seed_key": args.seed_key or Job.seed_key,
        "config_flag": flag if flag.startswith("-") or not flag else f"--{flag}",
        "caller": as_path(args.caller).resolve(),
        "overrides_in": args.overrides_in or usual_overrides(config),
        "record_env": read_named(args.record_env),
        "inputs": [str(as_path(folder).resolve()) for folder in args.inputs],
    }
    return Job(arguments=arguments, **with_tuples(given))
