"""Whether colour and depth fit together: depth jumps should lie on colour edges.

For each shift of a few pixels: the mean rank, within its picture, of the colour gradient at the
depth jumps. It is about 0.5 for a shift at random and highest where the edges coincide.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import cv2
import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.files.images import read_rgb
from zoerefine.depth.data.cache.decode import read_frame
from zoerefine.depth.data.dataset import Dataset, evenly_spaced

Array = np.ndarray

FRAMES = 50  # of a data set that are measured
REACH = 6  # px, the largest shift
JUMP = 1.1  # ratio of the depths of neighbouring pixels
JUMPS_NEEDED = 100  # pixels at depth jumps; a frame with fewer says nothing
SHIFT_TO_WARN = 3  # px
GAIN_TO_WARN = 0.02  # of the mean rank: less is chance


@dataclass(frozen=True)
class EdgeAlignment:
    """The shift at which colour edges fit depth jumps best.

    Attributes:
        shift_x, shift_y: px that the colour lies to the right of and below the depth.
        rank: mean rank of the colour gradient at that shift, 0 to 1.
        rank_unshifted: the same without a shift.
        frames: that were measured.
    """

    shift_x: int
    shift_y: int
    rank: float
    rank_unshifted: float
    frames: int

    @property
    def is_off(self) -> bool:
        """Whether colour and depth are clearly shifted against each other."""
        far = max(abs(self.shift_x), abs(self.shift_y)) >= SHIFT_TO_WARN
        return far and self.rank - self.rank_unshifted >= GAIN_TO_WARN

    def __str__(self) -> str:
        shift = f"{self.shift_x:+d},{self.shift_y:+d} px (right, down)"
        ranks = f"{self.rank:.3f} there, {self.rank_unshifted:.3f} without a shift"
        meaning = "of 1, where every depth edge is on the strongest colour edges; 0.5 by chance"
        return f"best with colour shifted by {shift}: {ranks} ({meaning}); {self.frames} frames"


def edge_alignment(dataset: Dataset) -> EdgeAlignment | None:
    """Measure up to `FRAMES` frames; None where none of them has enough depth jumps."""
    return best_alignment(_pairs(dataset))


def best_alignment(pairs: Iterable[tuple[Array, Array]]) -> EdgeAlignment | None:
    """Measure frames: (rgb uint8 [H, W, 3], depth [H, W] of any unit, 0 = invalid)."""
    measured = [ranks for rgb, depth in pairs if (ranks := shifted_ranks(rgb, depth)) is not None]
    if not measured:
        return None
    ranks = np.mean(measured, 0)
    row, column = np.unravel_index(ranks.argmax(), ranks.shape)
    x, y = int(column) - REACH, int(row) - REACH
    return EdgeAlignment(x, y, ranks[row, column], ranks[REACH, REACH], len(measured))


def shifted_ranks(rgb: Array, depth: Array) -> Array | None:
    """Mean rank of the colour gradient at depth jumps, [2 * REACH + 1] * 2: rows are shifts in y.

    None for a frame with few depth jumps.
    """
    jumps = depth_jumps(depth)
    jumps[:REACH] = jumps[-REACH:] = False
    jumps[:, :REACH] = jumps[:, -REACH:] = False
    rows, columns = np.nonzero(jumps)
    if len(rows) < JUMPS_NEEDED:
        return None
    rank = gradient_rank(rgb)
    shifts = range(-REACH, REACH + 1)
    return np.array([[rank[rows + y, columns + x].mean() for x in shifts] for y in shifts])


def gradient_rank(rgb: Array) -> Array:
    """The share of the picture's pixels with a weaker gradient than each pixel's, [H, W]."""
    gray = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY).astype(np.float32)
    gradient = np.hypot(cv2.Sobel(gray, cv2.CV_32F, 1, 0), cv2.Sobel(gray, cv2.CV_32F, 0, 1))
    return np.searchsorted(np.sort(gradient, None), gradient) / gradient.size


def depth_jumps(depth: Array) -> Array:
    """The valid pixels with a valid neighbour whose depth is `JUMP` times theirs, bool [H, W]."""
    values = depth.astype(np.float32)
    jumps = np.zeros(depth.shape, bool)
    for one, other in ((np.s_[:-1], np.s_[1:]), (np.s_[:, :-1], np.s_[:, 1:])):
        near, far = np.minimum(values[one], values[other]), np.maximum(values[one], values[other])
        found = (near > 0) & (far > JUMP * near)
        jumps[one] |= found
        jumps[other] |= found
    return jumps


def _pairs(dataset: Dataset) -> Iterable[tuple[Array, Array]]:
    for frame in evenly_spaced(dataset.frames, FRAMES):
        try:
            height, width = read_rgb(frame.rgb).shape[:2]
            fields = read_frame(frame, dataset.depth_encoding, height, width)
        except UserError:  # reported as a fault
            continue
        yield fields["rgb"], fields["depth"]
