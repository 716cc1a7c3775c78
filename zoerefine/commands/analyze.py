"""zoerefine analyze: runs -> one clear graph."""

import argparse
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str]) -> int:
    """Draw many runs."""
    parser = argparse.ArgumentParser(
        prog="analyze",
        description="Draw one clear graph over many runs: how they learned, where they ended, "
        "what they cost; and the numbers as runs.csv.",
        epilog="Example: analyze runs/demo/latest --out report",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="runs, studies or globs of them")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where it goes")
    args = parser.parse_args(argv)

    from zoerefine.analysis.collect import collect
    from zoerefine.analysis.plots import draw_overview
    from zoerefine.analysis.table import write_table

    collection = collect(args.runs)
    args.out.mkdir(parents=True, exist_ok=True)
    paths = draw_overview(collection, args.out)
    write_table(collection, args.out / "runs.csv")
    for folder, reason in collection.left_out.items():
        print(f"left out {folder}: {reason}")
    for path in [*paths, args.out / "runs.csv"]:
        print(path)
    return 0
