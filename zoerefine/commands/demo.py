"""zoerefine demo: every step from a commit to refined depth, with measured results."""

from collections.abc import Sequence
from pathlib import Path

from zoerefine.commands.options import Parser, add_quiet_option


def main(argv: Sequence[str]) -> int:
    """Run the demo."""
    parser = Parser(
        prog="zoerefine demo",
        description="Run every step on a small data set: launch a commit, pack, search, train, "
        "export, infer, analyse. All is written into the checkout that zoerefine runs from; where "
        "it is installed without one, into ./zoerefine-demo, a git repository that is made for "
        "it. Valid results of an earlier demo are reused.",
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="real frames instead of the synthetic world: a HabitatDyn folder, a folder with a "
        "frames.csv, a TUM recording or ScanNet folders",
    )
    add_quiet_option(parser)
    args = parser.parse_args(argv)

    from zoerefine.demo import run_demo

    run_demo(Path(args.data).resolve() if args.data else None)
    return 0
