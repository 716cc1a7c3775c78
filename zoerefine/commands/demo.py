"""zoerefine demo: the whole way, from a commit to refined depth, with measured numbers only."""

import argparse
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str]) -> int:
    """Run the demo in this checkout."""
    parser = argparse.ArgumentParser(
        prog="demo",
        description="Launch this repository's own HEAD on a small data set: pack, search, train, "
        "export, infer, analyse. What is still valid from an earlier demo is used again.",
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="real frames instead of the synthetic world: a HabitatDyn folder or one with a "
        "frames.csv",
    )
    args = parser.parse_args(argv)

    from zoerefine.demo import run_demo

    run_demo(Path(args.data).resolve() if args.data else None)
    return 0
