"""zoerefine check: what to know of a training before hours are spent on it."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from zoerefine.config import load_config


def main(argv: Sequence[str]) -> int:
    """Run all checks; exit code 1 where one is not good."""
    parser = argparse.ArgumentParser(
        prog="check",
        description="Check a training before hours are spent on it: loss at the start, one batch "
        "overfitted, gradients, data wait, memory, learning rate. Takes a minute or two.",
    )
    parser.add_argument("--config", required=True, metavar="FILE")
    parser.add_argument("--out", type=Path, default=Path("check"), help="for pictures (check/)")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE", help="e.g. TRAIN.LR 3e-4")
    args = parser.parse_args(argv)

    cfg = load_config(args.config, args.overrides)  # before torch: a wrong value fails at once

    from rich.console import Console
    from rich.table import Table

    from zoerefine.progress import track
    from zoerefine.training.failures import explained_failures
    from zoerefine.training.training_checks import TrainingChecks

    with explained_failures():
        sanity = TrainingChecks(cfg, args.out)
        checks = sanity.checks()
        findings = [check() for check in track(checks, len(checks), "checking", "check")]
    table = Table()
    for column in ("check", "", "finding"):
        table.add_column(column, overflow="fold")
    for one in findings:
        table.add_row(one.name, "[green]good[/]" if one.good else "[yellow]look[/]", one.text)
    Console().print(table)
    return 0 if all(one.good for one in findings) else 1
