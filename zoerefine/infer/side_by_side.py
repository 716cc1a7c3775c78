"""The picture of an inference: one frame before, after, and against the truth."""

from pathlib import Path

from zoerefine.data.dataset import ZOE_SCALE
from zoerefine.data.decode import read_rgb, read_truth_m, read_zoe
from zoerefine.errors import UserError
from zoerefine.export.bundle import Engine
from zoerefine.infer.pipeline import Item
from zoerefine.pictures import panel


def side_by_side(items: list[Item], engine: Engine, path: Path) -> None:
    """Draw the middle one of the frames that were refined."""
    done = [item for item in items if item.out.exists()]
    if not done:
        raise UserError("no frame was refined, so there is none to draw")
    item = done[len(done) // 2]
    truth = read_truth_m(item.truth) if item.truth and item.truth.exists() else None
    made = engine.manifest
    panel(
        path,
        read_rgb(item.rgb),
        read_zoe(item.zoe) * ZOE_SCALE,
        read_zoe(item.out) * ZOE_SCALE,
        truth,
        made["pseudo_label"],
        f"{item.name}   |   {made['data']}   |   commit {made['commit'][:8]}, {made['engine']} "
        f"{made['precision']}",
    )
