"""Simulated metric points of frames whose true depth is known, as sensors would give them."""

import csv
import io
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from zoerefine.base.depth_limits import NEAREST_M
from zoerefine.base.errors import UserError
from zoerefine.base.files.images import read_rgb, write_bytes
from zoerefine.base.registries import POINT_KINDS
from zoerefine.depth.data.area_mean import valid_area_mean
from zoerefine.depth.data.cache.decode import on_grid_of, read_truth_m
from zoerefine.depth.data.dataset import Dataset, Frame
from zoerefine.depth.data.loading.augment import normal, uniform_numbers
from zoerefine.depth.data.metric_points import NEEDED, OPTIONAL, MetricPoints, picture_names

ZONES = 8  # rows and columns of a time-of-flight sensor's zones
TRIES = 4  # random pixels for each point, of which those with a true depth are used
CORNER_QUALITY, CORNER_DISTANCE = 0.01, 4  # of the best corner; pixels between two
OUTLIER_M = 0.3, 8.0  # an outlier's depth is uniform in this range

# From true depth [B, 1, H, W], RGB [B, 3, H, W], a count and random numbers to x, y and metres,
# each [B, N]; a point with 0 metres is absent.
Kind = Callable[[Tensor, Tensor, int, Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class PointSimulation:
    """Which points are simulated.

    Attributes:
        kind: a name of `registries.POINT_KINDS`.
        count: points of a picture, at most; zones have 64.
        noise: standard deviation of a point's depth, as a share of it.
        outliers: probability that a point's depth is arbitrary.
        seed: decides, with a frame's number, all that is random.
    """

    kind: str = "random"
    count: int = 50
    noise: float = 0.03
    outliers: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        POINT_KINDS.check(self.kind, "kind")
        if not 0 <= self.noise <= 1 or not 0 <= self.outliers <= 1:
            raise UserError("noise and outliers of points are shares, 0 to 1")

    def __call__(self, depth_m: Tensor, rgb01: Tensor, index: np.ndarray) -> Tensor:
        """The points of frames, float32 [B, N, 4], as `zoerefine.depth.points.spread` takes them.

        Args:
            depth_m: true depth [B, 1, H, W], metres; 0 marks an invalid pixel.
            rgb01: [B, 3, H, W] in 0..1.
            index: numbers of the frames, [B]: the same ones have the same points.
        """
        count, device = self.count, depth_m.device
        shares = torch.tensor([[self.noise], [self.outliers]]).repeat(1, len(index))
        draws = torch.from_numpy(uniform_numbers(index, self.seed, 0, draws_of(count))).to(device)
        return measured(self.kind, depth_m, rgb01, count, draws, *shares.to(device))


def draws_of(count: int) -> int:
    """Random numbers of a frame with so many points."""
    return 2 * TRIES * count + 3 * max(count, ZONES**2)


def measured(
    kind: str,
    depth_m: Tensor,
    rgb01: Tensor,
    count: int,
    draws: Tensor,
    noise: Tensor,
    outliers: Tensor,
) -> Tensor:
    """Points of one kind with noise and outliers, float32 [B, N, 4].

    Args:
        draws: uniform in [0, 1), [B, draws_of(count)].
        noise, outliers: of each frame, [B].
    """
    valid_m = torch.where(depth_m > NEAREST_M, depth_m, 0.0)
    places, errors = draws.split([2 * TRIES * count, draws.shape[1] - 2 * TRIES * count], 1)
    x, y, true_m = POINT_KINDS.load(kind)(valid_m, rgb01, count, places)
    errors = errors.unflatten(1, (3, -1))[:, :, : x.shape[1]]
    factor = (1 + noise[:, None] * normal(2 * errors[:, 0] - 1)).clamp(min=0.1)
    low, high = OUTLIER_M
    wrong_m = low + (high - low) * errors[:, 2]
    metres = torch.where(errors[:, 1] < outliers[:, None], wrong_m, true_m * factor)
    metres = torch.where(true_m > 0, metres, 0.0)
    return torch.stack([x, y, metres, noise[:, None] * metres], -1).float()


def at_pixels(valid_m: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The points at these pixels, int64 [B, N]."""
    there = valid_m.flatten(1).gather(1, rows * valid_m.shape[3] + columns)
    return columns.float(), rows.float(), there


def random(
    valid_m: Tensor, rgb01: Tensor, count: int, draws: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Pixels with a true depth, each as likely as any other."""
    height, width = valid_m.shape[2:]
    rows, columns = ((part * side).long() for part, side in zip(
        draws.unflatten(1, (2, -1)).unbind(1), (height, width), strict=True
    ))  # fmt: skip
    found = at_pixels(valid_m, rows, columns)
    first = torch.argsort((found[2] > 0).byte(), dim=1, descending=True, stable=True)[:, :count]
    x, y, metres = (one.gather(1, first) for one in found)
    return x, y, metres


def corners(
    valid_m: Tensor, rgb01: Tensor, count: int, draws: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Corners of the picture, as SLAM and visual odometry track them.

    Source: the smaller eigenvalue of the structure tensor (Shi and Tomasi, "Good features to
    track", 1994); a corner is the largest within CORNER_DISTANCE pixels.
    """
    grey = F.pad(rgb01.mean(1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    dx, dy = grey[..., 1:-1, 2:] - grey[..., 1:-1, :-2], grey[..., 2:, 1:-1] - grey[..., :-2, 1:-1]
    xx, yy, xy = (F.avg_pool2d(one, 3, 1, 1) for one in (dx * dx, dy * dy, dx * dy))
    smaller = (xx + yy - ((xx - yy).square() + 4 * xy.square()).sqrt()) / 2
    best = F.max_pool2d(smaller, 2 * CORNER_DISTANCE + 1, 1, CORNER_DISTANCE)
    enough = smaller > CORNER_QUALITY * smaller.amax((2, 3), keepdim=True)
    strength = torch.where((smaller == best) & enough & (valid_m > 0), smaller, 0.0).flatten(1)
    pixels = strength.topk(min(count, strength.shape[1])).indices
    x, y, metres = at_pixels(valid_m, pixels // valid_m.shape[3], pixels % valid_m.shape[3])
    return x, y, torch.where(strength.gather(1, pixels) > 0, metres, 0.0)


def zones(
    valid_m: Tensor, rgb01: Tensor, count: int, draws: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Means over 8x8 zones, as a time-of-flight sensor measures them, at the zones' centres."""
    height, width = valid_m.shape[2:]
    mean_m = valid_area_mean(valid_m, [ZONES, ZONES]).flatten(1)
    zone = torch.arange(ZONES**2, device=valid_m.device).expand_as(mean_m)
    x, y = (zone % ZONES + 0.5) * width / ZONES - 0.5, (zone // ZONES + 0.5) * height / ZONES - 0.5
    return x, y, mean_m


def beam(
    valid_m: Tensor, rgb01: Tensor, count: int, draws: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The middle row, as a LiDAR of one beam measures it, at equal distances."""
    height, width = valid_m.shape[2:]
    columns = torch.linspace(0, width - 1, count, device=valid_m.device).round().long()
    columns = columns.expand(len(valid_m), -1)
    return at_pixels(valid_m, torch.full_like(columns, height // 2), columns)


def write_points(dataset: Dataset, simulation: PointSimulation, folder: Path) -> Iterator[Path]:
    """Write a CSV file of points for every frame with true depth; yields their paths.

    A file has its picture's path below the folder that all pictures have in common. Raises
    `UserError` where there is a file with other points: they may have been measured.
    """
    for frame, name in picture_names(dataset):
        if frame.depth is None:
            continue
        path = folder / f"{name}.csv"
        truth_m, rgb = truth_and_picture(dataset, frame)
        table = csv_text(simulated(simulation, truth_m, rgb, f"{frame.clip}/{frame.name}")).encode()
        if path.exists() and path.read_bytes() != table:
            raise UserError(f"{path} has other points: give another --out")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, table)
        yield path


def truth_and_picture(dataset: Dataset, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
    """True depth, metres [H, W], and the picture, uint8 [H, W, 3]."""
    assert frame.depth is not None
    truth_m, rgb = read_truth_m(frame.depth, dataset.depth_encoding), read_rgb(frame.rgb)
    return on_grid_of(rgb, truth_m, frame.depth, frame.rgb), rgb


def simulated(
    simulation: PointSimulation, truth_m: np.ndarray, rgb: np.ndarray, name: str
) -> MetricPoints:
    """The points of one frame, which its name and the simulation's seed decide.

    Args:
        truth_m: [H, W], metres; 0 marks an invalid pixel.
        rgb: uint8 [H, W, 3].
    """
    depth = torch.from_numpy(truth_m.astype(np.float32))[None, None]
    rgb01 = torch.from_numpy(rgb).permute(2, 0, 1)[None] / 255
    number = np.array([zlib.crc32(name.encode())], np.int64)
    found = simulation(depth, rgb01, number)[0].double().numpy()
    return MetricPoints(*found[found[:, 2] > 0].T)


def csv_text(points: MetricPoints) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*NEEDED, OPTIONAL])
    for row in zip(points.x, points.y, points.depth_m, points.sigma_m, strict=True):
        writer.writerow(f"{value:.6g}" for value in row)
    return text.getvalue()
