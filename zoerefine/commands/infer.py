"""zoerefine infer: from an engine bundle, pictures and pseudo depth to refined depth."""

import argparse
import json
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import write_json
from zoerefine.base.files.own_files import JSON_MARK, refuse_foreign
from zoerefine.base.messages import warn
from zoerefine.commands.options import CommandParser, add_shared, as_path, print_notes
from zoerefine.depth.data import ZOEDEPTH_MODEL

if TYPE_CHECKING:
    from zoerefine.depth.data.intrinsics import Cameras, Intrinsics
    from zoerefine.depth.exporting.bundle.bundle import Engine
    from zoerefine.depth.infer.inference import Done, Inference
    from zoerefine.depth.infer.room import Room
    from zoerefine.depth.infer.sources import FrameSource, PseudoDepth

ROOM_FILE = "room.json"
BATCH = 4
MAX_BATCH = 1024  # so many frames are in memory at once
FOV_DEG = 90.0  # HabitatDyn's
SLOWEST_FPS, FASTEST_FPS = 0.1, 240.0  # of a video

# The options that --help lists; --help-all lists all.
USUAL = (
    "--rgb", "--depth", "--out", "--eval", "--picture", "--video", "--confidence",
    "--points", "--measured", "--stream", "--clouds", "--trust",
)  # fmt: skip
EPILOG = """\
results, in the folder of --out:
  depth/NAME.png           refined depth, 16 bits, metres = value / 256
  confidence/NAME.png      --confidence: the spread of refined depth, 16 bits, value / 10000;
                           the truth lies within depth * exp(+-spread) at 90% of the pixels
  zoe_depth_raw/NAME.png   the depth network's output in the same format, without --depth
  colors/NAME.png          --colors
  clouds/NAME.ply          --clouds
  metrics.json             --eval
  room.json                --measured: what was measured once says of the room
  outputs.json             the bundle, --stream, and what the values of depth/ and confidence/ are
NAME is the path of a picture in its folder without the suffix, or the number of a video frame
(000000, 000001, ...). Every file records the bundle, the commit and the inputs that it was made
from. Finished files are kept, so the same command continues where it was stopped.

exit codes:
  0  all frames were refined
  1  some frames were left out; each is named with its reason
  2  nothing was refined

examples, after `make demo`:
  zoerefine infer runs/demo/latest/best --out refined \\
      --rgb data/synthetic/habitat_sim_DAVIS/JPEGImages/480p/0000 \\
      --depth data/synthetic/zoe_depth_raw/0000
  zoerefine infer runs/demo/latest/best --out refined_with_metrics --colors \\
      --rgb 'data/synthetic/habitat_sim_DAVIS/JPEGImages/480p/*/*0.jpg' \\
      --depth data/synthetic/zoe_depth_raw \\
      --eval data/synthetic/habitat_sim_DAVIS/Annotations/480p_depth
  zoerefine infer runs/demo/latest/best --stream --out steady \\
      --rgb data/synthetic/habitat_sim_DAVIS/JPEGImages/480p \\
      --depth data/synthetic/zoe_depth_raw
  zoerefine infer --points points --out corrected_by_points_alone \\
      --rgb data/synthetic/habitat_sim_DAVIS/JPEGImages/480p \\
      --depth data/synthetic/zoe_depth_raw  # after `zoerefine data points`, as its --help shows
"""


def main(argv: Sequence[str]) -> int:
    """Refine pictures or a video."""
    args = parser().parse_args(argv)
    check(args)

    from zoerefine.depth.infer.pipeline import refine
    from zoerefine.depth.infer.results import METRICS_FILE
    from zoerefine.depth.infer.sources import NetworkDepth

    job, room = prepare(args)
    if args.depth:
        job.ask_unit()  # now: a long run would be in vain
    with job.results.in_use(work_of(job, args)):
        job.results.refuse_mixing()
        if isinstance(job.pseudo, NetworkDepth):
            job.pseudo.state_source(job.source.names)
        if args.eval:  # written again at the end
            (args.out / METRICS_FILE).unlink(missing_ok=True)
        job.results.remove_metrics_of_others()
        job.results.write_outputs_file()
        if room:
            room.save(args.out / ROOM_FILE)
        summary = refine(job, 1 if args.stream else args.batch or BATCH)
        print(summary)
        failed = {name: summary.inputs.get(name, "") for name in summary.left_out}
        job.results.warn_of_others(summary.done, failed)
        left_out = len(summary.left_out)
        if not summary.done:
            raise UserError(f"no frame was refined; {left_out} left out for the reasons above")
        if missing := job.without_points(summary.done):
            print(f"{missing} of {len(summary.done)} frames have no points")
        if not args.depth:  # the network's depth is there now
            job.ask_unit()
        if args.eval:
            refines = bool(args.bundle) and (not room or room.refines)
            left_out += evaluate(job, summary.done, args, refines)
        draw(job, summary.done, args)
    print(args.out)
    return 1 if left_out else 0


def parser() -> argparse.ArgumentParser:
    """All options."""
    options = CommandParser(
        "zoerefine infer",
        "Refine the depth of pictures or of a video, with an engine bundle, metric "
        "points, or both.",
        EPILOG,
        USUAL,
    )
    add = options.add_argument
    add("bundle", type=as_path, nargs="?", metavar="BUNDLE|RUN",
        help="a bundle from `zoerefine export`, or a run: its last bundle; without one, --points "
        "alone correct the pseudo depth")  # fmt: skip
    add_shared(options, "--trust")
    add("--rgb", required=True, metavar="DIR|VIDEO|GLOB",
        help="a folder, searched recursively; a video; or a quoted glob pattern")  # fmt: skip
    add("--depth", type=as_path, metavar="DIR",
        help="pseudo depth: 16-bit PNG files, metres * 256 as ZoeDepth writes them, with the names "
        "of the pictures; default: a depth network is run")  # fmt: skip
    add("--depth-model", "--zoedepth", default=ZOEDEPTH_MODEL, metavar="MODEL",
        help="the depth network to run without --depth, as --model of `zoerefine data pseudo`; "
        "default: %(default)s")  # fmt: skip
    add("--any-pseudo", action="store_true",
        help="accept pseudo depth of another network than the refiner was trained on, and of other "
        "pictures")  # fmt: skip
    add("--out", type=as_path, required=True, metavar="DIR", help="the folder for all results")
    add("--batch", type=int, metavar="N",
        help=f"frames of one size that are refined at a time; default: {BATCH}; always 1 with "
        "--stream")  # fmt: skip
    add("--eval", type=as_path, metavar="DIR",
        help="true depth with the names of the pictures: print metrics")  # fmt: skip
    add("--picture", type=as_path, metavar="FILE",
        help="draw the middle frame, side by side (png, jpg, pdf or svg)")  # fmt: skip
    add("--video", type=as_path, metavar="FILE.mp4",
        help="write all frames side by side as a video (H.264), with labels")  # fmt: skip
    add("--confidence", action="store_true",
        help="write how certain depth is, by the points or what was measured, if given; --picture "
        "and --video show it, too")  # fmt: skip
    add("--colors", action="store_true", help="write refined depth as colour pictures")
    add("--range", type=float, nargs=2, metavar=("NEAR", "FAR"),
        help="depths in metres at the ends of the colours of --colors and --video; default: the "
        "1st and the 99th percentile of depth")  # fmt: skip
    add("--fps", type=float, metavar="N",
        help="frames per second of --video; default: the source's, or 24 for pictures")  # fmt: skip
    add("--points", type=as_path, metavar="DIR",
        help="metric points of the pictures, which correct the result: NAME.csv with x, y, metres "
        "and sigma, or a low-resolution NAME.png in millimetres")  # fmt: skip
    add("--measured", type=as_path, metavar="FILE",
        help="distances that were measured once in the room, a CSV file of frame, x, y, metres: "
        "they correct all frames; or room.json of an earlier --out")  # fmt: skip
    add("--stream", action="store_true",
        help="make depth steady from frame to frame: the pictures of each folder, in the order of "
        "their names, or a video, are one camera's consecutive frames")  # fmt: skip
    add("--clouds", action="store_true", help="write refined depth as point clouds")
    camera = options.add_mutually_exclusive_group().add_argument
    camera("--fov", type=float, metavar="DEG",
           help="horizontal field of view for --clouds; default: the camera of the data set around "
           f"the pictures, else {FOV_DEG:g}")  # fmt: skip
    camera("--intrinsics", type=float, nargs=4, metavar=("FX", "FY", "CX", "CY"),
           help="focal lengths and principal point in pixels, for --clouds, for distances between "
           "two pixels of --measured, and for ONNX networks with a focal term; default: those that "
           "the data set around the pictures states")  # fmt: skip
    add_shared(options, "--quiet")
    return options


def check(args: argparse.Namespace) -> None:
    """Raises `UserError` for what is wrong without looking at any file."""
    if not (args.bundle or args.points or args.measured):
        raise UserError(
            "give a bundle or a run, or --points or --measured to correct pseudo depth without one"
        )
    if args.batch is not None and not 1 <= args.batch <= MAX_BATCH:
        raise UserError(f"--batch must be 1 to {MAX_BATCH}, got {args.batch}")
    if args.stream and args.batch not in (None, 1):
        raise UserError(
            f"--batch {args.batch}: frames of a --stream are refined one at a time, so that the "
            "result does not depend on where a batch ends: leave --batch out"
        )
    if args.range and not 0 <= args.range[0] < args.range[1] < math.inf:
        near, far = args.range
        raise UserError(
            f"--range must be two depths in metres, NEAR below FAR, got {near:g} {far:g}"
        )
    if args.fps is not None and not SLOWEST_FPS <= args.fps <= FASTEST_FPS:
        raise UserError(f"--fps must be {SLOWEST_FPS:g} to {FASTEST_FPS:g}, got {args.fps:g}")
    for option, path, suffixes in (
        ("--video", args.video, (".mp4",)),
        ("--picture", args.picture, (".png", ".jpg", ".pdf", ".svg")),
    ):
        if path and path.suffix not in suffixes:
            raise UserError(f"{option} {path}: the name must end in {' or '.join(suffixes)}")


def prepare(args: argparse.Namespace) -> "tuple[Inference, Room | None]":
    """Open and check all inputs; nothing is written before. With --measured also its room."""
    from zoerefine.depth.data.depth_unit import trained_far_m
    from zoerefine.depth.data.metric_points import SUFFIXES, PointFiles
    from zoerefine.depth.exporting import NO_CONFIDENCE
    from zoerefine.depth.exporting.bundle.bundle import bundle_of, load_bundle
    from zoerefine.depth.infer.inference import Inference, check_files, points_alone, with_spread
    from zoerefine.depth.infer.pictures import remove_parts
    from zoerefine.depth.infer.point_cloud import CameraOptions
    from zoerefine.depth.infer.results import (
        PSEUDO_DEPTH,
        ResultFolder,
        check_separate,
        check_writable,
        refuse_one_folder,
    )
    from zoerefine.depth.infer.same_network import check_source, refuse_refined, warn_of_far
    from zoerefine.depth.infer.sources import DepthFiles, load_network_depth, open_source
    from zoerefine.depth.infer.video import check_encoder

    if args.video:
        check_encoder()
    bundle = bundle_of(args.bundle) if args.bundle else None
    engine = load_bundle(bundle, args.trust) if bundle else points_alone()
    if args.confidence and not (engine.has_confidence or args.measured or args.points):
        raise UserError(f"--confidence: {bundle} has no confidence: {NO_CONFIDENCE}")
    if args.confidence and not engine.has_confidence:
        engine = with_spread(engine)
    refuse_one_folder({"--rgb": args.rgb, "--depth": args.depth, "--eval": args.eval})
    refuse_one_folder({"--points": args.points, "--depth": args.depth, "--eval": args.eval})
    source = open_source(args.rgb)
    for folder, what in ((args.depth, "pseudo depth"), (args.eval, "true depth")):
        if folder:
            check_files(source, folder, what)
    points = PointFiles(args.points) if args.points else None
    if points:
        check_files(source, points.folder, "points", SUFFIXES)
    cameras = cache(lambda: cameras_for(args, source))
    fov_deg = FOV_DEG if args.fov is None else args.fov

    def camera_of(name: str) -> CameraOptions:
        return CameraOptions(cameras().of(name), fov_deg)

    results = ResultFolder(
        args.out,
        engine.digest,
        engine.manifest["commit"],
        camera_of if args.clouds and camera_of("") else None,
        args.confidence,
        args.colors,
        args.stream,
    )
    inputs = source.folders | {*filter(None, (args.depth, args.eval, args.points))}
    check_separate(args.out, source.root, inputs)
    drawings = list(filter(None, (args.picture, args.video)))
    for option, path in (("--picture", args.picture), ("--video", args.video)):
        refuse_foreign(filter(None, [path]), option)
    results.refuse_foreign_files(source.names, bool(args.eval), not args.depth)
    pseudo: PseudoDepth = (
        DepthFiles(args.depth, source, args.any_pseudo)
        if args.depth
        else load_network_depth(args.depth_model, args.out / PSEUDO_DEPTH, cameras)
    )
    room = room_for(args, engine, source, pseudo, cameras().one) if args.measured else None
    engine = room.engine(engine) if room else engine
    results = replace(results, bundle=engine.digest)
    if room:
        refuse_foreign([args.out / ROOM_FILE], "--out")
    refines = bundle is not None and (not room or room.refines)
    if bundle and not args.any_pseudo:
        if isinstance(pseudo, DepthFiles):
            refuse_refined(map(pseudo.path, source.names[:1]))
        if refines:
            check_source(bundle, engine.manifest, pseudo.source(source.names))
    if refines and args.depth:
        warn_of_far(args.depth, [*map(pseudo.path, source.names)], trained_far_m(engine.manifest))
    for folder in (*(path.parent for path in drawings), args.out):
        check_writable(folder)
    for path in drawings:
        remove_parts(path)
    if args.clouds and args.fov is None and not cameras():
        warn(f"--clouds: the camera is not known, so a field of view of {FOV_DEG:g} degrees is "
             "assumed: give --fov or --intrinsics")  # fmt: skip
    if refines:
        print_notes(bundle, engine.manifest)
    return Inference(engine, source, pseudo, results, points), room


def cameras_for(args: argparse.Namespace, source: "FrameSource") -> "Cameras":
    """What --intrinsics gives, else what a data set states of its pictures.

    Raises `UserError` for values that no camera has.
    """
    from zoerefine.depth.data.intrinsics import Cameras, checked_intrinsics
    from zoerefine.depth.infer.sources import cameras_of

    if args.intrinsics:
        return Cameras(checked_intrinsics(args.intrinsics, "--intrinsics"))
    return cameras_of(source) if args.fov is None else Cameras()


def room_for(
    args: argparse.Namespace,
    engine: "Engine",
    source: "FrameSource",
    pseudo: "PseudoDepth",
    intrinsics: "Intrinsics | None",
) -> "Room":
    """The calibration of the room by --measured. Says what is in doubt, and what to measure."""
    from zoerefine.depth.infer.room import Room, measure
    from zoerefine.depth.points.measured_file import read_measured

    if args.measured.suffix == ".json":
        room = Room.load(args.measured)
        room.check(pseudo.source(source.names), engine, intrinsics)
        if room.refiner:
            print(room.refiner)
        return room
    found = measure(read_measured(args.measured), engine, source, pseudo, intrinsics)
    for line in found.in_doubt.values():
        warn(line)
    print(found)
    return found.room


def work_of(job: "Inference", args: argparse.Namespace) -> str:
    """A text that tells everything that decides what is in the files of --out."""
    places = {name: getattr(args, name) for name in ("rgb", "depth", "points", "eval")}
    facts = {name: path and os.path.abspath(path) for name, path in places.items()}
    for name in ("depth_model", "confidence", "colors", "range", "stream", "intrinsics"):
        facts[name] = getattr(args, name)
    camera_of, names = job.results.camera, ("", *job.source.names)
    cameras = sorted({str(camera_of(name)) for name in names}) if camera_of else None
    facts |= {"bundle": job.engine.digest, "camera": cameras}
    return json.dumps(facts, indent=2) + "\n"


def evaluate(job: "Inference", done: "Done", args: argparse.Namespace, refines: bool) -> int:
    """Print the metrics and write metrics.json; returns how many frames could not be compared.

    Args:
        refines: whether refined depth comes from a refiner.
    """
    from zoerefine.depth.infer.evaluate import advice, evaluate, table, training_scenes_line
    from zoerefine.depth.infer.results import METRICS_FILE

    report = evaluate(job, done, args.eval, refines)
    write_json(job.results.root / METRICS_FILE, JSON_MARK | job.results.engine_facts | report)
    if not report["frames"]:
        left_out = len(report["left_out"])
        guess = "are its files in the unit that it states?"
        print(
            f"--eval {args.eval}: no frame has a pixel with both pseudo depth and true depth in "
            "range, so there are no metrics; "
            + (f"{left_out} could not be compared: see above" if left_out else guess)
        )
        return max(1, left_out)
    print(f"compared with the true depth of {report['frames']} frames:")
    print(table(report))
    if refines:
        print(training_scenes_line(report))
    if note := advice(report, refines):
        print(note)
    return len(report["left_out"])


def draw(job: "Inference", done: "Done", args: argparse.Namespace) -> None:
    """Write the colour pictures, the side-by-side picture and the video, if asked for."""
    from zoerefine.depth.infer.pictures import (
        DepthRange,
        draw_middle_frame,
        range_of_data,
        write_colors,
    )
    from zoerefine.depth.infer.video import write_video

    if args.colors or args.video:
        shown = DepthRange(*args.range) if args.range else range_of_data(job, done)
        print(f"colours show {shown}" + ("" if args.range else ", 1st to 99th percentile of depth"))
    if args.colors:
        write_colors(job.results, done, shown)
    if args.picture:
        draw_middle_frame(args.picture, job, done, args.eval)
        print(args.picture)
    if args.video:
        write_video(args.video, job, done, shown, args.fps)
        print(args.video)
