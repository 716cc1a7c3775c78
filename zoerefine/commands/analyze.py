"""zoerefine analyze: runs -> one clear graph, tables, and a page."""

import argparse
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str]) -> int:
    """Analyse many runs."""
    parser = argparse.ArgumentParser(
        prog="analyze",
        description="Which run is best, is the difference real, what made it, what does it cost, "
        "and what does it look like? One clear graph (overview.png, .pdf, .svg), one page "
        "(report.html), and the numbers (runs.csv, groups.csv, differences.csv).",
        epilog="Example: analyze runs/demo/latest 'runs/habitatdyn/*' --out report "
        "--where \"TRAIN.LR<1e-3 and MODEL.NAME=='unet'\"",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="runs, studies or globs of them")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where it goes")
    parser.add_argument("--where", default="", metavar="TEST", help="keep the runs that fit")
    parser.add_argument(
        "--by", metavar="KEY", help="group by this setting (all that differ, but the seed)"
    )
    args = parser.parse_args(argv)

    from zoerefine.analysis.analyze import analyze

    collection, paths = analyze(args.runs, args.out, args.where, args.by)
    for folder, reason in collection.left_out.items():
        print(f"left out {folder}: {reason}")
    for path in paths:
        print(path)
    return 0
