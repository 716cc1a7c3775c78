"""zoerefine run: commit + config -> a run, in a workspace of its own."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from zoerefine.launch.launcher import Job, default_home, launch


def main(argv: Sequence[str]) -> int:
    """Launch a job; the exit code is the job's."""
    parser = argparse.ArgumentParser(
        prog="run_from_commit",
        description="Check a commit out into a workspace of its own and run a job there, so that "
        "the result belongs to one commit and one config. The same command finds its run again: "
        "a finished one is left as it is, an unfinished one goes on.",
        epilog="Example: run_from_commit --repo . --commit HEAD --config configs/demo.yaml "
        "--module zoerefine.train DATA.ROOT data/synthetic TRAIN.LR 3e-4",
    )
    add = parser.add_argument
    add("--repo", "--repo_url", required=True, metavar="URL", help="a folder or a git URL")
    add("--commit", "--commit_hash", required=True, metavar="REV", help="a hash, tag or branch")
    add("--branch", "--branch_name", default="", help="the commit must be on this branch")
    add("--config", "--cfg_path", required=True, type=Path, metavar="FILE", help="a YAML config")
    add("--config-flag", "--cfg_path_arg_name", default="--config", metavar="NAME",
        help="how the job takes its config (--config)")  # fmt: skip
    add("--module", "--module_path", default="zoerefine.train", metavar="NAME",
        help="package.module, or a script's path in the repository (zoerefine.train)")  # fmt: skip
    add("--runs", type=Path, default=Path("runs"), metavar="DIR", help="where runs go (runs)")
    add("--home", "--copies_base_path", type=Path, metavar="DIR",
        help="where mirrors and workspaces go ($ZOEREFINE_HOME, or the user's cache)")  # fmt: skip
    add("--allow-dirty", action="store_true",
        help="record uncommitted changes of a local repository, and apply them")  # fmt: skip
    add("overrides", nargs="*", metavar="KEY VALUE", help="config keys set here")
    args = parser.parse_args(argv)
    flag = args.config_flag if args.config_flag.startswith("-") else f"--{args.config_flag}"
    job = Job(
        repo=args.repo,
        ref=args.commit,
        config=args.config,
        module=args.module,
        overrides=tuple(args.overrides),
        config_flag=flag,
        branch=args.branch,
        allow_dirty=args.allow_dirty,
    )
    run, code = launch(job, args.runs, args.home or default_home())
    print(run.path)
    return code
