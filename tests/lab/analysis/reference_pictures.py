"""The stored picture of each kind of drawing, from made-up numbers, and how new ones are compared.

`python -m tests.lab.analysis.reference_pictures` draws them anew, after a change that is wanted.
Look at them before you commit them.
"""

import tempfile
from pathlib import Path

import cv2
import numpy as np

from tests.lab.analysis.awkward_runs import add_groups
from tests.lab.analysis.conftest import Runs
from zoerefine.depth.infer.pictures import DepthRange
from zoerefine.depth.infer.video import VideoPicture
from zoerefine.depth.pictures import depth_colors, panel_figure, spread_colors, strip
from zoerefine.lab.analysis.groups import choose_measure, make_groups
from zoerefine.lab.analysis.pictures.overview import overview_figure
from zoerefine.lab.analysis.pictures.settings import settings_figure
from zoerefine.lab.analysis.pictures.style import LAYOUTS, style
from zoerefine.lab.analysis.statistics.importance import importances
from zoerefine.lab.runs.collect import collect

FOLDER = Path(__file__).parent / "references"
DPI = 60
BLOCK = 8  # pixels; a glyph that another FreeType draws otherwise changes its block by little
LARGEST_CHANGE = 24  # of a block's mean colour, of 255
CHANGED_BLOCKS = 0.01  # so large a share may change by more


def overview(folder, layout):
    """Three networks, three seeds each."""
    runs = Runs(folder)
    add_groups(runs, [0.08, 0.11, 0.2], parameters=[10**6, 3 * 10**5, 14 * 10**6])
    collection = collect([str(runs.folder)])
    measure = choose_measure(collection.runs)
    with style(LAYOUTS[layout]):
        groups = make_groups(collection.runs, measure)
        return pixels(overview_figure(collection, groups, measure, LAYOUTS[layout]))


def settings(folder):
    """A number over two decades, and three names."""
    runs = Runs(folder)
    for number in range(18):
        tree = {"LR": 10.0 ** -(1 + number % 3), "NAME": f"network {number // 6}"}
        runs.add(f"r{number}", tree, scenes=(0.1 + 0.013 * (number % 7),))
    found = collect([str(runs.folder)]).runs
    measure = choose_measure(found)
    with style():
        return pixels(settings_figure(found, measure, importances(found, measure)))


def frames():
    """RGB, pseudo, refined and true depth of a slope with a box before it, [60, 80]."""
    rows, columns = np.mgrid[0:60, 0:80]
    truth_m = 1 + rows[::-1] / 12
    truth_m[20:45, 30:55] = 1.5
    truth_m[:4] = 0
    rgb = np.stack([rows * 4, columns * 3, np.full_like(rows, 120)], 2).astype(np.uint8)
    return rgb, truth_m * (1.1 + columns / 200), truth_m * 1.02 + 0.05, truth_m


def panel():
    """With truth and with confidence."""
    rgb, pseudo_m, refined_m, truth_m = frames()
    spread = 0.1 + 0.3 * (truth_m == 1.5)
    names = "pseudo depth", "a made-up frame", "refined"
    return pixels(panel_figure(rgb, pseudo_m, refined_m, truth_m, *names, spread))


def video():
    """A frame of the side-by-side video with confidence."""
    rgb, pseudo_m, refined_m, truth_m = frames()
    depths = [depth_colors(depth_m, 6.4, 1.0) for depth_m in (pseudo_m, refined_m)]
    spread = spread_colors(0.1 + 0.3 * (truth_m == 1.5))
    return VideoPicture(rgb, DepthRange(1.0, 6.4), True).draw("0054/00002", [rgb, *depths, spread])


def pixels(figure):
    """A figure as drawn, uint8 [H, W, 3]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def draw_all(folder):
    """Every kind of drawing by name, uint8 [H, W, 3], RGB; runs are made in an empty folder."""
    return {
        "overview-page": overview(folder / "a", "page"),
        "overview-two-columns": overview(folder / "b", "two-columns"),
        "overview-one-column": overview(folder / "c", "one-column"),
        "settings": settings(folder / "d"),
        "panel": panel(),
        "video": video(),
        "strip": strip(*frames()),
    }


def changed_share(ours, theirs):
    """The share of blocks that differ; 1 where the sizes differ by more than a block."""
    if max(abs(a - b) for a, b in zip(ours.shape, theirs.shape, strict=True)) > BLOCK:
        return 1.0
    height, width = np.minimum(ours.shape, theirs.shape)[:2] // BLOCK
    first, second = (
        cv2.resize(one, (width, height), interpolation=cv2.INTER_AREA).astype(int)
        for one in (ours, theirs)
    )
    return float((np.abs(first - second).max(2) > LARGEST_CHANGE).mean())


def read_reference(name):
    """A stored picture, uint8 [H, W, 3], RGB."""
    return cv2.cvtColor(cv2.imread(str(FOLDER / f"{name}.png")), cv2.COLOR_BGR2RGB)


def main():
    """Draw and store all pictures."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, picture in draw_all(Path(folder)).items():
            bgr = cv2.cvtColor(picture, cv2.COLOR_RGB2BGR)
            cv2.imwrite(str(FOLDER / f"{name}.png"), bgr, [cv2.IMWRITE_PNG_COMPRESSION, 9])


if __name__ == "__main__":
    main()
