"""Metrics of the pseudo depth and the refined depth that an inference left in files."""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zoerefine.base.depth_limits import FARTHEST_M
from zoerefine.base.errors import UserError
from zoerefine.base.machine.cores import usable_cores
from zoerefine.base.messages import say, warn
from zoerefine.base.progress import track
from zoerefine.base.registries import SELECTION_METRIC
from zoerefine.depth.data.cache.decode import read_truth_m
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M, DepthEncoding, sixteen_bits
from zoerefine.depth.data.depth_unit import question_of_truth, ratio_of
from zoerefine.depth.data.layouts.readers import pictures_of_scenes, stated_encodings
from zoerefine.depth.infer.inference import Done, Inference
from zoerefine.depth.infer.results import STREAM
from zoerefine.depth.infer.sources import PictureFiles
from zoerefine.depth.metrics import DepthMetrics, picture_metrics, ratios, valid_pixels
from zoerefine.depth.points.for_engines import points_alone_u16

SMALLEST_SHOWN = 5e-5  # smaller metrics are 0.0000 in a table


def evaluate(job: Inference, done: Done, truth: Path, refines: bool) -> dict[str, Any]:
    """Metrics of all finished frames with true depth, by ZoeDepth's protocol.

    Args:
        done: the finished frames, with the digests of their inputs.
        truth: folder of png files of the same names, in the encoding that the data set around
            it states; without one, of 8 bits (HabitatDyn's) or of 16 (millimetres).
        refines: whether refined depth comes from a refiner.

    Returns:
        {"frames", "left_out": [name, ...], "pseudo": metrics, "refined": metrics,
         "ratio": {metric: refined / pseudo}}; metrics are means over pictures. With metric points
        "points" is the pseudo depth that they alone correct; with a refiner "training_scenes" is
        what `training_scenes` returns. "stream": True where refined depth alone is steady.
    """
    compared = [name for name in sorted(done) if (truth / f"{name}.png").exists()]
    farthest_m = job.engine.manifest.get("farthest_m", FARTHEST_M)
    names = ("pseudo", "points", "refined") if job.points else ("pseudo", "refined")
    sums = {name: DepthMetrics() for name in names}
    left_out, unit_ratios = [], []
    encodings = truth_encodings(truth, compared)
    units = {unit_of(one, farthest_m) for one in encodings.values()}
    say(f"unit of the true depth: {', '.join(sorted(units))}")

    def rows(name: str) -> tuple[list[Tensor], float] | UserError:
        """A frame's metrics of each side with its `ratio_of`, or the error of a damaged file."""
        try:
            zoe, refined = job.depths(name, done[name])
            truth_m = read_truth_m(truth / f"{name}.png", encodings[name], farthest_m)
            if truth_m.shape != zoe.shape:
                raise UserError(f"{truth / name}.png and {job.pseudo.path(name)} differ in size")
            points = job.points_of(name, *zoe.shape)
        except UserError as error:
            return error
        by_points = [points_alone_u16(zoe, points)] if job.points else []
        zoe_m, *others_m, true_m = (
            torch.from_numpy(depth_m)[None, None]  # [1, 1, H, W]
            for depth_m in (*(one * ZOE_UNIT_M for one in (zoe, *by_points, refined)), truth_m)
        )
        mask = valid_pixels(true_m, zoe_m, farthest_m)
        sides = zoe_m, *others_m
        found = [picture_metrics(one_m, true_m, mask, farthest_m) for one_m in sides]
        return found, ratio_of(zoe * ZOE_UNIT_M, truth_m)

    with ThreadPoolExecutor(usable_cores()) as pool:
        for name, found in track(
            zip(compared, pool.map(rows, compared), strict=True),
            len(compared),
            "comparing",
            "frame",
        ):
            if isinstance(found, UserError):
                left_out.append(name)
                warn(f"{name} is not compared: {found}")
                continue
            known, ratio = found
            unit_ratios.append(ratio)
            for one, row in zip(sums.values(), known, strict=True):
                one.add(row)
    if question := question_of_truth(unit_ratios):
        warn(f"--eval {truth}: {question}")
    metrics = {name: one.compute() for name, one in sums.items()}
    evaluated = [name for name in compared if name not in left_out]
    seen = {"training_scenes": training_scenes(job, evaluated)} if refines else {}
    return {
        "frames": sums["refined"].count,
        "left_out": left_out,
        **({STREAM: True} if job.results.with_stream else {}),
        **seen,
        **metrics,
        "ratio": ratios(metrics["refined"], metrics["pseudo"]),
    }


def truth_encodings(truth: Path, names: Sequence[str]) -> dict[str, DepthEncoding | None]:
    """The encoding of each frame's true depth that a data set around the file, or around the
    folder, states; None without one."""
    files = {name: truth / f"{name}.png" for name in names}
    stated = stated_encodings([truth, *files.values()])
    return {name: stated[path] or stated[truth] for name, path in files.items()}


def unit_of(encoding: DepthEncoding | None, farthest_m: float) -> str:
    """The unit of true depth, for people."""
    if encoding:
        return f"{encoding.span_m / encoding.units:g} m, as its data set states"
    otherwise = sixteen_bits(farthest_m).u16_unit_m
    return f"stated by no data set ({otherwise:g} m in 16 bits, unless the file's text states it)"


def training_scenes(job: Inference, names: Sequence[str]) -> dict[str, Any]:
    """How many of these frames are of scenes of the refiner's training or validation.

    Returns:
        {"frames", "unknown", "of": len(names)} and, where some are unknown, the "reason".
    """
    manifest = job.engine.manifest
    trained: dict[str, str] = manifest.get("training_scenes", {})
    files = job.source.files if isinstance(job.source, PictureFiles) else {}
    paths = [files[name].resolve() for name in names if name in files]
    scenes, digests = pictures_of_scenes(paths)
    listed = [scenes[path] for path in paths if path in scenes]
    is_seen = {scene: digests.get(scene) in trained.values() for scene in listed}
    seen = sum(is_seen[scene] for scene in listed)
    unknown, reason = len(names) - len(listed), "no data set around them tells their scenes"
    if others := sum(scene in trained and not is_seen[scene] for scene in listed):
        unknown, reason = unknown + others, "training had other pictures in scenes of their names"
    if not trained:
        unknown, reason = len(names), "an earlier version exported the bundle"
    elif manifest.get("started_from_others"):
        unknown, reason = len(names) - seen, "its training started from other weights"
    found = {"frames": seen, "unknown": unknown, "of": len(names)}
    return found | ({"reason": reason} if unknown else {})


def training_scenes_line(report: dict[str, Any]) -> str:
    """What `training_scenes` found, for people."""
    found = report["training_scenes"]
    if found["unknown"] == found["of"]:
        return f"unknown whether these scenes are in the bundle's training data: {found['reason']}"
    unknown = f"; unknown of {found['unknown']}: {found['reason']}" if found["unknown"] else ""
    of = f"{found['frames']} of {found['of']} evaluated frames"
    how = "whole scenes are compared, so a part of one, or one of resized pictures, is another"
    return f"{of} are of scenes of the bundle's training or validation ({how}){unknown}"


def table(report: dict[str, Any]) -> str:
    """The report for people.

    Without a refiner, depth that points alone correct stands once, as `points`. A ratio to less
    than SMALLEST_SHOWN is left out.
    """
    titles = {"pseudo": "pseudo", "points": "points", "refined": "refined"}
    if "training_scenes" not in report:  # there is no refiner
        titles["refined"] = "corrected"
        if report.get("points") == report["refined"]:
            del titles["refined"]
    sides = {name: title for name, title in titles.items() if name in report}
    lines = [f"{'':<10}" + "".join(f" {title:>9}" for title in sides.values()) + f" {'ratio':>7}"]
    for metric, pseudo in report["pseudo"].items():
        values = "".join(f" {report[name][metric]:9.4f}" for name in sides)
        is_shown = metric in report["ratio"] and pseudo >= SMALLEST_SHOWN
        ratio = f"{report['ratio'][metric]:7.3f}" if is_shown else f"{'-':>7}"
        lines.append(f"{metric:<10}{values} {ratio}")
    if STREAM in report:
        others = " and ".join(title for name, title in sides.items() if name != "refined")
        adds = (
            "; what the refiner adds shows without --stream" if "training_scenes" in report else ""
        )
        lines.append(f"{others}: as single frames, without --stream{adds}")
    return "\n".join(lines)


def advice(report: dict[str, Any], has_refiner: bool) -> str:
    """The advice to leave the refiner out, where its depth is no better; empty otherwise.

    Args:
        has_refiner: as `refines` of `evaluate`.
    """
    other = "points" if "points" in report else "pseudo"
    errors = {name: report[name].get(SELECTION_METRIC, math.nan) for name in (other, "refined")}
    if not has_refiner or not errors["refined"] >= errors[other]:
        return ""
    what = {"points": "the points alone", "pseudo": "the pseudo depth as it is"}[other]
    return (
        f"leave the refiner out: {SELECTION_METRIC} is {errors['refined']:.4f} with it and "
        f"{errors[other]:.4f} by {what}"
    )
