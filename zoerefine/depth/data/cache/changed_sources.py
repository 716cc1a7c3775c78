"""What a cache was packed from: files, clips, sizes and code. A change packs it again."""

import ast
import dataclasses
import hashlib
import os
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from inspect import getfile
from pathlib import Path
from typing import Any

import cv2
import numpy
import numpy as np
import PIL

from zoerefine.base.files import images
from zoerefine.base.files.atomic import digest_json
from zoerefine.depth.data import depth_codec
from zoerefine.depth.data.cache import cache as store
from zoerefine.depth.data.cache import decode
from zoerefine.depth.data.dataset import Dataset
from zoerefine.depth.data.networks.source import PseudoSource

SOURCES = ["clip", "name", "fingerprint"]  # columns that packing does not change
MODULES = (decode, depth_codec, images)  # decide what a record holds
LIBRARIES = (cv2, numpy, PIL)


@cache
def packing_code() -> str:
    """A digest of the code and library versions that decide records, 16 hex digits.

    Comments and line breaks do not count.
    """
    sources = [ast.unparse(ast.parse(Path(getfile(module)).read_bytes())) for module in MODULES]
    versions = [f"{library.__name__} {library.__version__}" for library in LIBRARIES]
    return digest_json([sources, [*versions, f"simplejpeg {jpeg_version()}"]])[:16]


def jpeg_version() -> str:
    """Of simplejpeg; "none" on a machine without it, which cannot pack JPEG files."""
    try:
        return version("simplejpeg")
    except PackageNotFoundError:
        return "none"


def sources_digest(
    dataset: Dataset, table: np.ndarray, settings: Mapping[str, Any], pseudo: PseudoSource
) -> str:
    """The name of a cache's folder, 16 hex digits: it changes with whatever the records depend on.

    Args:
        table: the frame table of the data set.
        settings: sizes and units of the records.
        pseudo: what predicted the pseudo depth.
    """
    clips = [dataclasses.asdict(clip) for clip in dataset.clips]
    files = hashlib.sha256(table["fingerprint"].tobytes()).hexdigest()
    facts: list[Any] = [store.SCHEMA, settings, clips, files]
    # What earlier versions did not know is left out where it says nothing: caches stay valid.
    if pseudo.is_known:
        facts.append(pseudo.as_json())
    if not paths_tell_places(dataset):
        facts.append([(frame.clip, frame.name) for frame in dataset.frames])
    return digest_json(facts)[:16]


def frame_table(dataset: Dataset) -> np.ndarray:
    """A row of `frame_dtype` for each frame, with the fingerprint of its files; none is packed."""
    names = [frame.name.encode() for frame in dataset.frames]
    table = np.zeros(len(names), store.frame_dtype(max(map(len, names), default=1)))
    clips = {clip.name: number for number, clip in enumerate(dataset.clips)}
    table["clip"] = [clips[frame.clip] for frame in dataset.frames]
    table["name"] = names
    table["fingerprint"] = dataset.fingerprints()
    return table


def paths_tell_places(dataset: Dataset) -> bool:
    """Whether the pictures' paths, and the list of clips, tell each frame's clip and name.

    Then the digest needs no more than the fingerprints. Names may have further zeros in front.
    """
    clips = {clip.name for clip in dataset.clips}
    for frame in dataset.frames:
        path = Path(os.path.relpath(frame.rgb, dataset.root))
        told = clips.intersection(path.parts) if len(clips) > 1 else clips
        if told != {frame.clip} or frame.name.lstrip("0") != path.stem.lstrip("0"):
            return False
    return True


def has_sources_of(frames: np.ndarray, expected: np.ndarray) -> bool:
    """Whether a frame table lists exactly these source files."""
    same = frames.dtype == expected.dtype
    return same and np.array_equal(frames[SOURCES], expected[SOURCES])
