"""The two pictures of `zoerefine check`: a batch as the refiner sees it, and the rate test."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from zoerefine.base.files.atomic import replacing
from zoerefine.depth.data.loading.prefetch import DeviceBatch
from zoerefine.lab.analysis.pictures.style import plain_style

DRAWN = 4  # samples of a batch


@plain_style()
def draw_batch(batch: DeviceBatch, path: Path) -> None:
    """RGB, pseudo depth and true depth of some samples, after augmentation."""
    from matplotlib.figure import Figure

    count = min(DRAWN, len(batch.index))
    figure = Figure(figsize=(3.2 * count, 7.4), layout="constrained")
    axes = figure.subplots(3, count, squeeze=False)
    for k in range(count):
        farthest = float(batch.depth_m[k].max())
        pictures = (
            ("RGB", batch.rgb01[k].permute(1, 2, 0), None),
            ("pseudo depth", batch.zoe_m[k, 0], "viridis"),
            ("true depth", batch.depth_m[k, 0], "viridis"),
        )
        for axis, (name, picture, colors) in zip(axes[:, k], pictures, strict=True):
            values = picture.cpu().numpy()
            if colors:
                values = np.ma.masked_less_equal(values, 0)
            axis.imshow(values, cmap=colors, vmin=0, vmax=farthest if colors else 1)
            axis.set_title(f"{name} of record {int(batch.index[k])}", fontsize=9)
            axis.set_axis_off()
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=100)


@plain_style()
def draw_rates(
    rates: Sequence[float],
    losses: Sequence[float],
    smooth: Sequence[float],
    configured: float,
    path: Path,
) -> None:
    """The loss against the learning rate of the rate test, and the configured rate."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(rates, losses, color="0.8", label="each step")
    axes.plot(rates, smooth, color="#1d4e89", label="smoothed")
    axes.axvline(configured, color="#c2410c", linestyle="--", label="TRAIN.LR")
    axes.set_xscale("log")
    axes.set_xlabel("learning rate")
    axes.set_ylabel("loss")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
