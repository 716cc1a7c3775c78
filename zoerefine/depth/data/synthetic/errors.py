"""The errors of the synthetic pseudo depth: like those of a real network, in part predictable.

The logarithm of the pseudo depth is the logarithm of the true depth with soft edges, and with
small moving objects blended into their background, plus an error

    e = s(t) + w(u, v) + m(u, v) + n(u, v)

- s, one number a picture, about 40% of the squared error: a constant bias, a part that depends on
  the picture, and a part that drifts with the time constants of a real recording.
- w, a warp of low spatial frequency, about 37%: range compression, a slope over the rows, a part
  that depends on smoothed brightness, and a smooth random field that drifts.
- m, of middle frequency (8 to 40 pixels at 640x480): depends on the texture.
- n, fine noise.

Every coefficient varies by scene. The errors of family "b" have other functional forms and the
same size. They test whether a refiner has learned more than to invert family "a".
"""

from dataclasses import astuple, dataclass

import cv2
import numpy as np

Array = np.ndarray

BIAS = 0.15
DRIFT_FRAMES = 70.0  # frames at 24 Hz in which the drift's autocorrelation falls to 1/e
FIELD_CELLS = (4, 5)  # the random warp's grid


@dataclass(frozen=True)
class SceneErrors:
    """Coefficients of one scene; by default the means of all scenes."""

    family: str
    scale_by_depth: float = -0.55
    scale_by_light: float = 1.2
    compression: float = 0.25
    slope: float = 0.2
    warp_by_light: float = 0.85
    texture: float = 0.6
    edge_px: float = 5.0  # at 640 pixels width
    fading: float = 0.5


@dataclass(frozen=True)
class ClipErrors:
    """The drifting errors of one clip: scale [frames] and random warp [frames, *FIELD_CELLS]."""

    scale: Array
    field: Array


def scene_errors(rng: np.random.Generator, family: str) -> SceneErrors:
    """Draw a scene's coefficients at random around the means."""
    _, *means = astuple(SceneErrors(family))
    return SceneErrors(family, *(float(mean * rng.uniform(0.7, 1.3)) for mean in means))


def clip_errors(rng: np.random.Generator, frames: int, stride: int) -> ClipErrors:
    """Draw a clip's drifts: stationary first-order processes, plus a little white noise."""
    keep = np.exp(-stride / DRIFT_FRAMES)
    scale = drift(rng, frames, keep, ()) * 0.055 + rng.standard_normal(frames) * 0.015
    return ClipErrors(scale, drift(rng, frames, keep, FIELD_CELLS) * 0.09)


def drift(rng: np.random.Generator, frames: int, keep: float, shape: tuple[int, ...]) -> Array:
    """x[t] = keep x[t-1] + sqrt(1 - keep^2) noise, of unit variance: [frames, *shape]."""
    values = rng.standard_normal((frames, *shape))
    for t in range(1, frames):
        values[t] = keep * values[t - 1] + np.sqrt(1 - keep**2) * values[t]
    return values


def pseudo_depth(
    depth_m: Array,
    rgb: Array,
    ids: Array,
    scene: SceneErrors,
    clip: ClipErrors,
    frame: int,
    rng: np.random.Generator,
) -> Array:
    """The pseudo depth of one picture, float32 [H, W], metres.

    Args:
        depth_m: float32 [H, W], the truth.
        rgb: uint8 [H, W, 3], the network's input.
        ids: uint8 [H, W], of moving objects; 0 is the background.
        frame: the picture's number in its clip.
        rng: draws the fine noise.
    """
    height, width = depth_m.shape
    px = width / 640
    log_depth = soften(np.log(depth_m), ids, scene, px)
    light = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY).astype(np.float32) / 255
    smooth_light = blur(light, 45 * px)
    smooth_depth = blur(log_depth, 30 * px)
    field = cv2.resize(
        clip.field[frame].astype(np.float32), (width, height), interpolation=cv2.INTER_CUBIC
    )
    error = (
        scale_error(log_depth, light, scene)
        + warp_error(smooth_depth, smooth_light, scene)
        + scene.texture * (blur(light, 4 * px) - blur(light, 16 * px))
        + np.float32(clip.scale[frame])
        + field
        # Noise with a grain of about two pixels; standard deviation near 0.04.
        + 0.2 * blur(rng.standard_normal((height, width), np.float32), 1.5 * px)
    )
    return np.exp(log_depth + error).astype(np.float32)


def scale_error(log_depth: Array, light: Array, scene: SceneErrors) -> np.float32:
    """The predictable error of a picture's scale: a function of its depth and brightness."""
    seen, bright = log_depth.mean() - 0.9, light.mean() - 0.45
    if scene.family == "b":  # saturates, and uses medians instead of means
        seen = np.tanh(2 * (np.median(log_depth) - 0.9)) / 1.5
        bright = np.tanh(4 * (np.median(light) - 0.45)) / 3
    value = scene.scale_by_depth * seen + scene.scale_by_light * bright
    return np.float32(BIAS + value)


def warp_error(smooth_depth: Array, smooth_light: Array, scene: SceneErrors) -> Array:
    """The predictable warp: a function of range, row and brightness."""
    rows = np.linspace(-1, 1, smooth_depth.shape[0], dtype=np.float32)[:, None]
    spread = smooth_depth - smooth_depth.mean()
    light = smooth_light - smooth_light.mean()
    if scene.family == "b":  # steep at the top and bottom of the picture, and saturates in range
        rows = 1.5 * rows**3
        spread = np.tanh(2 * spread) / 1.5
    return scene.slope * rows - scene.compression * spread + scene.warp_by_light * light


def soften(log_depth: Array, ids: Array, scene: SceneErrors, px: float) -> Array:
    """Soften edges, and blend moving objects into their surroundings, small ones most."""
    soft = blur(log_depth, scene.edge_px * px)
    if not ids.any():
        return soft
    moving = (ids > 0).astype(np.float32)
    around = blur(log_depth * (1 - moving), 40 * px) / np.maximum(blur(1 - moving, 40 * px), 0.05)
    # The mask of a small object, blurred over its own size, has low values.
    solidity = blur(moving, 15 * px)
    sink = scene.fading * moving * (1 - solidity)
    sink = blur(sink, 2 * px)
    return soft + sink * (around - soft)


def blur(values: Array, sigma: float) -> Array:
    """A Gaussian blur; a wide one is computed on a smaller picture, to save time."""
    shrink = max(1, int(sigma / 4))
    if shrink == 1:
        return cv2.GaussianBlur(values, (0, 0), sigma, borderType=cv2.BORDER_REPLICATE)
    height, width = values.shape
    small = cv2.resize(
        values, (-(-width // shrink), -(-height // shrink)), interpolation=cv2.INTER_AREA
    )
    small = cv2.GaussianBlur(small, (0, 0), sigma / shrink, borderType=cv2.BORDER_REPLICATE)
    return cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR)
