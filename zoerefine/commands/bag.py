"""zoerefine bag: refine the depth camera of a ROS 2 bag. ROS need not be installed."""

import argparse
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from zoerefine.base.errors import UserError
from zoerefine.base.messages import say, visible
from zoerefine.commands.infer import MAX_BATCH
from zoerefine.commands.options import Parser, add_shared, as_path, print_notes

if TYPE_CHECKING:
    from zoerefine.depth.exporting.bundle.bundle import Engine
    from zoerefine.depth.ros.refine_bag import BagJob

TOPIC = re.compile(r"(/[A-Za-z_][A-Za-z0-9_]*)+")
LONGEST_TOLERANCE_S = 10.0

EPILOG = """\
The depth of BAG is refined as the depth camera's PNG files would be by `zoerefine infer`; the
values are the same, bit for bit. --out is a bag with the topics
  DEPTH_TOPIC              refined depth, with the stamps and frame ids of the depth messages
  camera_info, beside it   their CameraInfo, where BAG has it
32FC1 is metres (NaN: invalid pixel) in exact steps of 1/256 m; 16UC1 is millimetres (0: invalid
pixel). The new bag appears when it is complete. The same command does not make it again.

exit codes:
  0  all depth messages were refined
  1  some were left out: without a picture, or for the reasons that are printed
  2  nothing was refined

examples, with your own bag:
  zoerefine bag runs/demo/latest/best recorded --out refined
  zoerefine bag runs/demo/latest/best recorded --out refined --tolerance 0.02 \\
      --image-topic /camera/color/image_raw \\
      --depth-topic /camera/aligned_depth_to_color/image_raw
"""


def main(argv: Sequence[str]) -> int:
    """Refine a bag."""
    args = parser().parse_args(argv)
    check(args)

    from zoerefine.depth.ros.bag_files import is_done, new_bag
    from zoerefine.depth.ros.refine_bag import refine_bag

    with prepared(args) as job:
        origin = provenance(job, args)
        if is_done(args.out, origin):
            print(f"{args.out} is complete")
            return 0
        with new_bag(args.out, args.storage, origin) as writer:
            summary = refine_bag(job, writer, args.batch)
    print(summary)
    print(args.out)
    return 1 if summary.left_out or summary.unpaired else 0


def parser() -> argparse.ArgumentParser:
    """All options."""
    options = Parser(
        "zoerefine bag",
        "Refine the depth camera of a ROS 2 bag (mcap or sqlite3), with an engine "
        "bundle. ROS need not be installed.",
        EPILOG,
    )
    add = options.add_argument
    add("bundle", type=as_path, metavar="BUNDLE|RUN",
        help="a bundle from `zoerefine export`, or a run: its last bundle")  # fmt: skip
    add("bag", type=as_path, metavar="BAG", help="the folder of a bag, or a .mcap or .db3 file")
    add("--out", type=as_path, required=True, metavar="BAG", help="the folder of the new bag")
    add("--image-topic", metavar="TOPIC",
        help="pictures: Image or CompressedImage; default: the only such topic")  # fmt: skip
    add("--depth-topic", metavar="TOPIC",
        help="depth of the same size: Image of 16UC1 or 32FC1, or compressed 16UC1; default: the "
        "only such topic")  # fmt: skip
    add("--info-topic", metavar="TOPIC",
        help="CameraInfo of the depth; default: camera_info beside the depth topic")  # fmt: skip
    add("--tolerance", type=float, default=0.0, metavar="S",
        help="each depth message is refined with the picture whose stamp is nearest, at most S "
        "seconds away; default: 0, equal stamps")  # fmt: skip
    add("--encoding", choices=("32FC1", "16UC1"), default="32FC1",
        help="of refined depth; default: %(default)s")  # fmt: skip
    add("--topic", default="/zoerefine/depth", metavar="TOPIC",
        help="the topic of refined depth; default: %(default)s")  # fmt: skip
    add("--storage", choices=("mcap", "sqlite3"), default="mcap",
        help="of the new bag; default: %(default)s")  # fmt: skip
    add("--batch", type=int, default=4, metavar="N",
        help="frames of one size that are refined at a time; default: %(default)s")  # fmt: skip
    add_shared(options, "--trust", "--quiet")
    return options


def check(args: argparse.Namespace) -> None:
    """Raises `UserError` for what is wrong without reading the bag."""
    if not 1 <= args.batch <= MAX_BATCH:
        raise UserError(f"--batch must be 1 to {MAX_BATCH}, got {args.batch}")
    if not 0 <= args.tolerance <= LONGEST_TOLERANCE_S:
        raise UserError(
            f"--tolerance must be 0 to {LONGEST_TOLERANCE_S:g} seconds, got {args.tolerance:g}"
        )
    if not TOPIC.fullmatch(args.topic):
        raise UserError(f"--topic {args.topic} is no name of a topic, such as /zoerefine/depth")
    if info_topic(args.topic) == args.topic:
        raise UserError(f"--topic {args.topic} is the name of its CameraInfo: give another one")
    if args.out.name in ("", ".."):
        raise UserError(f"--out {args.out} is no name of a new folder")
    source, out = args.bag.resolve(), args.out.resolve()
    if source.is_relative_to(out) or out.is_relative_to(source):
        raise UserError(f"--out {args.out} and {args.bag} contain each other: give another folder")


def info_topic(depth_topic: str) -> str:
    """The topic of the CameraInfo of a depth topic, beside it as ROS expects."""
    return depth_topic.rpartition("/")[0] + "/camera_info"


@contextmanager
def prepared(args: argparse.Namespace) -> "Iterator[BagJob]":
    """Open and check all inputs; nothing is written before."""
    from zoerefine.depth.infer.results import check_writable
    from zoerefine.depth.ros.bag_files import open_bag
    from zoerefine.depth.ros.bag_topics import find_topics
    from zoerefine.depth.ros.refine_bag import BagJob

    with open_bag(args.bag) as bag:
        topics = find_topics(bag, args.image_topic, args.depth_topic, args.info_topic)
        engine = load_engine(args.bundle, args.trust)
        check_writable(args.out.resolve().parent)
        found = f"pictures: {topics.picture}, depth: {topics.depth}, CameraInfo: {topics.info}"
        say(visible(found))
        yield BagJob(
            engine, bag, topics, round(args.tolerance * 1e9), args.encoding, args.topic,
            info_topic(args.topic),
        )  # fmt: skip


def load_engine(path: Path, trusted: bool) -> "Engine":
    """The engine of a bundle or a run, with its warnings printed."""
    from zoerefine.depth.data.networks.pseudo_source import UNKNOWN
    from zoerefine.depth.exporting.bundle.bundle import bundle_of, load_bundle
    from zoerefine.depth.infer.same_network import check_source

    bundle = bundle_of(path)
    engine = load_bundle(bundle, trusted)
    check_source(bundle, engine.manifest, UNKNOWN)  # a bag does not state what made its depth
    print_notes(bundle, engine.manifest)
    return engine


def provenance(job: "BagJob", args: argparse.Namespace) -> dict[str, str]:
    """What the new bag is made from and by, written into its metadata."""
    from zoerefine.depth.infer.results import BUNDLE, COMMIT, INPUTS, digest_of

    settings = (job.topics, job.tolerance_ns, job.encoding, job.depth_topic, args.storage)
    inputs = digest_of(job.bag.fingerprint(), *map(str, settings))
    return {BUNDLE: job.engine.digest, COMMIT: job.engine.manifest["commit"], INPUTS: inputs}
