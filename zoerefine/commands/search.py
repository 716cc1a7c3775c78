"""zoerefine search: a config with lists and ranges -> a study -> its best trial."""

import argparse
import uuid
from collections.abc import Sequence
from pathlib import Path

from zoerefine.commands.config_option import add_config_option
from zoerefine.commands.executor_options import add_executor_options, resources_of
from zoerefine.commands.help_format import HelpFormat
from zoerefine.commands.quiet_option import add_quiet_option
from zoerefine.config import load_config
from zoerefine.errors import UserError
from zoerefine.run_dir import RunDir, run_from_launcher
from zoerefine.searching.check import check_search_space

EPILOG = """\
SEARCH in the config mirrors the other keys:
  SEARCH:
    TRAIN: {LR: {low: 1.0e-4, high: 1.0e-2, log: true}}   # a range
    MODEL: {BASE: [16, 32, 48]}                           # a choice
docs/searching.md describes branches, several objectives and limits.

examples, after `zoerefine data synthesize data/synthetic`:
  zoerefine search --config configs/search.yaml --plan DATA.ROOT data/synthetic
  zoerefine search --config configs/search.yaml --trials 30 --workers 2 --then train \\
      DATA.ROOT data/synthetic
  zoerefine search --config configs/search.yaml --grid DATA.ROOT data/synthetic \\
      SEARCH '{MODEL: {BASE: [16, 32], MAX_LOG: [1.0, 2.0]}}'
  zoerefine search --join runs/search/study
"""


def main(argv: Sequence[str]) -> int:
    """Plan a study, run it, or join one as a worker."""
    args = parser().parse_intermixed_args(argv)
    if args.join:
        from zoerefine.searching.trial_worker import run_worker

        name = args.name or f"joined-{uuid.uuid4().hex[:8]}"
        run_worker(RunDir(args.join.resolve()), name, args.until)
        return 0
    if not args.config:
        raise UserError("--config is missing: give a YAML file with SEARCH")
    cfg = load_config(args.config, overrides(args))
    check_search_space(cfg)  # before torch and Optuna are loaded
    if args.plan:
        from zoerefine.searching.plan import plan

        print("\n".join(plan(cfg)))
        return 0
    from zoerefine.searching.driver import run_study

    study = run_study(cfg, args.enqueue, args.executor, resources_of(args))
    if run_from_launcher() is None:  # a launcher prints it
        print(study.path)
    return 0


def parser() -> argparse.ArgumentParser:
    """All options."""
    made = argparse.ArgumentParser(
        prog="zoerefine search",
        description="Search for the best values of the keys that SEARCH in a config lists. Each "
        "trial trains one combination. The same command continues a study that was interrupted.",
        epilog=EPILOG,
        formatter_class=HelpFormat,
    )
    add = made.add_argument
    add_config_option(made, help="a YAML config with SEARCH")
    add("--plan", action="store_true",
        help="print the search space, its size and the time it takes; train nothing")  # fmt: skip
    add("--trials", type=int, metavar="N", help="trials in all (STUDY.TRIALS)")
    add("--timeout", type=float, metavar="SECONDS",
        help="start no trial after this time; 0: no limit (STUDY.TIMEOUT_S)")  # fmt: skip
    add("--workers", type=int, metavar="N", help="trials that run at a time (STUDY.WORKERS)")
    add("--grid", action="store_true",
        help="try every combination of the lists (STUDY.SAMPLER grid)")  # fmt: skip
    add("--enqueue", type=Path, nargs="+", default=[], metavar="PATH",
        help="try these first: configs, or another study's run for its best five "
        "trials")  # fmt: skip
    add("--storage", metavar="URL",
        help="database of the study, postgresql://USER@HOST/DATABASE, with the password in "
        "PGPASSWORD or ~/.pgpass; default: a SQLite file in the study's run "
        "(STUDY.STORAGE)")  # fmt: skip
    add_executor_options(made)
    add_quiet_option(made)
    add("--then", choices=["train", "train,export"], metavar="WHAT",
        help="after the last trial; train: train the best at full length; train,export: also "
        "export it (STUDY.THEN)")  # fmt: skip
    add("--join", type=Path, metavar="RUN",
        help="run one more worker for the study in RUN, on this or another machine")  # fmt: skip
    add("--name", default="", help=argparse.SUPPRESS)  # of a worker, given by its driver
    add("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    add("overrides", nargs="*", metavar="KEY VALUE", help="config keys, e.g. DATA.ROOT data/world")
    return made


def overrides(args: argparse.Namespace) -> list[str]:
    """The KEY VALUE pairs, and those that options stand for."""
    words = list(args.overrides)
    for option, key in (("trials", "TRIALS"), ("timeout", "TIMEOUT_S"), ("workers", "WORKERS"),
                        ("storage", "STORAGE"), ("then", "THEN")):  # fmt: skip
        value = getattr(args, option)
        if value is not None:
            words += [f"STUDY.{key}", str(value)]
    if args.grid:
        words += ["STUDY.SAMPLER", "grid"]
    return words
