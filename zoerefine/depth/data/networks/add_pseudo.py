"""Runs a depth network over the pictures of a data set that have no pseudo depth."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.files.images import decode_rgb, file_bytes, png_text, write_png
from zoerefine.base.messages import say
from zoerefine.base.progress import bar
from zoerefine.base.threads import submitted_ahead
from zoerefine.depth.data.dataset import Dataset, Frame
from zoerefine.depth.data.depth_codec import SCALE, ZOEDEPTH
from zoerefine.depth.data.intrinsics import needs_intrinsics
from zoerefine.depth.data.layouts.readers import load_layout
from zoerefine.depth.data.networks import pseudo_source as sources

CAMERA = "zoerefine-camera"  # in a file's text: the camera that its metres depend on


def lacks_pseudo_depth(frame: Frame, path: Path | None) -> bool:
    """Whether a frame has no pseudo depth in `path`, or ours for what is another frame by now."""
    return path is None or not path.exists() or bool(made_for(frame, path))


def require_made_for(frame: Frame) -> None:
    """Raises `UserError` for pseudo depth of ours that another picture or camera has."""
    if frame.zoe and (other := made_for(frame, frame.zoe)):
        raise sources.not_made_for(other, frame.zoe)


def made_for(frame: Frame, path: Path) -> str:
    """What differs between a frame and what its pseudo depth says it was made for; else empty."""
    text = png_text(path)
    camera = text.get(CAMERA)
    if None not in (camera, frame.intrinsics) and camera != str(frame.intrinsics):
        return f"another camera than {frame.intrinsics}"
    return sources.other_picture(frame.rgb, text)


def add_pseudo_depth(dataset: Dataset, network: sources.DepthNetwork, batch: int) -> int:
    """Write a 16-bit PNG (metres * 256) for every frame without pseudo depth; returns how many.

    Depth that this function made is written again where the frame has another picture or, if it
    depended on the focal length, other intrinsics now. Files are written whole or not at all, so
    the same call continues after a kill. Reading, the network and writing overlap. Each folder that
    gets files gets a pseudo.json, too, unless it holds depth of unknown origin.

    Raises `UserError` where a picture cannot be read, its pseudo depth cannot be written, or the
    data set has pseudo depth of another network.
    """
    layout = load_layout(dataset.layout)
    frames = [frame for frame in dataset.frames if lacks_pseudo_depth(frame, frame.zoe)]
    paths = {frame: frame.zoe or layout.pseudo_path(dataset.root, frame) for frame in frames}
    to_do = [frame for frame in frames if lacks_pseudo_depth(frame, paths[frame])]
    done = len(frames) - len(to_do)
    listed = [frame.zoe for frame in dataset.frames if frame.zoe is not None]
    existing = listed + [paths[frame] for frame in set(frames) - set(to_do)]
    if network.focal and not all(frame.intrinsics for frame in to_do):
        raise needs_intrinsics(network.source.name)
    if network.focal and (older := sum(CAMERA not in png_text(path) for path in existing)):
        say(f"{older} files of pseudo depth do not say which camera they are of: remove those "
            "whose intrinsics you have corrected, in frames.csv as well, and run this command "
            "again")  # fmt: skip
    state_source(dataset.root, existing, set(paths.values()), network.source)

    def write(frame: Frame, picture: str, depth_m: np.ndarray) -> None:
        camera = {CAMERA: str(frame.intrinsics)} if network.focal else {}
        text = SCALE | {sources.PICTURE: picture} | camera
        write_png(paths[frame], ZOEDEPTH.encode(depth_m), text)

    with ThreadPoolExecutor() as pool, bar(len(frames), "pseudo depth", "frame", done) as progress:
        written: list[Future[None]] = []
        for part, digests, pictures in read_batches(to_do, batch, pool):
            depths = network.predict(pictures, *(frame.intrinsics for frame in part))
            for future in written:
                future.result()
            frames_read = zip(part, digests, depths, strict=True)
            written = [pool.submit(write, *one) for one in frames_read]
            progress.update(len(part))
        for future in written:
            future.result()
    new = {frame.rgb: path for frame, path in paths.items() if frame.zoe is None}
    if new:
        layout.enter_pseudo(dataset.root, new)
    return len(to_do)


def state_source(
    root: Path, existing: Iterable[Path], written: Iterable[Path], source: sources.PseudoSource
) -> None:
    """Write pseudo.json into the folders that get depth, before they get any.

    Raises `UserError` where the data set has pseudo depth of another network.

    Args:
        existing, written: files of pseudo depth.
    """
    present = {folder: sources.source_of(folder) for folder in {path.parent for path in existing}}
    for other in set(present.values()) - {sources.UNKNOWN}:
        if not other.is_like(source):
            raise UserError(
                f"{root} has pseudo depth of {other}, which {source} would be mixed with: make "
                "all of it with one network"
            )
    for folder in sorted({path.parent for path in written}):
        if present.get(folder) == sources.UNKNOWN:
            say(f"{folder} has files of an unknown network, so all of it stays of unknown origin")
        elif sources.source_of(folder) != source:
            sources.write_source(folder, source)


def read_batches(
    frames: Sequence[Frame], batch: int, pool: ThreadPoolExecutor
) -> Iterator[tuple[list[Frame], list[str], np.ndarray]]:
    """Frames of one size, SHA-256 of their pictures' files, and these pictures [B, H, W, 3].

    They are read one batch ahead.
    """

    def read_one(frame: Frame) -> tuple[Frame, str, np.ndarray]:
        data = file_bytes(frame.rgb)
        return frame, sha256(data).hexdigest(), decode_rgb(data, str(frame.rgb))

    def read(part: Sequence[Frame]) -> Any:
        return list(pool.map(read_one, part))

    parts = [frames[start : start + batch] for start in range(0, len(frames), batch)]
    with ThreadPoolExecutor(1) as reader:
        for found in submitted_ahead(parts, lambda part: reader.submit(read, part), 1):
            for _, same in groupby(found, key=lambda one: one[2].shape):
                group, digests, pictures = zip(*same, strict=True)
                yield list(group), list(digests), np.stack(pictures)
