"""zoerefine search: config with lists -> an Optuna study."""

import argparse
from collections.abc import Sequence

from zoerefine.config import load_config


def main(argv: Sequence[str]) -> int:
    """Search what the config lists."""
    parser = argparse.ArgumentParser(
        prog="search",
        description="Search what a config lists under SEARCH: [a, b] is a choice, {low, high} a "
        "range. The same command goes on with a study that was cut off.",
        epilog="Example: search --config configs/search.yaml --trials 30 DATA.ROOT data/synthetic",
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="a YAML config")
    parser.add_argument("--trials", type=int, help="how many trials in all (STUDY.TRIALS)")
    parser.add_argument(
        "--then", choices=["train"], help="train the best at full length (STUDY.THEN)"
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE", help="config keys set here")
    args = parser.parse_args(argv)
    overrides = list(args.overrides)
    if args.trials is not None:
        overrides += ["STUDY.TRIALS", str(args.trials)]
    if args.then is not None:
        overrides += ["STUDY.THEN", args.then]
    cfg = load_config(args.config, overrides)

    from zoerefine.search.study import run_study

    print(run_study(cfg).path)
    return 0
