"""Ray casting of a synthetic scene: exact depth, object ids and a shaded picture, vectorised.

A pixel's ray is origin + t * rotation @ ((u - cx) / f, (v - cy) / f, 1), so t is the depth along
the camera's axis, not the length of the ray. A solid is intersected only with the rays of the
rectangle that can show it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zoerefine.depth.data.synthetic.world import TILE, TILE_M, Pose, Scene, Solid

Array = np.ndarray
Box = tuple[slice, slice]

NEAR_M = 0.05
AMBIENT = 0.35


@dataclass
class View:
    """A rendered picture: depth_m float32 [H, W], ids uint8 [H, W], rgb float32 [H, W, 3]."""

    depth_m: Array
    ids: Array
    rgb: Array


class SyntheticCamera:
    """A pinhole camera with a 90 degree horizontal field of view."""

    def __init__(self, height: int, width: int) -> None:
        self.height, self.width = height, width
        self.focal = width / 2
        u = (np.arange(width, dtype=np.float32) + 0.5 - width / 2) / self.focal
        v = (np.arange(height, dtype=np.float32) + 0.5 - height / 2) / self.focal
        self.u, self.v = np.broadcast_arrays(u[None, :], v[:, None])  # [H, W]

    def rays(self, pose: Pose) -> Array:
        """Ray directions in the world, float32 [3, H, W], of length 1 along the camera's axis."""
        r = pose.rotation
        rays = np.stack([r[i, 0] * self.u + r[i, 1] * self.v + r[i, 2] for i in range(3)])
        rays[rays == 0] = 1e-9  # avoids a division by zero for a ray parallel to a plane
        return rays

    def rectangle(self, solid: Solid, pose: Pose) -> Box | None:
        """The part of the picture that can show a solid; None for a solid behind the camera."""
        corners = np.array([[i, j, k] for i in (-1, 1) for j in (-1, 1) for k in (-1, 1)])
        turned = turn((corners * solid.half).T, -solid.yaw) + (solid.center - pose.origin)[:, None]
        x, y, z = pose.rotation.T @ turned
        if z.max() < NEAR_M:
            return None
        if z.min() < NEAR_M:
            return slice(0, self.height), slice(0, self.width)
        columns = x / z * self.focal + self.width / 2
        rows = y / z * self.focal + self.height / 2
        left, right = np.clip([columns.min() - 1, columns.max() + 2], 0, self.width).astype(int)
        top, bottom = np.clip([rows.min() - 1, rows.max() + 2], 0, self.height).astype(int)
        return (slice(top, bottom), slice(left, right)) if left < right and top < bottom else None


def render(camera: SyntheticCamera, scene: Scene, pose: Pose, movers: Sequence[Solid]) -> View:
    """Render the room, its furniture, and the moving objects (ids 1, 2, ...)."""
    rays = camera.rays(pose)
    view = render_room(scene, pose, rays)
    for number, solid in enumerate([*scene.furniture, *movers], 1 - len(scene.furniture)):
        box = camera.rectangle(solid, pose)
        if box is not None:
            draw(view, solid, max(number, 0), pose, rays[:, *box], box, scene.light)
    return view


def render_room(scene: Scene, pose: Pose, rays: Array) -> View:
    """Render the empty room: each ray ends at the nearest of its six planes."""
    exits = [
        (np.where(rays[i] > 0, scene.size[i], np.float32(0)) - pose.origin[i]) / rays[i]
        for i in range(3)
    ]
    depth_m = np.minimum(np.minimum(exits[0], exits[1]), exits[2])
    view = View(depth_m, np.zeros(depth_m.shape, np.uint8), np.empty((*depth_m.shape, 3), "f4"))
    for face in range(6):
        along, positive = divmod(face, 2)
        mask = (exits[along] == depth_m) & ((rays[along] > 0) == bool(positive))
        hit = pose.origin[:, None] + depth_m[mask] * rays[:, mask]
        normal = np.zeros((3, 1), np.float32)
        normal[along] = -1 if positive else 1
        first, second = [i for i in range(3) if i != along]
        color = sample(scene.textures[face], hit[first], hit[second])
        view.rgb[mask] = color * shade(hit, normal, scene.light)[:, None]
    return view


def draw(
    view: View, solid: Solid, number: int, pose: Pose, rays: Array, box: Box, light: Array
) -> None:
    """Draw a solid where it is nearer than what the picture shows."""
    origin = turn(pose.origin - solid.center, solid.yaw)
    local = turn(rays, solid.yaw)
    is_box = solid.shape == "box"
    t = (hit_box if is_box else hit_cylinder)(origin, local, solid.half)
    nearer = t < view.depth_m[box]
    if not nearer.any():
        return
    t = t[nearer]
    place = origin[:, None] + t * local[:, nearer]  # [3, n], in the solid's coordinates
    normal = (box_normal if is_box else cylinder_normal)(place, solid.half)
    flat = np.abs(normal[1]) > 0.5
    side = np.abs(normal[0]) > np.abs(normal[2])
    across = np.where(side & ~flat, place[2], place[0])
    color = sample(solid.texture, across, np.where(flat, place[2], place[1]))
    lit = shade(pose.origin[:, None] + t * rays[:, nearer], turn(normal, -solid.yaw), light)
    view.depth_m[box][nearer] = t
    view.ids[box][nearer] = number
    view.rgb[box][nearer] = color * lit[:, None]


def hit_box(origin: Array, rays: Array, half: Array) -> Array:
    """t [h, w] at which rays [3, h, w] enter a box at the origin; infinite for a miss."""
    with np.errstate(divide="ignore"):
        spans = [
            ((-half[i] - origin[i]) / rays[i], (half[i] - origin[i]) / rays[i]) for i in range(3)
        ]
    enter = np.maximum.reduce([np.minimum(*span) for span in spans])
    leave = np.minimum.reduce([np.maximum(*span) for span in spans])
    return np.where((enter < leave) & (enter > NEAR_M), enter, np.float32(np.inf))


def box_normal(place: Array, half: Array) -> Array:
    """Outward normals [3, n] at points on a box."""
    share = place / half[:, None]
    axis = np.abs(share).argmax(0)
    return (axis == np.arange(3)[:, None]) * np.sign(share)


def hit_cylinder(origin: Array, rays: Array, half: Array) -> Array:
    """Like `hit_box`, for an upright cylinder of radius half[0] and height 2 half[1]."""
    a = rays[0] ** 2 + rays[2] ** 2
    b = origin[0] * rays[0] + origin[2] * rays[2]
    c = origin[0] ** 2 + origin[2] ** 2 - half[0] ** 2
    with np.errstate(invalid="ignore"):
        side = (-b - np.sqrt(b * b - a * c)) / a  # NaN where the ray misses
    height = origin[1] + side * rays[1]
    side = np.where((side > NEAR_M) & (np.abs(height) <= half[1]), side, np.float32(np.inf))
    top = (half[1] - origin[1]) / rays[1]
    radius = (origin[0] + top * rays[0]) ** 2 + (origin[2] + top * rays[2]) ** 2
    top = np.where((top > NEAR_M) & (radius <= half[0] ** 2), top, np.float32(np.inf))
    return np.minimum(top, side)


def cylinder_normal(place: Array, half: Array) -> Array:
    """Outward normals [3, n] at points on an upright cylinder."""
    capped = place[1] > half[1] - 1e-4
    zero = np.zeros_like(place[0])
    around = np.stack([place[0] / half[0], zero, place[2] / half[0]])
    return np.where(capped, np.array([[0], [1], [0]], np.float32), around)


def turn(points: Array, yaw: float) -> Array:
    """Rotate [3, ...] around the upright axis by -yaw."""
    x, y, z = points
    c, s = np.float32(np.cos(yaw)), np.float32(np.sin(yaw))
    return np.stack([c * x + s * z, y, c * z - s * x])


def sample(texture: Array, across: Array, along: Array) -> Array:
    """Texture colours, float32 [n, 3] in 0..255, at coordinates [n] and [n] in metres."""
    scale = TILE / TILE_M
    rows = (along * scale).astype(np.int32) & (TILE - 1)
    columns = (across * scale).astype(np.int32) & (TILE - 1)
    return texture[rows, columns].astype(np.float32)


def shade(points: Array, normal: Array, light: Array) -> Array:
    """Brightness [n]: Lambert's cosine law, ambient light, and a slow loss with distance."""
    to_light = light[:, None] - points
    distance = np.sqrt((to_light**2).sum(0)) + 1e-6
    cosine = np.maximum((to_light * normal).sum(0) / distance, 0)
    return AMBIENT + (1 - AMBIENT) * cosine * (4 / (2 + distance))
