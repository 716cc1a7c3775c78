"""Depth as points in space: the camera of a picture, and point clouds as PLY files."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.depth.data.intrinsics import Intrinsics

HEADER_BYTES = 8192  # at most
VERTEX = np.dtype([("xyz", "<f4", 3), ("rgb", "u1", 3)])


@dataclass(frozen=True)
class CameraOptions:
    """What determines the camera of a picture: its calibration, or its field of view.

    Attributes:
        intrinsics: of the pictures as they are. None: square pixels, and the principal point in
            the middle.
        fov_deg: horizontal field of view in degrees, used without intrinsics; HabitatDyn's is 90.
    """

    intrinsics: Intrinsics | None
    fov_deg: float

    def __post_init__(self) -> None:
        if not 0 < self.fov_deg < 180:
            raise UserError(f"--fov must be between 0 and 180 degrees, got {self.fov_deg:g}")

    def __str__(self) -> str:
        return str(self.intrinsics or f"field of view {self.fov_deg:g} degrees")

    def camera(self, height: int, width: int) -> Intrinsics:
        """The camera of a picture of this size."""
        if self.intrinsics:
            return self.intrinsics.of_size(height, width)
        focal = width / 2 / math.tan(math.radians(self.fov_deg) / 2)
        return Intrinsics(focal, focal, (width - 1) / 2, (height - 1) / 2)


def back_project(depth_m: np.ndarray, camera: Intrinsics) -> np.ndarray:
    """Points float [H, W, 3], metres, of depth [H, W], metres along the viewing axis.

    x points right, y down, z forward. The point of an invalid pixel (depth 0) is 0.
    """
    rows, columns = np.indices(depth_m.shape)
    x = (columns - camera.cx) / camera.fx * depth_m
    y = (rows - camera.cy) / camera.fy * depth_m
    return np.stack([x, y, depth_m], -1)


def ply(
    depth_m: np.ndarray, rgb: np.ndarray, camera: Intrinsics, comments: Mapping[str, str]
) -> bytes:
    """A binary PLY file of the valid pixels, coloured.

    Args:
        depth_m: float [H, W], metres; 0 marks an invalid pixel.
        rgb: uint8 [H, W, 3].
        comments: for its header, by name.
    """
    valid = depth_m > 0
    vertices = np.empty(valid.sum(), VERTEX)
    vertices["xyz"] = back_project(depth_m, camera)[valid]
    vertices["rgb"] = rgb[valid]
    header = [
        "ply",
        "format binary_little_endian 1.0",
        *(f"comment {name} {value}" for name, value in comments.items()),
        f"element vertex {len(vertices)}",
        *(f"property float {axis}" for axis in "xyz"),
        *(f"property uchar {color}" for color in ("red", "green", "blue")),
        "end_header\n",
    ]
    return "\n".join(header).encode("latin-1") + vertices.tobytes()


def is_whole_ply(path: Path, comments: Mapping[str, str]) -> bool:
    """Whether a file is a whole point cloud of `ply` with these comments."""
    try:
        with open(path, "rb") as file:
            header, end, _ = file.read(HEADER_BYTES).partition(b"end_header\n")
        size = path.stat().st_size
    except OSError:
        return False
    lines = header.decode("latin-1").splitlines()
    counts = [int(line.split()[-1]) for line in lines if re.fullmatch(r"element vertex \d+", line)]
    return (
        all(f"comment {name} {value}" in lines for name, value in comments.items())
        and len(counts) == 1
        and size == len(header) + len(end) + counts[0] * VERTEX.itemsize
    )
