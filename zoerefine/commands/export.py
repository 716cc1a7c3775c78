"""zoerefine export: run -> engine bundle."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoerefine.errors import UserError
from zoerefine.export import KINDS, PRECISIONS
from zoerefine.run_dir import RunDir


def main(argv: Sequence[str]) -> int:
    """Export a run's best refiner."""
    parser = argparse.ArgumentParser(
        prog="export",
        description="Turn a run's best refiner into one file that runs it: engine/refiner.ts. The "
        "engine is compared with the refiner on real frames and not published if too far off.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's directory")
    parser.add_argument(
        "--engine",
        choices=["auto", *KINDS],
        default="auto",
        help="auto: the best that this machine can run",
    )
    parser.add_argument(
        "--precision",
        choices=["auto", *PRECISIONS],
        default="auto",
        help="auto: the fastest but int8 that stays within tolerance",
    )
    parser.add_argument(
        "--sweep",
        action="store_true",
        help="build and time every engine and precision that this machine can, and publish the "
        "fastest; writes engine/sweep.png and sweep.json",
    )
    args = parser.parse_args(argv)
    if args.sweep and (args.engine, args.precision) != ("auto", "auto"):
        raise UserError("--sweep tries every engine and precision: give it alone")
    run = RunDir(args.run.resolve())
    if args.sweep:
        return print_sweep(run)

    from zoerefine.export.bundle import read_manifest
    from zoerefine.export.export import export

    path = export(run, args.engine, args.precision)
    print(in_words(read_manifest(path)))
    print(path)
    return 0


def print_sweep(run: RunDir) -> int:
    """Sweep, and print the table."""
    from zoerefine.export.sweep import sweep, table

    rows, path = sweep(run)
    print(table(rows))
    print(run.engine / "sweep.png")
    print(path)
    return 0


def in_words(made: dict[str, Any]) -> str:
    """A manifest's engine in a sentence."""
    speed = "built here, and not run: this machine cannot"
    if "latency_ms" in made:
        speed = (
            f"{made['latency_ms']:.1f} ms a frame of {made['width']}x{made['height']}, eager "
            f"{made['eager_ms']:.1f} ms ({made['eager_ms'] / made['latency_ms']:.2f}x)"
        )
    return (
        f"{made['engine']} in {made['precision']}: {speed}; at most {made['max_abs_err_m']:.3f} m "
        f"from eager, {made['mean_rel_err']:.3%} on average"
    )
