"""Depth that is steady from frame to frame: a filter behind any engine, with one frame of memory.

The memory is the last frame's picture and steady depth, both small. For a new frame, the motion of
the picture moves that depth to where its surfaces are now. An expanding picture means an approach:
with an expansion of e a frame, depth shrinks by e (Lee, A theory of visual control of braking,
1976: time to contact = 1 / e). What the new depth differs from this expectation, in log depth,
counts with a gain. The gain is small where both agree in picture and depth, larger where something
moves by itself, and 1 where something else is seen. The correction is smooth, so edges are those of
the new frame.

The filter needs no training and knows no unit: depth enters by its logarithm.

With --stream frames come in order, clip by clip, and each depends on those before it. A clip is a
folder of pictures, or a video. The digest of a frame's inputs includes those of all frames before
it in its clip, so a result is kept only if nothing before it has changed. What the filter remembers
of a frame follows from the frame's picture and its depth in the files. So a frame whose file is
missing is made from the one before it, and the same command continues at any frame with the same
bits.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np

from zoerefine.depth.infer.results import ResultFolder, digest_of
from zoerefine.depth.infer.sources import SourceFrame

VERSION = "stream 1"  # changes when the filter changes

SMALL = 160  # pixels of the longer side of small pictures
LEAST = 32  # of the shorter side: with less OpenCV's flow crashes

# Chosen by the rooms of benchmarks/stream.py, and by moving objects of the synthetic world.
GAIN = 0.08  # of a new frame where nothing moves
GAIN_OF_MOTION = 6.0  # is added, times the usual motion in units of the longer side
GAIN_OF_OWN_MOTION = 30.0  # is added, times a pixel's difference from the usual motion
PICTURE_CHANGE = 6.0  # grey levels: above, the gain rises; at three times as much it is 1
DEPTH_CHANGE = 0.3  # in log depth: above, the gain rises; at twice as much it is 1
LARGEST_APPROACH = 0.2  # in log depth a frame
FLOW_BLUR, FILL_BLUR, PICTURE_BLUR, GAIN_BLUR, HOLE = 25, 31, 5, 5, 9  # small pictures' pixels
LEAST_SHARE = 1e-3  # of valid pixels, where a mean of them is known

# A cut: the new picture, and the last one moved to it, correlate less than this and differ by more.
CUT_CORRELATION, CUT_CHANGE = 0.5, 6.0

BAYER = np.array([[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]], np.float32)
DITHER = (BAYER + np.float32(0.5)) / 16  # what is added before cutting off: 1/32 to 31/32

Array = np.ndarray


@dataclass(frozen=True)
class Memory:
    """What is remembered of a frame. It follows from the frame's picture and its steady depth.

    Attributes:
        size: height and width of the frame.
        grey: the picture, uint8 [h, w].
        log_depth: of steady depth, float32 [h, w].
        known: where depth is valid, bool [h, w].
    """

    size: tuple[int, int]
    grey: Array
    log_depth: Array
    known: Array


def step(memory: Memory | None, rgb_u8: Array, refined_u16: Array) -> tuple[Array, Memory]:
    """Make the depth of one frame steady.

    Args:
        memory: what the last step returned; None begins anew.
        rgb_u8: the picture, uint8 [H, W, 3].
        refined_u16: its depth as an engine returns it, uint16 [H, W]; 0 marks an invalid pixel and
            stays 0.

    Returns:
        Steady depth, uint16 [H, W], and the memory for the next frame. Without a memory, after a
        cut, and where the size has changed, it is `refined_u16` itself.
    """
    now = remember(rgb_u8, refined_u16)
    if memory is None or memory.size != now.size:
        return refined_u16, now
    correction = correction_of(now, memory)
    if correction is None:
        return refined_u16, now
    steady_u16 = corrected(refined_u16, correction)
    return steady_u16, Memory(now.size, now.grey, *small_log(steady_u16))


def steps(memory: Memory | None, rgb_u8: Array, refined_u16: Array) -> tuple[Array, Memory]:
    """`step` for consecutive frames, [N, H, W, 3] and [N, H, W], N at least 1."""
    found = []
    for rgb, refined in zip(rgb_u8, refined_u16, strict=True):
        steady_u16, memory = step(memory, rgb, refined)
        found.append(steady_u16)
    assert memory is not None
    return np.stack(found), memory


def remember(rgb_u8: Array, depth_u16: Array) -> Memory:
    """The memory of a frame with this picture, uint8 [H, W, 3], and depth, uint16 [H, W]."""
    small_rgb = cv2.resize(rgb_u8, small_size(depth_u16), interpolation=cv2.INTER_AREA)
    grey = cv2.cvtColor(small_rgb, cv2.COLOR_RGB2GRAY)
    return Memory(depth_u16.shape, grey, *small_log(depth_u16))


def small_size(depth_u16: Array) -> tuple[int, int]:
    """Width and height of small pictures, for OpenCV."""
    height, width = depth_u16.shape
    scale = SMALL / max(height, width)
    return max(LEAST, round(width * scale)), max(LEAST, round(height * scale))


def small_log(depth_u16: Array) -> tuple[Array, Array]:
    """Log of the mean of the valid pixels' depth, float32 [h, w], and where there are any."""
    size, valid = small_size(depth_u16), depth_u16 > 0
    total, share = (
        cv2.resize(one.astype(np.float32), size, interpolation=cv2.INTER_AREA)
        for one in (depth_u16, valid)
    )
    known = share > LEAST_SHARE
    mean = total / np.maximum(share, LEAST_SHARE)
    return np.log(np.where(known, mean, np.float32(1))), known


def correction_of(now: Memory, last: Memory) -> Array | None:
    """What to add to log depth, float32 [h, w]; None after a cut."""
    flow = flow_to_last(now.grey, last.grey)
    difference = now.grey - at_last_place(last.grey.astype(np.float32), flow, cv2.BORDER_REPLICATE)
    difference -= np.median(difference)  # the exposure of the camera
    if is_cut(now.grey, difference):
        return None
    share = at_last_place(last.known.astype(np.float32), flow)
    known = now.known & (share > 0.5)
    if not known.any():
        return None
    expected = at_last_place(last.log_depth, flow) / np.maximum(share, 0.5) + approach(flow)
    change = now.log_depth - expected
    scale = np.median(change[known])  # of the whole picture
    gain = gain_of(flow, difference, change - scale)
    gain_of_scale = np.maximum(gain.min(), ramp(abs(scale), DEPTH_CHANGE, 2 * DEPTH_CHANGE))
    of_scale = np.float32((gain_of_scale - 1) * scale)
    return filled((gain - 1) * (change - scale), known) + of_scale


def flow_to_last(grey: Array, last: Array) -> Array:
    """From each pixel to its place in the last picture: x and y, float32 [h, w, 2]."""
    flow = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST)
    # Its stripes, one a thread, would end the propagation: bits would depend on the threads.
    flow.setUseSpatialPropagation(False)
    return flow.calc(grey, last, np.zeros((*grey.shape, 2), np.float32))


def at_last_place(values: Array, flow: Array, border: int = cv2.BORDER_CONSTANT) -> Array:
    """Values of the last frame, float32 [h, w], moved to their pixels now; 0 from outside it."""
    height, width = values.shape
    x = flow[..., 0] + np.arange(width, dtype=np.float32)
    y = flow[..., 1] + np.arange(height, dtype=np.float32)[:, None]
    return cv2.remap(values, x, y, cv2.INTER_LINEAR, borderMode=border)


def is_cut(grey: Array, difference: Array) -> bool:
    """Whether the last picture, moved to this one, shows something else."""
    change = float(np.abs(difference).mean())
    if change <= CUT_CHANGE:  # dark and empty pictures have no correlation
        return False
    moved = grey - difference
    ours, theirs = (cv2.GaussianBlur(one.astype(np.float32), (0, 0), 1.5) for one in (grey, moved))
    spread = float(ours.std() * theirs.std())
    covariance = float(((ours - ours.mean()) * (theirs - theirs.mean())).mean())
    return covariance <= CUT_CORRELATION * spread


def approach(flow: Array) -> np.float32:
    """The change of log depth that the expansion of the picture shows: half its divergence."""
    smooth = cv2.blur(flow, (FLOW_BLUR, FLOW_BLUR))
    divergence = np.gradient(smooth[..., 0], axis=1) + np.gradient(smooth[..., 1], axis=0)
    half = np.median(divergence) / 2
    return np.float32(np.clip(half, -LARGEST_APPROACH, LARGEST_APPROACH))


def gain_of(flow: Array, difference: Array, change: Array) -> Array:
    """How much a new frame counts at each pixel, float32 [h, w], 0 to 1."""
    longer = np.float32(max(difference.shape))
    usual = np.median(length(flow)) / longer
    own = length(flow - np.median(flow, axis=(0, 1))) / longer
    of_picture = np.abs(cv2.blur(difference, (PICTURE_BLUR, PICTURE_BLUR)))
    gain = np.maximum.reduce([
        np.minimum(GAIN + GAIN_OF_MOTION * usual + GAIN_OF_OWN_MOTION * own, 1),
        ramp(of_picture, PICTURE_CHANGE, 3 * PICTURE_CHANGE),
        ramp(np.abs(change), DEPTH_CHANGE, 2 * DEPTH_CHANGE),
    ])  # fmt: skip
    # Holes in something that moved would keep what was there before.
    without_holes = cv2.morphologyEx(gain, cv2.MORPH_CLOSE, np.ones((HOLE, HOLE), np.uint8))
    return cv2.blur(without_holes, (GAIN_BLUR, GAIN_BLUR))


def length(flow: Array) -> Array:
    """The lengths of motions, [h, w, 2]."""
    return np.hypot(flow[..., 0], flow[..., 1])


def ramp(value: Array, low: float, high: float) -> Array:
    """0 up to `low`, 1 from `high`, and a line between."""
    return np.clip((value - low) / (high - low), 0, 1)


def filled(correction: Array, known: Array) -> Array:
    """The correction, and where it is not known a mean of those around; 0 far from them."""
    inside = known.astype(np.float32)
    size = FILL_BLUR, FILL_BLUR
    total, share = cv2.blur(correction * inside, size), cv2.blur(inside, size)
    return np.where(known, correction, total / (share + np.float32(LEAST_SHARE)))


def corrected(depth_u16: Array, correction: Array) -> Array:
    """Depth times exp(correction), uint16 [H, W]; a valid pixel stays valid.

    Rounding is dithered (Bayer, An optimum method for two-level rendition of continuous-tone
    pictures, 1973), so that the means which are remembered are not rounded. Else an error of a few
    units, which is centimetres, would stay for ever in a static scene: each step's decrease would
    be rounded away. Where the correction is 0, depth keeps its bits.
    """
    height, width = depth_u16.shape
    steady = cv2.resize(np.exp(correction), (width, height), interpolation=cv2.INTER_LINEAR)
    steady *= depth_u16
    steady += np.tile(DITHER, (height // 4 + 1, width // 4 + 1))[:height, :width]
    np.minimum(steady, 65535, out=steady)
    return np.maximum(steady.astype(np.uint16), depth_u16 > 0)


@dataclass(frozen=True)
class Place:
    """Where a frame stands in its clip.

    Attributes:
        number: of the frame in the source.
        inputs: the digest of what it and all frames before it in the clip are made from.
        kept: the last frame before it in the clip whose files exist already; None without one.
        frame: of such a kept one.
    """

    clip: str
    number: int
    inputs: str
    kept: "Place | None" = None
    frame: SourceFrame | None = None


class ClipOrder:
    """Finds the places of a source's frames, which must come in order."""

    def __init__(self) -> None:
        self.last: Place | None = None

    def place_of(self, frame: SourceFrame, inputs: str) -> Place:
        """The place of the next frame.

        Args:
            inputs: the digest of what this frame alone is made from.
        """
        clip, last = str(Path(frame.name).parent), self.last
        number = last.number + 1 if last else 0
        before, kept = (last.inputs, last.kept) if last and last.clip == clip else ("", None)
        self.last = Place(clip, number, digest_of(VERSION, before, inputs), kept)
        return self.last

    def keep(self, frame: SourceFrame) -> None:
        """Note that the files of the last frame exist already."""
        assert self.last
        self.last = replace(self.last, kept=replace(self.last, kept=None, frame=frame))


class ClipFilter:
    """Makes the depth of frames steady, which must come in order. Some may be missing."""

    def __init__(self, results: ResultFolder) -> None:
        self.results = results
        self.last: Place | None = None
        self.memory: Memory | None = None

    def steady(self, place: Place, rgb_u8: np.ndarray, refined_u16: np.ndarray) -> np.ndarray:
        """Steady depth of the next frame, uint16 [H, W], from its picture and refined depth.

        Raises `UserError` if the files of a kept frame before it are no longer there, or others.
        """
        if self.last and self.last.clip != place.clip:
            self.last = self.memory = None
        kept = place.kept
        if kept and kept.frame and (self.last is None or kept.number > self.last.number):
            depth_u16 = self.results.read(kept.frame.name, kept.inputs)
            self.memory = remember(kept.frame.read(), depth_u16)
        self.last = place
        steady_u16, self.memory = step(self.memory, rgb_u8, refined_u16)
        return steady_u16
