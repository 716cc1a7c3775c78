"""zoerefine data: make, check and pack a data set."""

import argparse
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str]) -> int:
    """Run one of the verbs."""
    parser = argparse.ArgumentParser(prog="data", description="Make, check and pack a data set.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    verb = verbs.add_parser("synthesize", help="write a synthetic world in HabitatDyn's layout")
    verb.add_argument("folder", type=Path)
    for name, default, text in (
        ("scenes", 12, "rooms"),
        ("clips", 2, "clips a scene"),
        ("frames", 16, "frames a clip"),
        ("seed", 0, "the same seed gives the same bytes"),
        ("family-b", 0, "how many of the last scenes err in another way than the rest"),
        ("height", 480, "pixels"),
        ("width", 640, "pixels"),
    ):
        verb.add_argument(f"--{name}", type=int, default=default, help=f"{text} ({default})")
    verb.set_defaults(run=synthesize)

    verb = verbs.add_parser("inspect", help="say what a folder holds and what is wrong with it")
    verb.add_argument("folder", type=Path)
    verb.add_argument("--picture", type=Path, help="a contact sheet to write")
    verb.set_defaults(run=inspect)

    verb = verbs.add_parser("zoedepth", help="run ZoeDepth over pictures without pseudo depth")
    verb.add_argument("folder", type=Path)
    verb.add_argument("--model", default="Intel/zoedepth-nyu-kitti", help="a folder, or a name on "
                      "the Hugging Face hub (Intel/zoedepth-nyu-kitti)")  # fmt: skip
    verb.add_argument("--batch", type=int, default=8, help="pictures at a time (8)")
    verb.set_defaults(run=zoedepth)

    verb = verbs.add_parser("split", help="deal scenes to training, validation and test, to a file")
    verb.add_argument("folder", type=Path)
    verb.add_argument("--out", type=Path, required=True, metavar="FILE", help="for DATA.SPLIT")
    verb.add_argument("--val", type=float, default=0.15, help="share of the scenes (0.15)")
    verb.add_argument("--test", type=float, default=0.15, help="share of the scenes (0.15)")
    verb.add_argument("--test-scenes", nargs="*", default=[], help="tested whatever the shares say")
    verb.add_argument("--seed", type=int, default=0, help="of the order they are dealt in (0)")
    verb.set_defaults(run=split)

    verb = verbs.add_parser("pack", help="pack a data set into a cache, as training would")
    verb.add_argument("--config", required=True, metavar="FILE")
    verb.add_argument("overrides", nargs="*", metavar="KEY VALUE", help="e.g. DATA.ROOT folder")
    verb.set_defaults(run=pack)

    args = parser.parse_args(argv)
    return int(args.run(args) or 0)


def synthesize(args: argparse.Namespace) -> None:
    """Write the synthetic world."""
    from zoerefine.data.synthetic import synthesize

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
    """Print scenes, clips, frames, ranges and faults (exit code 1); draw a contact sheet."""
    from zoerefine.data.inspection import contact_sheet, inspect
    from zoerefine.data.readers import open_dataset

    dataset = open_dataset(args.folder)
    report, faults = inspect(dataset)
    print(report)
    if args.picture:
        contact_sheet(dataset, args.picture)
        print(args.picture)
    return 1 if faults else 0


def zoedepth(args: argparse.Namespace) -> None:
    """Write the pseudo depth that is missing."""
    from zoerefine.data.readers import open_dataset
    from zoerefine.data.zoedepth import add_pseudo_depth, load_model

    dataset = open_dataset(args.folder)
    lacking = sum(frame.zoe is None for frame in dataset.frames)
    made = add_pseudo_depth(dataset, load_model(args.model), args.batch) if lacking else 0
    print(f"{made} of {len(dataset.frames)} frames got pseudo depth, the others had it")


def split(args: argparse.Namespace) -> None:
    """Write a split file."""
    from zoerefine.data.readers import open_dataset
    from zoerefine.data.split import split_scenes, write_split

    scenes = open_dataset(args.folder).scenes
    parts = split_scenes(scenes, args.val, args.test, args.seed, args.test_scenes)
    write_split(parts, args.out)
    print(f"train on {len(parts.train)} scenes, choose by {len(parts.val)}, test {len(parts.test)}")
    print(args.out)


def pack(args: argparse.Namespace) -> None:
    """Pack what the config names."""
    from zoerefine.config import load_config
    from zoerefine.train.job import prepare

    cache, split = prepare(load_config(args.config, args.overrides))
    print(f"train on {len(split.train)} scenes, choose by {len(split.val)}, test {len(split.test)}")
    print(cache.folder)
