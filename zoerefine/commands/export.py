"""zoerefine export: from a run to an engine bundle."""

import argparse
from collections.abc import Sequence
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.registries import ENGINES
from zoerefine.base.run_dir import RunDir
from zoerefine.commands.options import Parser, add_shared, as_path
from zoerefine.depth.exporting import PRECISIONS

EPILOG = """\
results, in the run's directory:
  engine/refiner.*       the bundle: network, pre- and post-processing, manifest, model card;
                         .ts, .onnx, .openvino or .pt2, by the kind of its engine
  engine/MODEL_CARD.md   its model card: results, limits, origin, how to run it
  engine/sweep.png       --sweep: accuracy against latency; the numbers are in sweep.json
  engine/builds/         built bundles, which the same command uses again

examples, after `make demo`:
  zoerefine export runs/demo/latest/best
  zoerefine export runs/demo/latest/best --engine torchscript --precision fp32
  zoerefine export runs/demo/latest/best --sweep
"""


def main(argv: Sequence[str]) -> int:
    """Export a run's best refiner."""
    args = parser().parse_args(argv)
    if args.sweep and (args.engine, args.precision) != ("auto", "auto"):
        raise UserError("--sweep tries every engine and precision: leave out the other options")
    if args.triton and (args.sweep or args.engine not in ("auto", "onnx")):
        raise UserError("--triton exports the engine onnx: leave out --sweep and other engines")
    run = RunDir(args.run.resolve())
    if args.sweep:
        return print_sweep(run)

    from zoerefine.depth.exporting.bundle.bundle import read_manifest
    from zoerefine.depth.exporting.export import export

    path = export(run, "onnx" if args.triton else args.engine, args.precision)
    print(summary(read_manifest(path)))
    print(path)
    if args.triton:
        from zoerefine.depth.exporting.triton import write_model_repository

        print(write_model_repository(path, args.triton))
    return 0


def parser() -> argparse.ArgumentParser:
    """All options."""
    options = Parser(
        "zoerefine export",
        "Export the best refiner of a run to one file, an engine bundle. The engine "
        "is compared with the refiner on real frames, and published only if it differs from it by "
        "less than a fixed tolerance.",
        EPILOG,
    )
    add = options.add_argument
    add("run", type=as_path, metavar="RUN", help="the directory of a finished run")
    add("--engine", choices=["auto", *ENGINES], default="auto",
        help="default: auto, the fastest that this machine can build and run; never aoti, whose "
        "build takes up to a minute")  # fmt: skip
    add("--precision", choices=["auto", *PRECISIONS], default="auto",
        help="default: auto, the fastest on this machine that is within tolerance; never "
        "int8")  # fmt: skip
    add("--sweep", action="store_true",
        help="build and time every engine and precision that this machine can build, and publish "
        "the fastest")  # fmt: skip
    add("--triton", type=as_path, metavar="DIR",
        help="export the engine onnx, and write it to DIR/refiner, a model of NVIDIA's Triton "
        "Inference Server")  # fmt: skip
    add_shared(options, "--quiet")
    return options


def print_sweep(run: RunDir) -> int:
    """Sweep, and print the table."""
    from zoerefine.depth.exporting.sweep import sweep, table

    rows, path = sweep(run)
    print(table(rows))
    print(run.engine / "sweep.png")
    print(path)
    return 0


def summary(manifest: dict[str, Any]) -> str:
    """A bundle in a line, and a line for each warning."""
    speed = "not timed, because this machine cannot run it"
    if "latency_ms" in manifest:
        latency_ms, eager_ms = manifest["latency_ms"], manifest["eager_ms"]
        speed = (
            f"{latency_ms:.1f} ms a frame of {manifest['width']}x{manifest['height']}, eager "
            f"{eager_ms:.1f} ms ({eager_ms / latency_ms:.2f}x)"
        )
    warnings = "".join(f"\nwarning: {line}" for line in manifest.get("warnings", []))
    return (
        f"{manifest['engine']} {manifest['precision']}: {speed}; differs from eager by at most "
        f"{manifest['max_abs_err_m']:.3f} m, {manifest['mean_rel_err']:.3%} in a frame's mean"
        f"{warnings}"
    )
