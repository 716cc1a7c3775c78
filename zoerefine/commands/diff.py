"""zoerefine diff: what differs between two runs."""

import argparse
from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Print the differences of two runs."""
    parser = argparse.ArgumentParser(
        prog="diff",
        description="What differs between two runs: settings, commit, environment, data, metrics "
        "and weights.",
    )
    parser.add_argument("first", metavar="A", help="a run's directory")
    parser.add_argument("second", metavar="B", help="another run's directory")
    args = parser.parse_args(argv)

    from zoerefine.analysis.diff import diff_runs

    print(diff_runs(args.first, args.second))
    return 0
