"""zoerefine check and profile: checks before hours of training, and a timeline of its steps."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from zoerefine.base.config import load_config
from zoerefine.base.files.atomic import create_ignored_folder
from zoerefine.base.messages import say
from zoerefine.base.progress import track
from zoerefine.commands.options import Parser, add_shared, as_path

if TYPE_CHECKING:
    from zoerefine.depth.training.check.checks import TrainingChecks


LIMIT_S = 180
STYLES = {"good": "green", "look": "yellow", "unclear": "dim", "skipped": "dim"}

EXAMPLES = """\
examples, after `zoerefine data synthesize data/synthetic`:
  zoerefine check --config configs/demo.yaml DATA.ROOT data/synthetic
  zoerefine check --config configs/demo.yaml --limit 60 DATA.ROOT data/synthetic TRAIN.LR 1e-3
"""


def main(argv: Sequence[str]) -> int:
    """Run the checks; exit code 1 if a check says "look"."""
    parser = Parser(
        "zoerefine check",
        "Check a configuration with short trainings: loss before training, "
        "gradients, memory, overfitting of one batch, learning rate, data loading, and whether "
        "the result depends on pseudo depth and pictures. Trains in TRAIN.PRECISION; saves no run.",
        EXAMPLES,
    )
    add_shared(parser, "--config")
    add = parser.add_argument
    add("--out", type=as_path, default=Path("check"), help="folder for pictures (default: check)")
    add("--limit", type=float, default=LIMIT_S, metavar="SECONDS",
        help="time for the checks, without packing; those that do not fit are skipped "
        f"(default: {LIMIT_S})")  # fmt: skip
    add_shared(parser, "--quiet", "overrides")
    args = parser.parse_args(argv)
    if args.limit <= 0:
        parser.error("--limit must be above 0")

    cfg = load_config(args.config, args.overrides)  # before torch: a wrong value fails at once

    from rich.console import Console
    from rich.table import Table

    from zoerefine.depth.training.check.checks import TrainingChecks
    from zoerefine.depth.training.failures import explained_failures

    with explained_failures():
        create_ignored_folder(args.out)
        checks = TrainingChecks(cfg, args.out, args.limit)
        findings = list(run_checks(checks, args.limit))
    table = Table()
    for column in ("check", "", "finding"):
        table.add_column(column, overflow="fold")
    for name, verdict, text in findings:
        table.add_row(name, f"[{STYLES[verdict]}]{verdict}[/]", text)
    Console().print(table)
    return 1 if any(verdict == "look" for _, verdict, _ in findings) else 0


def run_checks(checks: "TrainingChecks", limit_s: float) -> Iterator[tuple[str, str, str]]:
    """Name, verdict and sentence of each check; those that do not fit the limit are skipped."""
    began, pace, todo = time.monotonic(), checks.pace, checks.checks()
    needed_s = sum(check.steps for check in todo) * pace.step_s
    say(
        f"{len(todo)} checks, about {needed_s:.0f} s (--limit {limit_s:g}): short trainings of "
        f"{pace.steps} steps with {len(checks.batch.index)} samples, {pace.step_s:.2f} s a step"
    )
    for check in track(todo, len(todo), "checking", "check"):
        left_s = max(0.0, limit_s - (time.monotonic() - began))
        needed_s = check.steps * pace.step_s
        if needed_s > left_s:
            text = f"needs about {needed_s:.0f} s, {left_s:.0f} s are left: raise --limit"
            yield check.name, "skipped", text
            continue
        yield check.name, *check.run()


PROFILE_EXAMPLES = """\
examples, after `zoerefine data synthesize data/synthetic`:
  zoerefine profile --config configs/demo.yaml DATA.ROOT data/synthetic
  zoerefine profile --config configs/demo.yaml --steps 20 --out steps.png DATA.ROOT data/synthetic
"""


def profile(argv: Sequence[str]) -> int:
    """Train some steps, draw their timeline, and print the bottleneck."""
    parser = Parser(
        "zoerefine profile",
        "Train a few dozen steps on the configured data, draw a timeline of readers, "
        "conversion and training, and name the bottleneck. Saves no run.",
        PROFILE_EXAMPLES,
    )
    add_shared(parser, "--config")
    parser.add_argument("--steps", type=int, default=40, help="training steps (default: 40)")
    parser.add_argument(
        "--out",
        type=as_path,
        default=Path("profile.png"),
        help="the drawing (default: profile.png)",
    )
    add_shared(parser, "--quiet")
    add_shared(parser, "overrides", help="config keys to set, e.g. LOADER.BATCH 32")
    args = parser.parse_args(argv)
    if args.steps < 1:
        parser.error("--steps must be 1 or more")
    cfg = load_config(args.config, args.overrides)  # before torch: a wrong value fails at once

    from zoerefine.depth.training.check.profile import draw
    from zoerefine.depth.training.check.profile import profile as measure

    findings = measure(cfg, args.steps)
    draw(findings, args.out, Path(args.config).name)
    for row, share in findings.shares.items():
        print(f"{row:<18} {share:>6.1%}")
    print(f"{findings.images_per_s:.1f} images/s")
    print(findings.verdict)
    print(args.out)
    return 0
