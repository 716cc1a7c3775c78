"""zoerefine profile: a timeline of a few dozen training steps, and the bottleneck."""

from collections.abc import Sequence
from pathlib import Path

from zoerefine.base.config import load_config
from zoerefine.commands.options import Parser, add_config_option, add_quiet_option, as_path

EXAMPLES = """\
examples, after `zoerefine data synthesize data/synthetic`:
  zoerefine profile --config configs/demo.yaml DATA.ROOT data/synthetic
  zoerefine profile --config configs/demo.yaml --steps 20 --out steps.png DATA.ROOT data/synthetic
"""


def main(argv: Sequence[str]) -> int:
    """Train some steps, draw their timeline, and print the bottleneck."""
    parser = Parser(
        prog="zoerefine profile",
        description="Train a few dozen steps on the configured data, draw a timeline of readers, "
        "conversion and training, and name the bottleneck. Saves no run.",
        epilog=EXAMPLES,
    )
    add_config_option(parser, required=True, help="a YAML config")
    parser.add_argument("--steps", type=int, default=40, help="training steps (default: 40)")
    parser.add_argument(
        "--out",
        type=as_path,
        default=Path("profile.png"),
        help="the drawing (default: profile.png)",
    )
    add_quiet_option(parser)
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY VALUE", help="config keys to set, e.g. LOADER.BATCH 32"
    )
    args = parser.parse_args(argv)
    if args.steps < 1:
        parser.error("--steps must be 1 or more")
    cfg = load_config(args.config, args.overrides)  # before torch: a wrong value fails at once

    from zoerefine.depth.training.check.profile import draw, profile

    findings = profile(cfg, args.steps)
    draw(findings, args.out, Path(args.config).name)
    for row, share in findings.shares.items():
        print(f"{row:<18} {share:>6.1%}")
    print(f"{findings.images_per_s:.1f} images/s")
    print(findings.verdict)
    print(args.out)
    return 0
