"""zoerefine diff: the differences between two runs."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from zoerefine.commands.help_format import HelpFormat

EPILOG = """\
examples, after `make demo`:
  zoerefine diff runs/demo/latest/trials/0000 runs/demo/latest/trials/0001
  zoerefine diff runs/demo/latest/trials/0000 runs/demo/latest/best --picture difference.png
"""


def main(argv: Sequence[str]) -> int:
    """Print the differences between two runs."""
    parser = argparse.ArgumentParser(
        prog="zoerefine diff",
        description="Print the differences between two runs: settings, commit, environment, data, "
        "metrics and weights.",
        epilog=EPILOG,
        formatter_class=HelpFormat,
    )
    parser.add_argument("first", metavar="RUN", help="a run directory")
    parser.add_argument("second", metavar="OTHER", help="another run directory")
    parser.add_argument(
        "--picture", type=Path, metavar="FILE",
        help="also draw one held-out frame as each run's refiner predicts it",
    )  # fmt: skip
    args = parser.parse_args(argv)

    from zoerefine.analysis.diff import diff_runs, one_run

    print(diff_runs(args.first, args.second))
    if args.picture:
        from zoerefine.analysis.example_frames import draw_side_by_side

        draw_side_by_side(one_run(args.first), one_run(args.second), args.picture)
        print(args.picture)
    return 0
