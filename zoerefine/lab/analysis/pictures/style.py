"""What pictures share: matplotlib as it is delivered, colours, ticks in plain numbers, files.

What a user has set for their own figures decides about none of ours: a `matplotlibrc` (also one in
the working folder) may ask for LaTeX, another resolution or another font, and `MPLBACKEND` for a
window.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import replacing

BACKEND = "MPLBACKEND"


@contextmanager
def plain_style(settings: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Draw and save figures inside this context, or decorate a function that does.

    Args:
        settings: what differs from matplotlib's defaults, by the names of its `rcParams`.
    """
    matplotlib = load_matplotlib()
    defaults = {k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith("backend")}
    with matplotlib.rc_context(defaults | dict(settings or {})):
        yield


@cache
def load_matplotlib() -> Any:
    """The module. Raises `UserError` where the user's matplotlibrc is so wrong that it ends it."""
    backend = os.environ.pop(BACKEND, None)  # a wrong one would be an error of the import
    try:
        import matplotlib
    except (ValueError, OSError) as error:
        raise UserError(f"matplotlib cannot read its matplotlibrc ({error}): correct it") from None
    finally:
        if backend is not None:
            os.environ[BACKEND] = backend
    return matplotlib


# Okabe and Ito's palette, distinguishable with any colour vision.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SMALL = 0.833  # of the font, matplotlib's "small"
BACKING = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}  # of a text on lines
QUIET = "0.45"  # the grey of the pseudo depth and of notes
LOG_RATIO = 10  # axes whose values differ by more are logarithmic
# The same runs give the same file (no dates, no random ids), and a `$` in a value is a `$`.
SETTINGS: Any = {
    "svg.hashsalt": "zoerefine",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # TrueType, embedded: editable in the paper
    "text.parse_math": False,
}
NO_DATES: dict[str, dict[str, Any]] = {
    "png": {},
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
}


@dataclass(frozen=True)
class Layout:
    """The size of the graph and of its texts.

    Attributes:
        width_in, height_in: of the picture, in inches.
        columns: panels beside each other, 3 or 1.
        font: points; labels have 0.83 of it.
        name_length: characters of a group's name beside a curve or point.
        caption_columns: characters of a line of the caption in the picture; 0: it has none.
    """

    width_in: float = 11
    height_in: float = 4.8
    columns: int = 3
    font: float = 10
    name_length: int = 18
    caption_columns: int = 185

    @property
    def label_font(self) -> float:
        """Points."""
        return SMALL * self.font


# Of `analyze --style`. The last two are as wide as the text and a column of a two-column paper.
LAYOUTS = {
    "page": Layout(),
    "two-columns": Layout(7.0, 3.0, 3, 7, 14, 0),
    "one-column": Layout(3.4, 7.0, 1, 7.5, 18, 0),
}


@contextmanager
def style(layout: Layout | None = None) -> Iterator[None]:
    """Draw and save figures inside this context."""
    sizes: Any = {}
    if layout:
        marker = 6 * layout.font / Layout().font
        sizes = {"font.size": layout.font, "axes.titlesize": "medium", "lines.markersize": marker}
    with plain_style(SETTINGS | sizes):
        yield


def save(figure: Any, path: Path, dpi: int = 160) -> Path:
    """Write a figure in the format of the path's suffix."""
    kind = path.suffix[1:]
    with replacing(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=dpi, metadata=NO_DATES[kind])
    return path


def is_wide(values: Sequence[float]) -> bool:
    """Whether positive values differ so much that only a logarithmic axis shows them."""
    return min(values) > 0 and max(values) / min(values) > LOG_RATIO


def set_steps(axis: Any, first: float, last: float) -> None:
    """Integer ticks on the x axis for data from `first` to `last`; the last tick is at `last`."""
    from matplotlib.ticker import MaxNLocator

    margin = 0.03 * max(last - first, 1)
    axis.set_xlim(first - margin, last + margin)
    regular = [int(tick) for tick in MaxNLocator(integer=True, nbins=6).tick_values(0, last)]
    free = last - 0.6 * (regular[1] - regular[0])  # a label nearer to the last one would touch it
    axis.set_xticks([*(tick for tick in regular if first <= tick <= free), int(last)])


def leave_empty(axis: Any, reason: str) -> None:
    """An axis without data: the reason instead of ticks."""
    axis.text(0.5, 0.5, reason, transform=axis.transAxes, ha="center")
    axis.set_axis_off()


def set_log(axis: Any, which: str, digits: Sequence[int] = (1, 2, 5), most: int = 8) -> None:
    """Make one axis ("x" or "y") logarithmic, with ticks at these first digits as plain numbers.

    There are about `most` ticks.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    getattr(axis, f"set_{which}scale")("log")
    ticks = axis.xaxis if which == "x" else axis.yaxis
    ticks.set_major_locator(LogLocator(subs=digits, numticks=most))
    ticks.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ticks.set_minor_locator(NullLocator())
