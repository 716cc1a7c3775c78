"""Places for labels in a drawn figure, so that no label covers another or a point."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LINE_HEIGHT = 1.35  # of a label, in font sizes
CLEARANCE = 4  # pixels kept free around a point
# Where a text is put: its offset from the point in font points, and which of its sides is there.
DIRECTIONS = (
    (1, 0, "left", "center"), (1, 1, "left", "bottom"), (0, 1, "center", "bottom"),
    (1, -1, "left", "top"), (0, -1, "center", "top"), (-1, 0, "right", "center"),
    (-1, 1, "right", "bottom"), (-1, -1, "right", "top"),
)  # fmt: skip
PLACES = tuple((7 * k * x, 7 * k * y, h, v) for k in (1, 2, 4) for x, y, h, v in DIRECTIONS)


@dataclass(frozen=True)
class Label:
    """A text that belongs to a point, in data coordinates."""

    x: float
    y: float
    text: str
    color: str


def place_labels(
    axis: Any, labels: Sequence[Label], points: Sequence[tuple[float, float]], size: float = 8
) -> None:
    """Write each label beside its point, where it covers the least of the points and labels.

    The layout must be final: texts are measured in pixels.
    """
    from matplotlib.transforms import Bbox

    renderer = axis.figure.canvas.get_renderer()
    frame = axis.get_window_extent(renderer)
    pixels = [axis.transData.transform(point) for point in points]
    taken = [
        Bbox.from_extents(x - CLEARANCE, y - CLEARANCE, x + CLEARANCE, y + CLEARANCE)
        for x, y in pixels
    ]
    for label in labels:
        candidates = []
        for x, y, horizontal, vertical in PLACES:
            text = axis.annotate(
                label.text, (label.x, label.y), xytext=(x, y), textcoords="offset points",
                fontsize=size, color=label.color, ha=horizontal, va=vertical,
                annotation_clip=False,
            )  # fmt: skip
            box = text.get_window_extent(renderer)
            covered = sum(overlap(box, other) for other in taken) + area(box) - overlap(box, frame)
            candidates.append((covered, text, box))
            if covered == 0:
                break
        _, chosen, box = min(candidates, key=lambda candidate: candidate[0])
        for _, text, _ in candidates:
            if text is not chosen:
                text.remove()
        taken.append(box)


def spread_labels(axis: Any, texts: Sequence[Any], size: float = 8) -> None:
    """Move texts at the right of an axis up or down until they keep a line's distance.

    The texts' y is in data coordinates; their order is kept, and all stay beside the axis.
    """
    if not texts:
        return
    points = axis.get_window_extent().height * 72 / axis.figure.dpi
    to_share = axis.transData + axis.transAxes.inverted()
    ordered = sorted(texts, key=lambda text: text.get_position()[1])
    shares = [float(to_share.transform((1, text.get_position()[1]))[1]) for text in ordered]
    for text, share in zip(ordered, spread(shares, size * LINE_HEIGHT / points), strict=True):
        text.set_transform(axis.transAxes)
        text.set_position((text.get_position()[0], share))


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Rising places in 0..1, at least `gap` apart, with the least sum of squared moves.

    Less i gaps, the i-th place need only rise: that is isotonic regression, solved by pooling
    adjacent violators.
    """
    pools: list[tuple[float, int]] = []  # mean and count
    for index, place in enumerate(places):
        mean, count = place - index * gap, 1
        while pools and pools[-1][0] > mean:
            other, others = pools.pop()
            mean = (mean * count + other * others) / (count + others)
            count += others
        pools.append((mean, count))
    means = [mean for mean, count in pools for _ in range(count)]
    highest = max(0.0, 1 - (len(places) - 1) * gap)
    return [min(max(mean, 0.0), highest) + index * gap for index, mean in enumerate(means)]


def area(box: Any) -> float:
    """Of a box, in square pixels."""
    return float(box.width * box.height)


def overlap(a: Any, b: Any) -> float:
    """Of two boxes, in square pixels."""
    width = min(a.x1, b.x1) - max(a.x0, b.x0)
    height = min(a.y1, b.y1) - max(a.y0, b.y0)
    return float(max(0, width) * max(0, height))
