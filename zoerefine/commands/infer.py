"""zoerefine infer: engine bundle + RGB + depth -> refined depth."""

import argparse
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str]) -> int:
    """Refine a folder of pictures."""
    parser = argparse.ArgumentParser(
        prog="infer",
        description="Refine the depth of pictures with an engine bundle. Results are 16-bit png "
        "files, metres = value / 256; what this bundle has refined already is kept.",
    )
    add = parser.add_argument
    add("bundle", type=Path, metavar="BUNDLE", help="engine/refiner.ts of a run")
    add("--rgb", type=Path, required=True, metavar="DIR", help="pictures, folders of them too")
    add("--depth", type=Path, required=True, metavar="DIR",
        help="their 16-bit ZoeDepth png files, of the same names")  # fmt: skip
    add("--truth", type=Path, metavar="DIR", help="ground truth of the same names, to compare")
    add("--out", type=Path, required=True, metavar="DIR", help="where results go")
    add("--picture", type=Path, metavar="FILE", help="a side-by-side picture of the middle frame")
    args = parser.parse_args(argv)

    from zoerefine.export.bundle import load_bundle
    from zoerefine.infer.pipeline import pair_frames, refine
    from zoerefine.infer.side_by_side import side_by_side

    engine = load_bundle(args.bundle)
    items = pair_frames(args.rgb, args.depth, args.truth, args.out)
    outcome = refine(engine, items)
    print(f"{outcome.written} frames refined, {outcome.kept} kept, {len(outcome.broken)} left out")
    if outcome.abs_rel["refined"]:
        before, after = (sum(v) / len(v) for v in outcome.abs_rel.values())
        print(f"AbsRel {before:.3f} before, {after:.3f} refined")
    if args.picture:
        side_by_side(items, engine, args.picture)
        print(args.picture)
    print(args.out)
    return 1 if outcome.broken else 0
