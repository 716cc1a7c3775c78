"""zoerefine infer: engine bundle + RGB + depth -> refined depth."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from zoerefine.errors import UserError

if TYPE_CHECKING:
    from zoerefine.infer.pipeline import Inference

EPILOG = """\
results, in the folder that --out names:
  depth/NAME.png           refined depth, 16 bit, metres = value / 256
  zoe_depth_raw/NAME.png   ZoeDepth's, the same, where there is no --depth
  colors/NAME.png          --colors
  points/NAME.ply          --points
  metrics.json             --eval
NAME is a picture's path inside its folder, or a video frame's number (000000, 000001, ...).
Each file says which bundle and commit made it, from which inputs; what is done is kept, so the
same command goes on where it was stopped. Exit code 1: something was left out, and named.
"""


def main(argv: Sequence[str]) -> int:
    """Refine pictures or a video."""
    args = parser().parse_args(argv)
    check(args)

    from zoerefine.infer.pipeline import refine

    job = prepare(args)
    outcome = refine(job, args.batch)
    print(outcome)
    left_out = len(outcome.left_out)
    if args.eval:
        left_out += evaluate(job, outcome.done, args.eval)
    draw(job, outcome.done, args)
    print(args.out)
    return 1 if left_out else 0


def parser() -> argparse.ArgumentParser:
    """All options."""
    made = argparse.ArgumentParser(
        prog="infer",
        description="Refine the depth of pictures or a video with an engine bundle.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add("bundle", type=Path, metavar="BUNDLE", help="engine/refiner.ts of a run")
    add("--rgb", required=True, metavar="DIR|VIDEO|GLOB",
        help="pictures (folders in the folder too), a video, or a quoted pattern")  # fmt: skip
    add("--depth", type=Path, metavar="DIR",
        help="16-bit ZoeDepth png files of the same names; without it ZoeDepth is run")  # fmt: skip
    add("--zoedepth", default="Intel/zoedepth-nyu-kitti", metavar="MODEL",
        help="a folder, or a name on the Hugging Face hub (Intel/zoedepth-nyu-kitti)")  # fmt: skip
    add("--out", type=Path, required=True, metavar="DIR", help="where results go")
    add("--batch", type=int, default=4, help="frames of one size that go together (4)")
    add("--eval", type=Path, metavar="DIR", help="true depth of the same names, to compare with")
    add("--picture", type=Path, metavar="FILE", help="a side-by-side picture of the middle frame")
    add("--video", type=Path, metavar="FILE.mp4", help="a side-by-side video of all frames")
    add("--colors", action="store_true", help="colour pictures of refined depth")
    add("--farthest", type=float, default=10.0, metavar="M",
        help="metres at the far end of the colours (10)")  # fmt: skip
    add("--points", action="store_true", help="refined depth as point clouds")
    lens = made.add_mutually_exclusive_group().add_argument
    lens("--fov", type=float, default=90.0, metavar="DEG", help="horizontal field of view (90)")
    lens("--intrinsics", type=float, nargs=4, metavar=("FX", "FY", "CX", "CY"),
         help="of the camera, in pixels")  # fmt: skip
    return made


def check(args: argparse.Namespace) -> None:
    """Raises `UserError` for what can be told without looking at any file."""
    if args.batch < 1:
        raise UserError(f"--batch must be 1 or more, got {args.batch}")
    if args.farthest <= 0:
        raise UserError(f"--farthest must be above 0 metres, got {args.farthest:g}")
    for option, path, suffixes in (
        ("--video", args.video, (".mp4",)),
        ("--picture", args.picture, (".png", ".jpg", ".pdf", ".svg")),
    ):
        if path and path.suffix not in suffixes:
            raise UserError(f"{option} {path}: its name must end in {' or '.join(suffixes)}")


def prepare(args: argparse.Namespace) -> "Inference":
    """Open everything; nothing is written before all of it is known to be there."""
    from zoerefine.export.bundle import load_bundle
    from zoerefine.infer.pipeline import Inference
    from zoerefine.infer.points import Lens
    from zoerefine.infer.pseudo import DepthFiles, load_zoedepth
    from zoerefine.infer.results import Results, check_apart, check_writable
    from zoerefine.infer.sources import check_pairs, open_source

    engine = load_bundle(args.bundle)
    source = open_source(args.rgb)
    for folder, what in ((args.depth, "depth"), (args.eval, "true depth")):
        if folder:
            check_pairs(folder, source.names, what)
    results = Results(
        args.out,
        engine.digest,
        engine.manifest["commit"],
        args.farthest if args.colors else None,
        Lens(args.intrinsics, args.fov) if args.points else None,
    )
    check_apart(args.out, source.tree, source.folders | {*filter(None, (args.depth, args.eval))})
    pseudo = (
        DepthFiles(args.depth)
        if args.depth
        else load_zoedepth(args.zoedepth, results.zoe_depth_raw)
    )
    files = filter(None, (args.picture, args.video))
    for folder in (*(path.parent for path in files), args.out):
        check_writable(folder)
    return Inference(engine, source, pseudo, results)


def evaluate(job: "Inference", done: set[str], truth: Path) -> int:
    """Print the metrics, keep them as `metrics.json`; returns how many could not be compared."""
    from zoerefine.files import write_json
    from zoerefine.infer.evaluate import evaluate, table

    report = evaluate(job, done, truth)
    write_json(job.results.root / "metrics.json", report)
    print(f"against the truth of {report['frames']} frames:")
    print(table(report))
    return len(report["left_out"])


def draw(job: "Inference", done: set[str], args: argparse.Namespace) -> None:
    """The side-by-side picture and video, where asked for."""
    from zoerefine.infer.side_by_side import draw_middle, film

    if args.picture:
        draw_middle(args.picture, job, done, args.eval)
        print(args.picture)
    if args.video:
        film(args.video, job, done, args.farthest)
        print(args.video)
