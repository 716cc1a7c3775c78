"""zoerefine train: config -> a run, from this tree."""

from collections.abc import Sequence

from zoerefine.base.config import load_config
from zoerefine.base.progress import silent
from zoerefine.base.run_dir import run_from_launcher
from zoerefine.commands.options import Parser, add_config_option, add_quiet_option

EXAMPLES = """\
examples, after `zoerefine data synthesize data/synthetic`:
  zoerefine train --config configs/demo.yaml DATA.ROOT data/synthetic
  zoerefine train --config configs/demo.yaml DATA.ROOT data/synthetic TRAIN.LR 1e-3 SEED 1
  torchrun --nproc-per-node 2 -m zoerefine.train --config configs/demo.yaml \\
      DATA.ROOT data/synthetic
"""


def main(argv: Sequence[str]) -> int:
    """Train as configured."""
    parser = Parser(
        prog="zoerefine train",
        description="Train a refiner as configured; an unfinished run is resumed.",
        epilog=EXAMPLES,
    )
    add_config_option(parser, required=True, help="a YAML config")
    add_quiet_option(parser)
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY VALUE", help="config keys to set, e.g. TRAIN.LR 3e-4"
    )
    args = parser.parse_args(argv)
    cfg = load_config(args.config, args.overrides)

    from zoerefine.depth.training.job import run_training  # torch comes with it

    run = run_training(cfg)
    if not silent() and run_from_launcher() is None:  # a launcher prints it
        print(run.path)
    return 0
