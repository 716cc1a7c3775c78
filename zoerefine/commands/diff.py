"""zoerefine diff: what differs between two runs."""

import argparse
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str]) -> int:
    """Print the differences of two runs."""
    parser = argparse.ArgumentParser(
        prog="diff",
        description="What differs between two runs: settings, commit, environment, data, metrics "
        "and weights.",
    )
    parser.add_argument("first", metavar="A", help="a run's directory")
    parser.add_argument("second", metavar="B", help="another run's directory")
    parser.add_argument(
        "--picture", type=Path, metavar="FILE", help="a held-out frame as both refine it"
    )
    args = parser.parse_args(argv)

    from zoerefine.analysis.diff import diff_runs, one_run

    print(diff_runs(args.first, args.second))
    if args.picture:
        from zoerefine.analysis.example_frames import draw_side_by_side

        draw_side_by_side(one_run(args.first), one_run(args.second), args.picture)
        print(args.picture)
    return 0
