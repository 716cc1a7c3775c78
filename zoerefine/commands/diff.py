"""zoerefine diff: the differences between two runs."""

import sys
from collections.abc import Sequence

from zoerefine.commands.options import Parser, add_json_option, as_path, print_json

EPILOG = """\
examples, after `make demo`:
  zoerefine diff runs/demo/latest/trials/0000 runs/demo/latest/trials/0001
  zoerefine diff runs/demo/latest/trials/0000 runs/demo/latest/best --picture difference.png
"""


def main(argv: Sequence[str]) -> int:
    """Print the differences between two runs."""
    parser = Parser(
        prog="zoerefine diff",
        description="Print the differences between two runs: settings, commit, environment, data, "
        "metrics and weights.",
        epilog=EPILOG,
    )
    parser.add_argument("first", metavar="RUN", help="a run directory")
    parser.add_argument("second", metavar="OTHER", help="another run directory")
    parser.add_argument(
        "--picture", type=as_path, metavar="FILE",
        help="also draw one held-out frame as each run's refiner predicts it",
    )  # fmt: skip
    add_json_option(parser)
    args = parser.parse_args(argv)

    from zoerefine.lab.analysis.diff import diff_facts, diff_runs, one_run

    if args.json:
        print_json(diff_facts(one_run(args.first), one_run(args.second)))
    else:
        print(diff_runs(args.first, args.second))
    if args.picture:
        from zoerefine.depth.report_frames import draw_side_by_side

        draw_side_by_side(one_run(args.first), one_run(args.second), args.picture)
        print(args.picture, file=sys.stderr if args.json else sys.stdout)
    return 0
