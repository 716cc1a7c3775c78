"""zoerefine search: config with lists -> an Optuna study."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from zoerefine.commands.executor_options import add_executor_options, resources_of
from zoerefine.config import load_config
from zoerefine.errors import UserError

EPILOG = """\
examples:
  search --config configs/search.yaml --plan DATA.ROOT data/synthetic
  search --config configs/search.yaml --trials 30 --workers 2 --then train DATA.ROOT data/synthetic
  search --config configs/search.yaml --storage postgresql://me@db.lab/studies --workers 8
  search --join runs/search/study      (another worker for it, on this or another machine)
"""


def main(argv: Sequence[str]) -> int:
    """Search what the config lists."""
    args = parser().parse_intermixed_args(argv)
    if args.join:
        from zoerefine.run_dir import RunDir
        from zoerefine.search.trial_worker import work

        work(RunDir(args.join.resolve()), args.name or "joined", args.until)
        return 0
    if not args.config:
        raise UserError("--config is missing: give a YAML file with SEARCH")
    cfg = load_config(args.config, overrides(args))
    if args.plan:
        from zoerefine.search.plan import plan

        print("\n".join(plan(cfg)))
        return 0
    from zoerefine.search.driver import run_study

    print(run_study(cfg, args.enqueue, args.executor, resources_of(args)).path)
    return 0


def parser() -> argparse.ArgumentParser:
    """All options."""
    made = argparse.ArgumentParser(
        prog="search",
        description="Search what a config lists under SEARCH: [a, b] is a choice, {low, high} a "
        "range. The same command goes on with a study that was cut off.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add("--config", metavar="FILE", help="a YAML config")
    add("--plan", action="store_true", help="print the space, its size and the time; run nothing")
    add("--trials", type=int, metavar="N", help="how many trials in all (STUDY.TRIALS)")
    add("--timeout", type=float, metavar="S",
        help="begin no trial after so many seconds (STUDY.TIMEOUT_S)")  # fmt: skip
    add("--workers", type=int, metavar="N", help="how many processes (STUDY.WORKERS)")
    add("--grid", action="store_true",
        help="try every combination of the lists (STUDY.SAMPLER grid)")  # fmt: skip
    add("--enqueue", type=Path, nargs="+", default=[], metavar="PATH",
        help="try these first: configs, or the best trials of other studies")  # fmt: skip
    add("--storage", metavar="URL",
        help="postgresql://user@host/database; the password from PGPASSWORD or ~/.pgpass "
        "(STUDY.STORAGE)")  # fmt: skip
    add_executor_options(made)
    add("--then", choices=["train", "train,export"],
        help="train the best at full length; and export it (STUDY.THEN)")  # fmt: skip
    add("--join", type=Path, metavar="RUN", help="be one more worker of a study that is driven "
        "elsewhere")  # fmt: skip
    add("--name", default="", help=argparse.SUPPRESS)  # of a worker, given by its driver
    add("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    add("overrides", nargs="*", metavar="KEY VALUE", help="config keys set here")
    return made


def overrides(args: argparse.Namespace) -> list[str]:
    """The KEY VALUE pairs, and the options that stand for some."""
    words = list(args.overrides)
    for option, key in (("trials", "TRIALS"), ("timeout", "TIMEOUT_S"), ("workers", "WORKERS"),
                        ("storage", "STORAGE"), ("then", "THEN")):  # fmt: skip
        value = getattr(args, option)
        if value is not None:
            words += [f"STUDY.{key}", str(value)]
    if args.grid:
        words += ["STUDY.SAMPLER", "grid"]
    return words
