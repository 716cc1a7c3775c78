"""Texts and colour bars for pictures that are drawn as pixels: strips, sheets and videos.

A bar is uint8 [height, width, 3], to be stacked above or below pictures.
"""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

LABEL_HEIGHT, COLOR_BAR_HEIGHT = 24, 44  # pixels
FONT_SIZE, MARGIN = 13, 6  # pixels
DARK, WHITE = (32, 32, 32), (255, 255, 255)
WIDE_BAR = 400  # pixels from which a colour bar has more ticks


@cache
def font() -> Any:
    """DejaVu Sans, which matplotlib brings: it has the letters of most alphabets."""
    import matplotlib
    from PIL import ImageFont

    file = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
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
