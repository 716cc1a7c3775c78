"""Drawings of depth: a frame's depths on one colour scale, and their errors on another."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import Any

import cv2
import numpy as np

from zoerefine.base.files.atomic import replacing
from zoerefine.base.files.own_files import drawing_options
from zoerefine.lab.analysis.pictures.style import load_matplotlib, plain_style

# Texts and colour bars for pictures that are drawn as pixels: strips, sheets and videos.
#
# A bar is uint8 [height, width, 3], to be stacked above or below pictures.

LABEL_HEIGHT, COLOR_BAR_HEIGHT = 24, 44  # pixels
FONT_SIZE, MARGIN = 13, 6  # pixels
DARK, WHITE = (32, 32, 32), (255, 255, 255)
WIDE_BAR = 400  # pixels from which a colour bar has more ticks


@cache
def font() -> Any:
    """DejaVu Sans, which matplotlib brings: it has the letters of most alphabets."""
    from PIL import ImageFont

    file = Path(load_matplotlib().get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    return ImageFont.truetype(str(file), FONT_SIZE)


def label_bar(texts: Sequence[str], width: int, height: int = LABEL_HEIGHT) -> np.ndarray:
    """A dark bar with one text for each picture below it; each picture is `width` pixels wide."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (width * len(texts), height), DARK)
    draw = ImageDraw.Draw(image)
    for column, text in enumerate(texts):
        place = column * width + MARGIN, height / 2
        draw.text(place, fitted(text, width - 2 * MARGIN), WHITE, font(), anchor="lm")
    return np.asarray(image)


def fitted(text: str, width: int) -> str:
    """A text, or its end after an ellipsis, that is at most `width` pixels wide."""
    text = " ".join(text.split())
    if font().getlength(text) <= width:
        return text
    while text and font().getlength(f"\u2026{text}") > width:
        text = text[1:]
    return f"\u2026{text}"


def color_bar(
    width: int, ends: tuple[float, float], label: str, colored: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """A colour bar with ticks and a label.

    Args:
        width: pixels.
        ends: the values at the left and at the right end.
        label: what the values are, with their unit.
        colored: gives the colours of values, float [1, N] -> uint8 [1, N, 3].
    """
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (width, COLOR_BAR_HEIGHT), DARK)
    draw = ImageDraw.Draw(image)
    label_width = int(font().getlength(label)) + 2 * MARGIN
    left, right = MARGIN + 14, max(MARGIN + 16, width - label_width - 14)
    values = np.maximum(np.linspace(*ends, right - left), 1e-6)  # 0 is an invalid pixel
    row = colored(values[None])
    image.paste(Image.fromarray(np.repeat(row, 14, 0)), (left, 6))
    draw.text((width - MARGIN, 13), label, WHITE, font(), anchor="rm")
    for value in round_ticks(*ends, count=5 if width >= WIDE_BAR else 2):
        share = (value - ends[0]) / (ends[1] - ends[0])
        place = left + share * (right - left - 1)
        draw.line((place, 20, place, 24), WHITE)
        draw.text((place, 33), f"{value:.3g}", WHITE, font(), anchor="mm")
    return np.asarray(image)


def round_ticks(low: float, high: float, count: int) -> list[float]:
    """Both ends, and about `count` round values between them that are not too close to them."""
    from matplotlib.ticker import MaxNLocator

    found = MaxNLocator(count).tick_values(low, high)
    free = 0.6 * (found[1] - found[0])
    return [low, *(float(tick) for tick in found if low + free < tick < high - free), high]


DEPTH_COLORS = "viridis"
ERROR_COLORS = "magma"
SPREAD_COLORS = "cividis"
WIDEST_SPREAD = math.log(2)  # the end of the spread's colours: a factor of 2 either way
INVALID = "0.75"  # grey, for pixels without depth
INVALID_GREY = 190  # the same of 255
TITLE_COLUMNS, NAME_COLUMNS = 130, 32  # characters of a line of a panel's title, a picture's name
LEAST_STRIP_WIDTH = 160  # pixels of each picture of a strip
STRIP_NAMES = "RGB", "pseudo depth", "refined depth", "error of pseudo", "error of refined"
WORST_ERROR = 0.5  # the end of the error scale, as a share of the true depth


@plain_style()
def panel_figure(
    rgb: np.ndarray,
    pseudo_m: np.ndarray,
    refined_m: np.ndarray,
    truth_m: np.ndarray | None,
    pseudo_label: str,
    title: str,
    refined_label: str = "refined",
    spread: np.ndarray | None = None,
) -> Any:
    """RGB and the depths side by side, and below each depth its error, for `save_panel`.

    Args:
        rgb: uint8 [H, W, 3].
        pseudo_m, refined_m, truth_m: float [H, W], metres; 0 marks an invalid pixel. Without
            truth the second row shows the refiner's change instead of errors.
        pseudo_label, refined_label: names of the two depths.
        title: one line above everything.
        spread: float [H, W], half the width of the 90% band in log depth; 0 marks an invalid pixel.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 6.4), layout="constrained")
    axes = figure.subplots(2, 4)
    figure.suptitle(fill(title, TITLE_COLUMNS), fontsize=12)
    depths = {pseudo_label: pseudo_m, refined_label: refined_m}
    if truth_m is not None:
        depths["ground truth"] = truth_m
    valid = [depth_m[depth_m > 0] for depth_m in depths.values()]
    farthest = max((float(np.percentile(values, 99)) for values in valid if len(values)), default=1)
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
    if spread is not None:
        values = masked(spread, spread > 0)
        drawn = show(axes[1, 3], values, "spread of refined", SPREAD_COLORS, 0, WIDEST_SPREAD)
        label = "90% band: depth * exp(+-spread)"
        figure.colorbar(drawn, ax=axes[1, 3], label=label, location="bottom", extend="max")
    for axis in axes.flat:
        axis.set_axis_off()
    return figure


@plain_style()
def save_panel(figure: Any, path: Path) -> None:
    """Write a figure whole or not at all; the suffix chooses the format."""
    with replacing(path) as temporary:
        suffix = path.suffix
        figure.savefig(temporary, dpi=110, format=suffix[1:], **drawing_options(suffix))


def draw_errors(figure: Any, axes: Any, depths: dict[str, np.ndarray], truth_m: np.ndarray) -> None:
    """Draw error maps of the first two depths, and write their metrics."""
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
        f"{fill(name, NAME_COLUMNS)}\n    AbsRel {mean:.3f}   within 25%: {delta1:.1%}"
        for name, mean, delta1 in rows
    )
    axes[0].text(0, 0.5, f"this frame\n\n{text}\n\ngrey: no true depth", va="center", fontsize=10)


def show(
    axis: Any, values: np.ndarray, title: str, colors: str = "gray", low: float = 0, high: float = 1
) -> Any:
    """Draw one picture with a title: RGB as it is, or values in colours from low to high."""
    axis.set_title(fill(title, NAME_COLUMNS), fontsize=10)
    if values.ndim == 3:
        return axis.imshow(values)
    from matplotlib import colormaps

    return axis.imshow(
        values, cmap=colormaps[colors].with_extremes(bad=INVALID), vmin=low, vmax=high
    )


def masked(values: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """`values` with NaN, which is drawn grey, where they are not valid."""
    return np.where(valid, values, np.nan)


def strip(
    rgb: np.ndarray, zoe_m: np.ndarray, refined_m: np.ndarray, truth_m: np.ndarray
) -> np.ndarray:
    """RGB, pseudo, refined and true depth, and both errors in a row with their names above.

    Small pictures are enlarged, so that the names fit.

    Args:
        rgb: uint8 [H, W, 3].
        zoe_m, refined_m, truth_m: float [H, W], metres; 0 marks an invalid pixel.

    Returns:
        uint8 [height, width, 3], RGB.
    """
    farthest = float(max(truth_m.max(), zoe_m.max(), 0.1))
    depths = [depth_colors(depth_m, farthest) for depth_m in (zoe_m, refined_m, truth_m)]
    errors = [error_colors(depth_m, truth_m) for depth_m in (zoe_m, refined_m)]
    factor = math.ceil(LEAST_STRIP_WIDTH / rgb.shape[1])
    row = np.hstack([rgb, *depths, *errors]).repeat(factor, 0).repeat(factor, 1)
    names = *STRIP_NAMES[:3], f"true depth, 0 to {farthest:.1f} m", *STRIP_NAMES[3:]
    return np.vstack([label_bar(names, factor * rgb.shape[1]), row])


def depth_colors(depth_m: np.ndarray, farthest_m: float, nearest_m: float = 0.0) -> np.ndarray:
    """Depth as colours, uint8 [H, W, 3], RGB: viridis from the nearest to the farthest; grey: 0."""
    share = (depth_m - nearest_m) / (farthest_m - nearest_m)
    return _colored(share, depth_m > 0, cv2.COLORMAP_VIRIDIS)


def error_colors(depth_m: np.ndarray, truth_m: np.ndarray) -> np.ndarray:
    """|depth - truth| / truth as colours, uint8 [H, W, 3], RGB; grey where a pixel is invalid."""
    valid = (truth_m > 0) & (depth_m > 0)
    share = np.abs(depth_m - truth_m) / np.where(valid, truth_m, 1)
    return _colored(share / WORST_ERROR, valid, cv2.COLORMAP_MAGMA)


def spread_colors(spread: np.ndarray) -> np.ndarray:
    """Spread in log depth as colours, uint8 [H, W, 3], RGB; grey where a pixel is invalid."""
    return _colored(spread / WIDEST_SPREAD, spread > 0, cv2.COLORMAP_CIVIDIS)


def _colored(share: np.ndarray, valid: np.ndarray, colors: int) -> np.ndarray:
    bgr = cv2.applyColorMap(np.clip(share * 255, 0, 255).astype(np.uint8), colors)
    rgb = cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)
    return np.where(valid[..., None], rgb, INVALID_GREY).astype(np.uint8)
