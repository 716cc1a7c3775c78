"""Whether all clips of a data set show one room, so that no split of them tests another room.

Two pictures of one place share points: SIFT features that match (Lowe's ratio test) and fit one
epipolar geometry (RANSAC on the fundamental matrix). Different rooms share few, by chance.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations, product

import cv2
import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.files.images import read_rgb
from zoerefine.base.progress import track
from zoerefine.depth.data.dataset import Dataset, Frame, evenly_spaced

Array = np.ndarray

CLIPS = 8  # of a data set that are compared
FRAMES = 40  # of these clips together
FRAMES_A_CLIP = 10
LONG_SIDE = 320  # px that larger pictures are reduced to
FEATURES = 600  # the strongest of a picture
CONTRAST = 0.01  # SIFT's threshold; its default, 0.04, finds little on walls
RATIO = 0.75  # of the distances to the nearest and second nearest feature
EPIPOLAR_PX = 2.0
POINTS_NEEDED = 8  # for a fundamental matrix
POINTS_OF_ONE_ROOM = 15  # any two of 63 real rooms shared at most 11, by chance


@dataclass(frozen=True)
class Features:
    """SIFT features of a picture: points float32 [N, 2] in px, descriptors float32 [N, 128]."""

    points: Array
    descriptors: Array


@dataclass(frozen=True)
class RoomComparison:
    """How strongly the clips of a data set are connected by points that they share.

    Attributes:
        weakest_link: the largest number such that clips that share at least so many points
            connect all compared clips.
        compared, clips: how many clips were compared, and how many there are.
    """

    weakest_link: int
    compared: int
    clips: int

    @property
    def is_one_room(self) -> bool:
        """Whether all compared clips seem to show one room."""
        return self.weakest_link >= POINTS_OF_ONE_ROOM


def compare_rooms(dataset: Dataset) -> RoomComparison | None:
    """Compare frames of up to `CLIPS` clips, every two clips; None for fewer than two clips."""
    names = evenly_spaced(sorted({frame.clip for frame in dataset.frames}), CLIPS)
    if len(names) < 2:
        return None
    count = min(FRAMES_A_CLIP, FRAMES // len(names))
    with ThreadPoolExecutor() as pool:
        clips = list(pool.map(lambda name: _clip_features(dataset.frames, name, count), names))
        pairs = list(combinations(range(len(names)), 2))
        found = pool.map(lambda pair: shared_points(clips[pair[0]], clips[pair[1]]), pairs)
        shared = dict(zip(pairs, track(found, len(pairs), "comparing clips", "pair"), strict=True))
    weakest = weakest_link(shared, len(names))
    return RoomComparison(weakest, len(names), len({frame.clip for frame in dataset.frames}))


def weakest_link(shared: dict[tuple[int, int], int], count: int) -> int:
    """The smallest edge of the maximum spanning tree of `count` nodes (Prim's algorithm)."""
    reached, weakest = {0}, max(shared.values())
    while len(reached) < count:
        points, node = max(
            (points, (set(pair) - reached).pop())
            for pair, points in shared.items()
            if len(reached & set(pair)) == 1
        )
        reached.add(node)
        weakest = min(weakest, points)
    return weakest


def shared_points(clip: Sequence[Features], other: Sequence[Features]) -> int:
    """The points that two clips share: the most of any two of their pictures."""
    return max((matching_points(a, b) for a, b in product(clip, other)), default=0)


def matching_points(one: Features, other: Features) -> int:
    """The number of matches of two pictures' features that fit one epipolar geometry."""
    if min(len(one.points), len(other.points)) < POINTS_NEEDED:
        return 0
    found = cv2.BFMatcher(cv2.NORM_L2).knnMatch(one.descriptors, other.descriptors, k=2)
    matches = [near for near, second in found if near.distance < RATIO * second.distance]
    # A feature of the other picture counts once, with its nearest.
    nearest = {
        match.trainIdx: match for match in sorted(matches, key=lambda m: m.distance, reverse=True)
    }
    if len(nearest) < POINTS_NEEDED:
        return 0
    points = one.points[[match.queryIdx for match in nearest.values()]]
    others = other.points[list(nearest)]
    _, fits = cv2.findFundamentalMat(points, others, cv2.FM_RANSAC, EPIPOLAR_PX, 0.99)
    return 0 if fits is None else int(fits.sum())


def features(rgb: Array) -> Features:
    """The strongest features of a picture, uint8 [H, W, 3]."""
    gray = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    scale = LONG_SIDE / max(gray.shape)
    if scale < 1:
        gray = cv2.resize(gray, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    sift = cv2.SIFT.create(nfeatures=FEATURES, contrastThreshold=CONTRAST)
    points, descriptors = sift.detectAndCompute(gray, None)
    if not points:
        return Features(np.empty((0, 2), np.float32), np.empty((0, 128), np.float32))
    return Features(np.array([point.pt for point in points], np.float32), descriptors)


def _clip_features(frames: Sequence[Frame], clip: str, count: int) -> list[Features]:
    found = []
    for frame in evenly_spaced([frame for frame in frames if frame.clip == clip], count):
        try:
            found.append(features(read_rgb(frame.rgb)))
        except UserError:  # reported as a fault
            continue
    return found
