"""zoerefine train: config -> a run, from this tree."""

from collections.abc import Sequence

from zoerefine.base.config import load_config
from zoerefine.base.messages import silent
from zoerefine.base.run_dir import run_from_launcher
from zoerefine.commands.options import Parser, add_shared

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
        "zoerefine train", "Train a refiner as configured; an unfinished run is resumed.", EXAMPLES
    )
    add_shared(parser, "--config", "--quiet", "overrides")
    args = parser.parse_args(argv)
    cfg = load_config(args.config, args.overrides)

    from zoerefine.depth.training.job import run_training  # torch comes with it

    run = run_training(cfg)
    if not silent() and run_from_launcher() is None:  # a launcher prints it
        print(run.path)
    return 0
