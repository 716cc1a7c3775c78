"""zoerefine analyze: many runs -> one graph, tables and a report page."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from zoerefine.commands.help_format import HelpFormat
from zoerefine.commands.quiet_option import add_quiet_option

DESCRIPTION = """\
Compare runs: which settings are best, whether the difference is significant, which settings
matter, and what they cost. Runs that differ only in their seed form one group.

Writes one graph (overview.png, .pdf, .svg), a report page (report.html) and the numbers (runs.csv,
groups.csv, scenes.csv, differences.csv). docs/analysis.md explains them.
"""
EXAMPLES = """\
examples:
  zoerefine analyze runs/demo/latest --out report
  zoerefine analyze 'runs/small/*' 'runs/guided/*' --out report --by MODEL.NAME
  zoerefine analyze 'runs/*/*' --out report --where "TRAIN.LR<1e-3 and MODEL.NAME=='unet'"
"""


def main(argv: Sequence[str]) -> int:
    """Analyse many runs."""
    parser = argparse.ArgumentParser(
        prog="zoerefine analyze",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=HelpFormat,
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="runs, studies or globs of them")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder of the files to write"
    )
    parser.add_argument(
        "--where",
        default="",
        metavar="FILTER",
        help="only runs that match: comparisons of config keys, state, seed and commit, joined by "
        "and, or, not",
    )
    parser.add_argument(
        "--by",
        metavar="KEY",
        help="form groups by this config key alone (default: by all keys except the seed)",
    )
    add_quiet_option(parser)
    args = parser.parse_args(argv)

    from zoerefine.analysis.analyze import analyze
    from zoerefine.analysis.captions import counted
    from zoerefine.analysis.collect import FILTERED

    collection, paths = analyze(args.runs, args.out, args.where, args.by)
    for folder, reason in collection.left_out.items():
        if reason != FILTERED:
            print(f"left out {folder}: {reason}")
    filtered = list(collection.left_out.values()).count(FILTERED)
    if filtered:
        print(f"--where left out {counted(filtered, 'run')}")
    for path in paths:
        print(path)
    return 0
