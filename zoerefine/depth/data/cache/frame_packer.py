"""Decodes the frames of a data set to the records of a packed cache."""

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
import numpy as np
import PIL

from zoerefine.base.errors import UserError
from zoerefine.base.files import images
from zoerefine.base.files.atomic import digest_json
from zoerefine.depth.data import depth_codec
from zoerefine.depth.data.cache import cache as store
from zoerefine.depth.data.cache import decode
from zoerefine.depth.data.dataset import Dataset
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.data.networks.add_pseudo import require_made_for
from zoerefine.depth.data.networks.pseudo_source import PseudoSource, label_of, one_source

MODULES = (decode, depth_codec, images)  # decide what a record holds
LIBRARIES = (cv2, np, PIL)


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


class FramePacker:
    """Decodes the frames of one data set to records of one size.

    Args:
        workers: threads to decode with.
        max_broken: share of the frames that may be broken.

    Attributes:
        frames: of `frame_dtype` [N], nothing packed yet.
        stride: bytes of a record.
        settings: all that decides the records besides the source files.
        pseudo: what predicted the pseudo depth.
        digest: of sources and settings, 16 hex digits.
        code: see `packing_code`.
        faults: what is wrong with broken frames, by their number.
    """

    def __init__(
        self, dataset: Dataset, height: int, width: int, workers: int, max_broken: float
    ) -> None:
        self.dataset, self.height, self.width = dataset, height, width
        self.workers, self.max_broken = workers, max_broken
        has_points = any(frame.points for frame in dataset.frames)
        self.fields = store.record_fields(height, width, has_points)
        self.stride = store.record_stride(self.fields)
        self.frames = frame_table(dataset)
        self.settings = {
            "height": height,
            "width": width,
            "depth_scale": dataset.depth_encoding.u16_unit_m,
            "zoe_scale": ZOE_UNIT_M,
            "source": str(dataset.root),
            **({"points": True} if has_points else {}),
        }
        self.pseudo = one_source(dataset.pseudo_sources, str(dataset.root))
        self.digest = sources_digest(dataset, self.frames, self.settings, self.pseudo)
        self.faults: dict[int, str] = {}
        self.code = packing_code()
        self._orientation = images.OrientationWarning()

    @property
    def header(self) -> dict[str, Any]:
        """cache.json without the digests, which are known once all is packed."""
        return {
            "digest": self.digest,
            "code": self.code,
            "label": self.dataset.label,
            "pseudo_label": label_of(self.pseudo, self.dataset.pseudo_label),
            "pseudo": self.pseudo.as_json(),
            **self.settings,
            "stride": self.stride,
            "fields": [vars(field) for field in self.fields],
            "clips": [dataclasses.asdict(clip) for clip in self.dataset.clips],
        }

    def pack(self, index: int, record: np.ndarray) -> int:
        """Write a frame to `record`, uint8 [stride]; returns its state.

        The record of a broken frame is all zeros. Raises `UserError` where more frames are broken
        than allowed, and for a file that has changed since the data set was opened.
        """
        frame, encoding = self.dataset.frames[index], self.dataset.depth_encoding
        states, fault = frame.states(), ""
        try:
            arrays = decode.read_frame(frame, encoding, self.height, self.width)
            require_made_for(frame)
            self._orientation.note(frame.rgb)
        except UserError as error:
            fault = str(error)
        self._require_unchanged(index, states)
        if fault:
            record[:] = 0
            self.faults[index] = fault
            self.require_few_broken(len(self.faults), self.faults[min(self.faults)])
            return store.BROKEN
        for field in self.fields:
            field.view(record)[...] = arrays[field.name]
        record[self.fields[-1].offset + self.fields[-1].nbytes :] = 0  # up to a whole page
        return store.PACKED

    def _require_unchanged(self, index: int, states: list[tuple[int, ...]]) -> None:
        """Raises `UserError` unless what was read has the fingerprint that the cache records.

        Args:
            states: of the frame's files before they were read.
        """
        frame, fingerprint = self.dataset.frames[index], self.frames["fingerprint"][index]
        if frame.states() != states or self.dataset.fingerprint(frame, states) != fingerprint:
            raise UserError(
                f"{frame.rgb}, or another file of its frame, has changed since the data set was "
                "opened: start the same command again"
            )

    def require_few_broken(self, broken: int, first: str) -> None:
        """Raises `UserError`, with the first fault, where more frames are broken than allowed."""
        count = len(self.frames)
        if broken > self.max_broken * count:
            raise UserError(
                f"{broken} of {count} frames cannot be packed, more than DATA.MAX_BROKEN "
                f"({self.max_broken:g} of them) allows; the first: {first}"
            )
