"""zoerefine export: run -> engine bundle."""

import argparse
from collections.abc import Sequence
from pathlib import Path

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
        choices=["auto", "torchscript", "tensorrt"],
        default="auto",
        help="auto: TensorRT where it can be built, else TorchScript",
    )
    parser.add_argument(
        "--precision",
        choices=["auto", "fp32", "fp16", "bf16"],
        default="auto",
        help="auto: the fastest that stays within tolerance",
    )
    args = parser.parse_args(argv)

    from zoerefine.export.bundle import read_manifest
    from zoerefine.export.export import export

    path = export(RunDir(args.run.resolve()), args.engine, args.precision)
    made = read_manifest(path)
    print(
        f"{made['engine']} in {made['precision']}: {made['latency_ms']:.1f} ms a frame of "
        f"{made['width']}x{made['height']}, eager {made['eager_ms']:.1f} ms "
        f"({made['eager_ms'] / made['latency_ms']:.2f}x); at most {made['max_abs_err_m']:.3f} m "
        f"from eager, {made['mean_rel_err']:.3%} on average"
    )
    print(path)
    return 0
