"""zoerefine data: make, check, split and pack a data set, verify caches, simulate points."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zoerefine.base.depth_limits import FARTHEST_M, MOST_FARTHEST_M
from zoerefine.base.errors import UserError
from zoerefine.base.files.own_files import refuse_foreign
from zoerefine.base.progress import track
from zoerefine.base.registries import POINT_KINDS
from zoerefine.commands.options import Parser, add_shared, as_path, whole
from zoerefine.depth.data import ZOEDEPTH_MODEL

if TYPE_CHECKING:
    from zoerefine.depth.data.split import Split

SEED = whole(0)
EXAMPLES = """\
examples:
  zoerefine data synthesize data/synthetic
  zoerefine data inspect data/synthetic --picture sheet.png
  zoerefine data points data/synthetic --out points
  zoerefine data split data/synthetic --out split.json
  zoerefine data pack --config configs/demo.yaml DATA.ROOT data/synthetic
  zoerefine data verify caches
"""


def main(argv: Sequence[str]) -> int:
    """Run one of the commands; returns the exit code."""
    args = parser().parse_args(argv)
    return int(args.run(args) or 0)


def parser() -> argparse.ArgumentParser:
    """All commands with their options."""
    made = Parser(
        "zoerefine data",
        "Make, check, split and pack a data set, and verify what is packed.",
        EXAMPLES,
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(run: Any, text: str, older_names: Sequence[str] = ()) -> Any:
        """The function that adds an option to a new command."""
        description = f"{text[0].upper()}{text[1:]}."
        added = commands.add_parser(
            run.__name__, help=text, description=description, aliases=older_names
        )
        added.set_defaults(run=run)
        add_shared(added, "--quiet")
        return added.add_argument

    add = command(synthesize, "write a synthetic world in HabitatDyn's layout")
    add("folder", type=as_path, help="the folder to write")
    add("--scenes", type=whole(1, 10_000), default=12, help="number of rooms (12)")
    add("--clips", type=whole(1), default=2, help="clips per scene (2)")
    add("--frames", type=whole(1, 100_000), default=16, help="frames per clip (16)")
    add("--seed", type=SEED, default=0, help="random seed; the same seed gives the same bytes (0)")
    add("--family-b", type=int, default=0, metavar="N",
        help="give the last N scenes another kind of depth error (0)")  # fmt: skip
    add("--height", type=whole(1, 8192), default=480, help="picture height in pixels (480)")
    add("--width", type=whole(1, 8192), default=640, help="picture width in pixels (640)")

    add = command(inspect, "report what a data set contains and which faults it has")
    add("folder", type=as_path, help="the data set")
    add("--picture", type=as_path, metavar="FILE", help="write a contact sheet (png)")
    add("--farthest", type=metres, default=FARTHEST_M, metavar="M",
        help=f"the DATA.FARTHEST_M of a training, metres ({FARTHEST_M:g})")  # fmt: skip

    add = command(pseudo, "run a depth network on the pictures without pseudo depth",
                  ["zoedepth"])  # fmt: skip
    add("folder", type=as_path, help="the data set")
    add("--model", default=ZOEDEPTH_MODEL,
        help="a metric depth network: a folder of transformers' format (ZoeDepth, Depth Anything "
        "V2 metric, Depth Pro, ...), a name on the Hugging Face hub, or an ONNX file with its "
        f"description beside it, see docs/loading.md ({ZOEDEPTH_MODEL})")  # fmt: skip
    add("--batch", type=whole(1, 1024), default=8, help="pictures per batch (8)")

    add = command(points, "simulate metric points of the frames, as sensors measure them")
    add("folder", type=as_path, help="the data set")
    add("--out", type=as_path, required=True, metavar="DIR",
        help="gets a CSV file of x, y, metres and sigma for every picture")  # fmt: skip
    add("--kind", default="random", choices=list(POINT_KINDS),
        help="random pixels, the picture's corners, 8x8 zones, or one row (random)")  # fmt: skip
    add("--count", type=whole(1, 10_000), default=50, help="points a picture, at most (50)")
    add("--noise", type=float, default=0.03, help="standard deviation, as a share of depth (0.03)")
    add("--outliers", type=float, default=0.0, help="share of points of arbitrary depth (0)")
    add("--seed", type=SEED, default=0, help="the same seed gives the same points (0)")

    add = command(split, "split scenes into training, validation and test")
    add("folder", type=as_path, help="the data set")
    add("--out", type=as_path, required=True, metavar="FILE", help="the split file, for DATA.SPLIT")
    add("--val", type=float, default=0.15, help="share of validation scenes (0.15)")
    add("--test", type=float, default=0.15, help="share of test scenes (0.15)")
    add("--test-scenes", nargs="*", default=[], metavar="SCENE",
        help="test scenes in addition to the random ones")  # fmt: skip
    add("--seed", type=SEED, default=0, help="seed of the random split (0)")

    add = command(pack, "pack a config's data set into the cache that its training will use")
    add_shared(commands.choices["pack"], "--config")
    add("overrides", nargs="*", metavar="KEY VALUE", help="e.g. DATA.ROOT folder")

    add = command(verify, "compare all records of packed caches with their digests")
    add("folder", type=as_path, help="a packed cache, or a folder of them (a config's CACHE.ROOT)")
    return made


def metres(text: str) -> float:
    """A farthest depth; argparse names the option of any other text."""
    number = float(text)
    if not 0 < number <= MOST_FARTHEST_M:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most {MOST_FARTHEST_M:g}")
    return number


def synthesize(args: argparse.Namespace) -> None:
    """Write the synthetic world."""
    from zoerefine.depth.data.synthetic import synthesize

    synthesize(
        args.folder,
        args.scenes,
        args.clips,
        args.frames,
        args.seed,
        args.height,
        args.width,
        family_b_scenes=args.family_b,
    )
    print(args.folder)


def inspect(args: argparse.Namespace) -> int:
    """Print the report, draw the contact sheet; exit code 1 for a data set with faults."""
    from zoerefine.depth.data.inspect.contact_sheet import contact_sheet
    from zoerefine.depth.data.inspect.inspection import inspect
    from zoerefine.depth.data.layouts.readers import open_dataset

    if args.picture:
        refuse_foreign([args.picture], "--picture")
    dataset = open_dataset(args.folder)
    report, faults = inspect(dataset, args.farthest)
    print(report)
    if args.picture:
        contact_sheet(dataset, args.picture)
        print(args.picture)
    return 1 if faults else 0


def pseudo(args: argparse.Namespace) -> None:
    """Write the pseudo depth that is missing."""
    from zoerefine.depth.data.layouts.readers import open_dataset
    from zoerefine.depth.data.networks import ONNX, load_network
    from zoerefine.depth.data.networks.add_pseudo import add_pseudo_depth, lacks_pseudo_depth

    dataset = open_dataset(args.folder)
    had = ", ".join(sorted(map(str, dataset.pseudo_sources)))
    needed = args.model.endswith(ONNX) or any(  # one with a focal term names depth without it
        lacks_pseudo_depth(frame, frame.zoe) for frame in dataset.frames
    )
    made = add_pseudo_depth(dataset, load_network(args.model), args.batch) if needed else 0
    others = f"the others had it, of: {had}" if had else "the others had it"
    print(f"{made} of {len(dataset.frames)} frames got pseudo depth, {others}")


def points(args: argparse.Namespace) -> None:
    """Write simulated points."""
    from zoerefine.depth.data.layouts.readers import open_dataset
    from zoerefine.depth.points.simulate import PointSimulation, write_points

    simulation = PointSimulation(args.kind, args.count, args.noise, args.outliers, args.seed)
    dataset = open_dataset(args.folder)
    written = list(
        track(write_points(dataset, simulation, args.out), len(dataset.frames), "points", "frame")
    )
    print(f"{len(written)} of {len(dataset.frames)} frames have true depth and got points")
    print(args.out)


def split(args: argparse.Namespace) -> None:
    """Write a split file."""
    from zoerefine.depth.data.layouts.readers import open_dataset
    from zoerefine.depth.data.split import read_split, split_scenes, write_split

    for option, share in (("--val", args.val), ("--test", args.test)):
        if not 0 <= share < 1:
            raise UserError(f"{option} must be a share of at least 0 and below 1, got {share:g}")
    scenes = open_dataset(args.folder).scenes
    parts = split_scenes(scenes, args.val, args.test, args.seed, args.test_scenes)
    if args.out.exists() and read_split(args.out) != parts:
        raise UserError(
            f"{args.out} is another split and would be overwritten: move it, or give another --out"
        )
    write_split(parts, args.out)
    print(counts(parts))
    print(args.out)


def pack(args: argparse.Namespace) -> None:
    """Pack the data set of a config."""
    from zoerefine.base.config import load_config

    cfg = load_config(args.config, args.overrides)  # before torch: a wrong value fails at once

    from zoerefine.depth.training.job import prepare

    cache, parts = prepare(cfg)
    print(counts(parts))
    print(cache.folder)


def verify(args: argparse.Namespace) -> int:
    """Print a line for each cache; exit code 1 if one is damaged. The others are verified too."""
    from zoerefine.depth.data.cache.verification import packed_caches, verify

    damaged = 0
    for folder in packed_caches(args.folder):
        try:
            print(f"{folder}: {verify(folder)} records have their digests")
        except UserError as error:
            damaged += 1
            print(error)
    return 1 if damaged else 0


def counts(split: "Split") -> str:
    """The number of scenes in each part, as a line."""
    train, val, test = len(split.train), len(split.val), len(split.test)
    return f"{train} training, {val} validation and {test} test scenes"
