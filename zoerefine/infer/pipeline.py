"""Refine folders of pictures: reading, engine and writing overlap; a broken frame costs itself."""

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image, PngImagePlugin

from zoerefine.data.dataset import ZOE_SCALE
from zoerefine.data.decode import read_rgb, read_truth_m, read_zoe
from zoerefine.errors import UserError
from zoerefine.export.bundle import Engine
from zoerefine.files import replacing
from zoerefine.progress import bar, say

RGB_KINDS = {".jpg", ".jpeg", ".png"}
BUNDLE_KEY, COMMIT_KEY, SCALE_KEY = "zoerefine-bundle", "zoerefine-commit", "depth-scale"
READ_AHEAD = 8


@dataclass(frozen=True)
class Item:
    """One frame to refine: its files, and where the result goes."""

    name: str
    rgb: Path
    zoe: Path
    truth: Path | None
    out: Path


@dataclass
class Outcome:
    """What became of the frames, and the errors' sums where truth was given."""

    written: int = 0
    kept: int = 0
    broken: list[str] = field(default_factory=list)
    abs_rel: dict[str, list[float]] = field(default_factory=lambda: {"pseudo": [], "refined": []})


def pair_frames(rgb: Path, depth: Path, truth: Path | None, out: Path) -> list[Item]:
    """Frames of a folder (and folders in it) with their depths, by relative name.

    Raises `UserError` where a folder is missing or empty, or pictures lack their depth.
    """
    for folder in filter(None, (rgb, depth, truth)):
        if not folder.is_dir():
            raise UserError(f"no folder {folder}: give an existing one")
    pictures = sorted(p for p in rgb.rglob("*") if p.suffix.lower() in RGB_KINDS)
    if not pictures:
        raise UserError(f"{rgb} holds no jpg or png pictures")
    items: list[Item] = []
    lacking: list[Item] = []
    for picture in pictures:
        name = picture.relative_to(rgb).with_suffix(".png")
        item = Item(
            str(name.with_suffix("")), picture, depth / name, truth / name if truth else None,
            out / name,
        )  # fmt: skip
        (items if item.zoe.exists() else lacking).append(item)
    if lacking:
        raise UserError(
            f"{len(lacking)} of {len(pictures)} pictures in {rgb} have no depth in {depth}; the "
            f"first: {lacking[0].name}"
        )
    return items


def refine(engine: Engine, items: list[Item]) -> Outcome:
    """Refine every frame that this very bundle has not refined yet.

    The engine runs in this thread while others read ahead and write behind.
    """
    outcome = Outcome()
    todo = [item for item in items if not is_done(item, engine)]
    outcome.kept = len(items) - len(todo)
    if outcome.kept:
        say(f"{outcome.kept} frames are refined already")
    workers = max(2, os.cpu_count() or 1)
    with (
        ThreadPoolExecutor(workers) as pool,
        bar(len(todo), "refining", "frame") as progress,
    ):
        writes: deque[Future[None]] = deque()
        for item, rgb, zoe in read_ahead(todo, pool, outcome):
            refined = engine(rgb[None], zoe[None])[0]
            writes.append(pool.submit(write_depth, item.out, refined, engine))
            measure(item, zoe, refined, outcome)
            progress.update()
            while len(writes) > READ_AHEAD:
                writes.popleft().result()
        for write in writes:
            write.result()
        outcome.written = len(todo) - len(outcome.broken)
    return outcome


def read_ahead(
    items: list[Item], pool: ThreadPoolExecutor, outcome: Outcome
) -> Iterator[tuple[Item, np.ndarray, np.ndarray]]:
    """Frames in order, read by the pool before they are needed; broken ones are noted."""
    waiting: deque[tuple[Item, Future[tuple[np.ndarray, np.ndarray]]]] = deque()
    rest = iter(items)
    while True:
        for item in rest:
            waiting.append((item, pool.submit(read_pair, item)))
            if len(waiting) >= READ_AHEAD:
                break
        if not waiting:
            return
        item, reading = waiting.popleft()
        try:
            rgb, zoe = reading.result()
        except UserError as error:
            outcome.broken.append(str(error))
            say(f"left out {item.name}: {error}")
            continue
        yield item, rgb, zoe


def read_pair(item: Item) -> tuple[np.ndarray, np.ndarray]:
    """RGB and pseudo depth of a frame, of one size."""
    rgb, zoe = read_rgb(item.rgb), read_zoe(item.zoe)
    if rgb.shape[:2] != zoe.shape:
        raise UserError(f"{item.rgb} and {item.zoe} differ in size")
    return rgb, zoe


def write_depth(path: Path, depth_u16: np.ndarray, engine: Engine) -> None:
    """A 16-bit png, metres = value / 256, that says which bundle and commit made it."""
    notes = PngImagePlugin.PngInfo()
    notes.add_text(BUNDLE_KEY, engine.digest)
    notes.add_text(COMMIT_KEY, engine.manifest["commit"])
    notes.add_text(SCALE_KEY, "metres = value / 256")
    with replacing(path) as temporary:
        Image.fromarray(depth_u16).save(temporary, "PNG", pnginfo=notes, compress_level=1)


def is_done(item: Item, engine: Engine) -> bool:
    """Whether the result is there and made by this bundle."""
    try:
        with Image.open(item.out) as image:
            return bool(image.info.get(BUNDLE_KEY) == engine.digest)
    except OSError:
        return False


def measure(item: Item, zoe: np.ndarray, refined: np.ndarray, outcome: Outcome) -> None:
    """Add a frame's AbsRel before and after, where its truth is there."""
    if item.truth is None or not item.truth.exists():
        return
    truth_m = read_truth_m(item.truth)
    for name, depth in (("pseudo", zoe), ("refined", refined)):
        valid = (truth_m > 0) & (zoe > 0)
        if valid.any():
            error = np.abs(depth[valid] * ZOE_SCALE - truth_m[valid]) / truth_m[valid]
            outcome.abs_rel[name].append(float(error.mean()))
