"""zoerefine measure: calibrate a room by a few distances, on a page or from a CSV file."""

import argparse
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zoerefine.base.errors import UserError
from zoerefine.base.messages import warn
from zoerefine.base.threads import wait_for_ctrl_c
from zoerefine.commands.options import Parser, add_shared, as_path

if TYPE_CHECKING:
    from zoerefine.depth.measure.server import Session

EPILOG = """\
FILE.csv has a line for each measurement:
  frame       the name of a picture without its suffix, or the number of a video frame (000000)
  x, y        a pixel of it; whole numbers are the pixels' centres
  metres      its depth along the camera's axis
  along       optional: ray, where metres is the distance from the camera, as of a tape measure
  x2, y2      optional: metres is the distance to this pixel
along and x2, y2 need --intrinsics. Other columns are kept.

keys of the page: arrows move the cursor (with Shift by 10), Enter opens the field for metres,
Delete removes the measurement at the cursor, Page Up and Page Down show other frames.

examples, after `make demo`:
  zoerefine measure room.csv --page --rgb data/synthetic/habitat_sim_DAVIS/JPEGImages/480p/0000 \\
      --depth data/synthetic/zoe_depth_raw/0000
  zoerefine measure room.csv --rgb data/synthetic/habitat_sim_DAVIS/JPEGImages/480p/0000 \\
      --depth data/synthetic/zoe_depth_raw/0000  # then: zoerefine infer --measured room.json
"""


def main(argv: Sequence[str]) -> int:
    """Print a room's calibration, or serve the page until Ctrl-C."""
    args = parser().parse_args(argv)
    if not args.page and not args.file.exists():
        raise UserError(
            f"there is no file {args.file}: measure on a page with --page, or write lines of "
            "frame, x, y, metres"
        )

    session = open_session(args)
    if args.page:
        return serve(session, args.host, args.port)
    if not session.has_measurements():
        raise UserError(f"{args.file} has no measurements: add lines of frame, x, y, metres")
    found = session.save_room()
    for line in found.in_doubt.values():
        warn(line)
    print(found)
    print(session.out)
    return 0


def open_session(args: argparse.Namespace) -> "Session":
    """Open the recording, with depth of some of its frames."""
    from zoerefine.depth.data.intrinsics import Cameras, checked_intrinsics
    from zoerefine.depth.exporting.bundle.bundle import bundle_of, load_bundle
    from zoerefine.depth.infer.inference import check_files, points_alone
    from zoerefine.depth.infer.sources import (
        DepthFiles,
        PseudoDepth,
        cameras_of,
        load_network_depth,
        open_source,
    )
    from zoerefine.depth.measure.server import Recording, Session

    given = checked_intrinsics(args.intrinsics, "--intrinsics") if args.intrinsics else None
    engine = load_bundle(bundle_of(args.bundle), args.trust) if args.bundle else points_alone()
    source = open_source(args.rgb)
    cameras = Cameras(given) if given else cameras_of(source)
    pseudo: PseudoDepth
    if args.depth:
        check_files(source, args.depth, "pseudo depth")
        pseudo = DepthFiles(args.depth, source)
    else:
        pseudo = load_network_depth(args.depth_model, args.file.parent, lambda: cameras)
    recording = Recording(engine, source, pseudo)
    return Session(args.file, args.out or args.file.with_suffix(".json"), recording, cameras.one)


def serve(session: "Session", host: str, port: int) -> int:
    """Serve the page until Ctrl-C."""
    import logging

    from zoerefine.base.guarded_server import Server, listen, new_token, with_token
    from zoerefine.depth.measure.server import page

    session.state()  # a fault of the file ends the command before the page is there
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # no line for every request
    token = new_token()
    server = Server(page(session), listen(host, port), token)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:  # Ctrl-C may come as soon as the address is printed
        print(f"measure at {with_token(server.get_url(), token)}", flush=True)
        wait_for_ctrl_c()
    except KeyboardInterrupt:
        print()
    return 0


def parser() -> argparse.ArgumentParser:
    """All options."""
    from zoerefine.depth.data import ZOEDEPTH_MODEL

    made = Parser(
        "zoerefine measure",
        "Calibrate a room by a few distances that were measured in it once: print the "
        "calibration of a CSV file, which measurement would help most next, and write what "
        "`zoerefine infer --measured` takes. With --page, in a browser.",
        EPILOG,
    )
    add = made.add_argument
    add("file", type=as_path, metavar="FILE.csv", help="the measurements; --page makes it")
    add("bundle", type=as_path, nargs="?", metavar="BUNDLE|RUN",
        help="measure depth that it refines; default: pseudo depth")  # fmt: skip
    add_shared(made, "--trust")
    add("--rgb", required=True, metavar="DIR|VIDEO|GLOB", help="the recording, as in infer")
    add("--depth", type=as_path, metavar="DIR",
        help="its pseudo depth, as in infer; default: a depth network is run")  # fmt: skip
    add("--depth-model", default=ZOEDEPTH_MODEL, metavar="MODEL",
        help="the depth network to run without --depth; default: %(default)s")  # fmt: skip
    add("--intrinsics", type=float, nargs=4, metavar=("FX", "FY", "CX", "CY"),
        help="focal lengths and principal point in pixels, for distances along the ray and "
        "between two pixels; the calibration then refuses another camera; default: those that the "
        "data set around the pictures states")  # fmt: skip
    add("--out", type=as_path, metavar="FILE.json",
        help="the calibration; default: FILE.json beside FILE.csv")  # fmt: skip
    add("--page", action="store_true",
        help="measure in a browser until Ctrl-C: click pixels, type metres")  # fmt: skip
    add("--port", type=int, default=8090, metavar="N",
        help="port of the page; default: %(default)s; 0: any free one")  # fmt: skip
    add_shared(made, "--host", "--quiet")
    return made
