"""Synthetic scenes: rooms, solids, textures, moving objects and camera paths, all from one seed.

World coordinates are metres: x to the right, y up, z forward; the floor is y = 0. The camera
looks along its own z axis, x to the right, y down.
"""

from dataclasses import dataclass, replace

import cv2
import numpy as np

Array = np.ndarray

FRAME_RATE = 24.0
TILE = 256  # pixels of a texture tile's side
TILE_M = 2.0  # metres that a tile covers

# Half sizes (x, y, z) in metres of the moving objects, by class.
CLASSES = {
    "people": (0.25, 0.85, 0.25),
    "toycar": (0.30, 0.14, 0.18),
    "robot": (0.20, 0.32, 0.20),
    "dog": (0.40, 0.28, 0.14),
    "cat": (0.24, 0.16, 0.10),
}


@dataclass(frozen=True)
class Solid:
    """A box or an upright cylinder, turned by `yaw` around its upright axis.

    `half`: half sizes in metres; of a cylinder, (radius, half height, radius).
    """

    shape: str
    center: Array
    half: Array
    yaw: float
    texture: Array  # uint8 [TILE, TILE, 3]


@dataclass(frozen=True)
class Mover:
    """A moving object: moves back and forth along a line at constant speed."""

    kind: str
    start: Array
    end: Array
    phase: float
    solid: Solid  # centred at the origin


@dataclass(frozen=True)
class Scene:
    """Everything that all clips of a scene share."""

    size: Array  # of the room, metres: x, y, z
    textures: tuple[Array, ...]  # walls -x, +x, floor, ceiling, walls -z, +z
    furniture: tuple[Solid, ...]
    light: Array
    camera_height: float  # metres
    pitch: float  # radians, downwards


@dataclass(frozen=True)
class Pose:
    """Position and orientation of the camera: origin [3], rotation [3, 3] to the world."""

    origin: Array
    rotation: Array


def make_scene(seed: int, number: int) -> Scene:
    rng = np.random.default_rng([seed, number])
    size = np.array([rng.uniform(5, 9), rng.uniform(2.5, 3.2), rng.uniform(6, 10)], np.float32)
    low = number % 4 == 3  # a camera near the floor, as in some of HabitatDyn's sets
    return Scene(
        size=size,
        textures=tuple(make_texture(rng) for _ in range(6)),
        furniture=tuple(make_furniture(rng, size) for _ in range(int(rng.integers(8, 14)))),
        light=(size * rng.uniform([0.2, 0.8, 0.2], [0.8, 0.95, 0.8])).astype(np.float32),
        camera_height=0.2 if low else 1.25,
        pitch=0.0 if low else np.pi / 8,
    )


def make_furniture(rng: np.random.Generator, size: Array) -> Solid:
    """Make a solid on the floor, outside the middle of the room, where the camera moves."""
    half = rng.uniform([0.15, 0.2, 0.15], [0.7, 0.9, 0.6]).astype(np.float32)
    angle = rng.uniform(0, 2 * np.pi)
    reach = rng.uniform(0.68, 0.96)
    x = size[0] / 2 * (1 + reach * np.cos(angle))
    z = size[2] / 2 * (1 + reach * np.sin(angle))
    shape = "cylinder" if rng.random() < 0.35 else "box"
    if shape == "cylinder":
        half[0] = half[2] = rng.uniform(0.12, 0.4)
    center = np.array([x, half[1], z], np.float32)
    return Solid(shape, center, half, rng.uniform(0, np.pi), make_texture(rng))


def make_movers(rng: np.random.Generator, size: Array, count: int) -> tuple[Mover, ...]:
    movers = []
    for _ in range(count):
        kind = list(CLASSES)[rng.integers(len(CLASSES))]
        half = np.array(CLASSES[kind], np.float32)
        places = size * rng.uniform([0.15, 0, 0.15], [0.85, 0, 0.85], (2, 3))
        places[:, 1] = half[1]
        heading = places[1] - places[0]
        yaw = float(np.arctan2(heading[2], heading[0]))
        shape = "cylinder" if kind in ("people", "robot") else "box"
        solid = Solid(shape, np.zeros(3, np.float32), half, yaw, make_texture(rng))
        movers.append(Mover(kind, places[0], places[1], rng.uniform(0, 1), solid))
    return tuple(movers)


def place(mover: Mover, seconds: float, speed: float) -> Solid:
    """The object at a moment; its path is a triangle wave between the ends of its line."""
    length = max(float(np.linalg.norm(mover.end - mover.start)), 0.5)
    along = (mover.phase + seconds * speed / length) % 2
    center = mover.start + (mover.end - mover.start) * min(along, 2 - along)
    return replace(mover.solid, center=center.astype(np.float32))


def camera_path(rng: np.random.Generator, scene: Scene, frames: int, stride: int) -> list[Pose]:
    """A smooth walk around the middle of the room, turning slowly."""
    times = np.arange(frames) * stride / FRAME_RATE
    turn = rng.uniform(-0.5, 0.5)  # radians a second
    yaws = rng.uniform(0, 2 * np.pi) + turn * times + 0.1 * np.sin(0.9 * times)
    angle = rng.uniform(0, 2 * np.pi) + rng.uniform(-0.3, 0.3) * times
    poses = []
    for yaw, a in zip(yaws, angle, strict=True):
        x = scene.size[0] * (0.5 + 0.13 * np.cos(a))
        z = scene.size[2] * (0.5 + 0.13 * np.sin(a))
        origin = np.array([x, scene.camera_height, z], np.float32)
        poses.append(Pose(origin, rotation(yaw, scene.pitch)))
    return poses


def rotation(yaw: float, pitch: float) -> Array:
    """Rotation from camera to world: columns are the camera's right, down and forward axes."""
    forward = [np.sin(yaw) * np.cos(pitch), -np.sin(pitch), np.cos(yaw) * np.cos(pitch)]
    right = [np.cos(yaw), 0.0, -np.sin(yaw)]
    down = np.cross(right, forward)
    return np.stack([right, down, forward], 1).astype(np.float32)


def make_texture(rng: np.random.Generator) -> Array:
    """Make a tile that repeats: a colour with cloudy noise, and often stripes or a grid."""
    color = rng.uniform(0.25, 0.9, 3) * rng.uniform(0.6, 1)
    clouds = np.zeros((TILE, TILE), np.float32)
    for cells, amount in ((4, 0.5), (16, 0.3), (64, 0.2)):
        grid = rng.standard_normal((cells, cells)).astype(np.float32)
        wrapped = np.pad(grid, ((1, 2), (1, 2)), mode="wrap")
        step = TILE // cells
        large = cv2.resize(wrapped, None, fx=step, fy=step, interpolation=cv2.INTER_CUBIC)
        clouds += amount * large[step : step + TILE, step : step + TILE]
    y, x = np.mgrid[:TILE, :TILE]
    pattern = rng.integers(3)
    period = int(2 ** rng.integers(4, 7))
    marks = np.zeros((TILE, TILE), np.float32)
    if pattern == 1:
        marks = ((x // period) % 2).astype(np.float32) - 0.5
    elif pattern == 2:
        marks = -1.0 * ((x % period < 3) | (y % period < 3))
    value = 1 + rng.uniform(0.05, 0.2) * clouds + rng.uniform(0.1, 0.3) * marks
    return np.clip(255 * color * value[..., None], 0, 255).astype(np.uint8)
