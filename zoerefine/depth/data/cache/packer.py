"""From a frame's files to its record: what a data set is packed to, and how a frame is."""

import dataclasses
import hashlib
from typing import Any

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.files.images import OrientationWarning
from zoerefine.depth.data.cache import cache as store
from zoerefine.depth.data.cache.changed_sources import frame_table, packing_code, sources_digest
from zoerefine.depth.data.cache.decode import read_frame
from zoerefine.depth.data.dataset import Dataset
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.data.networks.add_pseudo import require_own_camera
from zoerefine.depth.data.networks.source import label_of, one_source


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
        self._orientation = OrientationWarning()

    @property
    def header(self) -> dict[str, Any]:
        """cache.json without the digests, which are known once all is packed."""
        return {
            "digest": self.digest,
            "code": packing_code(),
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
            arrays = read_frame(frame, encoding, self.height, self.width)
            require_own_camera(frame)
            self._orientation.note(frame.rgb)
        except UserError as error:
            fault = str(error)
        self._require_unchanged(index, states)
        if fault:
            record[:] = 0
            self._note_fault(index, fault)
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

    def _note_fault(self, index: int, fault: str) -> None:
        self.faults[index] = fault
        self.require_few_broken(len(self.faults), self.faults[min(self.faults)])

    def require_few_broken(self, broken: int, first: str) -> None:
        """Raises `UserError`, with the first fault, where more frames are broken than allowed."""
        count = len(self.frames)
        if broken > self.max_broken * count:
            raise UserError(
                f"{broken} of {count} frames cannot be packed, more than DATA.MAX_BROKEN "
                f"({self.max_broken:g} of them) allows; the first: {first}"
            )


def record_digest(record: Any) -> bytes:
    """The first 16 bytes of a record's SHA-256."""
    return hashlib.sha256(record).digest()[:16]


def note_record(frames: np.ndarray, index: int, record: np.ndarray, state: int) -> None:
    """Enter a written record into the frame table.

    The state is written last: a kill in between leaves the frame to be packed again.
    """
    frames["digest"][index] = np.void(record_digest(record))
    frames["state"][index] = state
