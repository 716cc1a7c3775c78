"""Pictures for people: a frame with its depths on one scale, and their errors on another."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np

from zoerefine.files import replacing

DEPTH_COLORS = "viridis"
ERROR_COLORS = "magma"
NOTHING = "0.75"  # grey: no measurement
WORST_ERROR = 0.5  # the error scale's end, as a share of the true depth


def panel(
    path: str | Path,
    rgb: np.ndarray,
    pseudo_m: np.ndarray,
    refined_m: np.ndarray,
    truth_m: np.ndarray | None,
    pseudo_label: str,
    title: str,
    refined_label: str = "refined",
) -> None:
    """Draw RGB, the depths side by side, and below them how far each is from the truth.

    Args:
        rgb: uint8 [H, W, 3].
        pseudo_m, refined_m, truth_m: float [H, W], metres, 0 = no measurement. Without truth
            the second row shows what the refiner changed.
        pseudo_label, refined_label: what the two depths are called.
        title: one line above everything.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 6.4), layout="constrained")
    axes = figure.subplots(2, 4)
    figure.suptitle(title, fontsize=12)
    depths = {pseudo_label: pseudo_m, refined_label: refined_m}
    if truth_m is not None:
        depths["ground truth"] = truth_m
    farthest = max(float(np.percentile(d[d > 0], 99)) for d in depths.values() if (d > 0).any())
    show(axes[0, 0], rgb, "RGB")
    drawn: Any = None
    for axis, (name, depth) in zip(axes[0, 1:], depths.items(), strict=False):
        drawn = show(axis, masked(depth, depth > 0), name, DEPTH_COLORS, 0, farthest)
    figure.colorbar(drawn, ax=axes[0, :], label="depth in metres", shrink=0.9)
    if truth_m is None:
        change = np.divide(refined_m, pseudo_m, out=np.ones_like(refined_m), where=pseudo_m > 0)
        drawn = show(axes[1, 1], change - 1, "refined against pseudo", "RdBu", -0.5, 0.5)
        figure.colorbar(drawn, ax=axes[1, :], label="change of depth, share", shrink=0.9)
    else:
        draw_errors(figure, axes[1], depths, truth_m)
    for axis in axes.flat:
        axis.set_axis_off()
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110, format=Path(path).suffix[1:])


def draw_errors(figure: Any, axes: Any, depths: dict[str, np.ndarray], truth_m: np.ndarray) -> None:
    """Error maps of the first two depths, and what they add up to."""
    drawn: Any = None
    rows = []
    for axis, (name, depth) in zip(axes[1:3], list(depths.items())[:2], strict=True):
        valid = (truth_m > 0) & (depth > 0)
        error = np.abs(depth - truth_m) / np.where(valid, truth_m, 1)
        mean = float(error[valid].mean()) if valid.any() else float("nan")
        ratio = np.maximum(depth / np.where(valid, truth_m, 1), truth_m / np.where(valid, depth, 1))
        delta1 = float((ratio[valid] < 1.25).mean()) if valid.any() else float("nan")
        rows.append((name, mean, delta1))
        drawn = show(axis, masked(error, valid), f"error of {name}", ERROR_COLORS, 0, WORST_ERROR)
    figure.colorbar(drawn, ax=axes, label="|depth - truth| / truth", shrink=0.9, extend="max")
    text = "\n".join(
        f"{name}\n    AbsRel {mean:.3f}   within 25%: {delta1:.1%}" for name, mean, delta1 in rows
    )
    axes[0].text(0, 0.5, f"this frame\n\n{text}\n\ngrey: no measurement", va="center", fontsize=10)


def show(
    axis: Any, values: np.ndarray, title: str, colors: str = "gray", low: float = 0, high: float = 1
) -> Any:
    """One picture under its title."""
    axis.set_title(title, fontsize=10)
    if values.ndim == 3:
        return axis.imshow(values)
    from matplotlib import colormaps

    return axis.imshow(
        values, cmap=colormaps[colors].with_extremes(bad=NOTHING), vmin=low, vmax=high
    )


def masked(values: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """`values` with NaN where they mean nothing, which is drawn grey."""
    return np.where(valid, values, np.nan)


def strip(
    rgb: np.ndarray, zoe_m: np.ndarray, refined_m: np.ndarray, truth_m: np.ndarray
) -> np.ndarray:
    """RGB, pseudo depth, refined, truth, and both errors in a row: uint8 [H, 6 W, 3], RGB.

    rgb is uint8 [H, W, 3], the depths float [H, W] in metres, 0 where nothing was measured.
    """
    farthest = float(max(truth_m.max(), zoe_m.max(), 0.1))
    depths = [depth_colors(depth_m, farthest) for depth_m in (zoe_m, refined_m, truth_m)]
    errors = [error_colors(depth_m, truth_m) for depth_m in (zoe_m, refined_m)]
    return np.hstack([rgb, *depths, *errors])


def depth_colors(depth_m: np.ndarray, farthest_m: float) -> np.ndarray:
    """Depth as colours, uint8 [H, W, 3], RGB: viridis from 0 to `farthest_m`."""
    return _colored(depth_m / farthest_m, cv2.COLORMAP_VIRIDIS)


def error_colors(depth_m: np.ndarray, truth_m: np.ndarray) -> np.ndarray:
    """|depth - truth| / truth as colours, uint8 [H, W, 3], RGB; grey where a pixel is invalid."""
    valid = (truth_m > 0) & (depth_m > 0)
    share = np.abs(depth_m - truth_m) / np.where(valid, truth_m, 1)
    colors = _colored(share / WORST_ERROR, cv2.COLORMAP_MAGMA)
    return np.where(valid[..., None], colors, 190).astype(np.uint8)


def _colored(share: np.ndarray, colors: int) -> np.ndarray:
    bgr = cv2.applyColorMap(np.clip(share * 255, 0, 255).astype(np.uint8), colors)
    return cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)
