"""The side-by-side picture of a frame: no text covers another, whatever the names."""

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from tests.lab.analysis.drawn_texts import assert_readable
from tests.lab.analysis.reference_pictures import frames
from zoerefine.depth.pictures import panel_figure

LONG = "lr 0.0001, terms [l1_log 1, gradient 0.5"  # as long as a label of diff
NAMES = {
    "usual": ("pseudo depth", "scene00/0000/00012", "refined"),
    "long": (LONG, "a/very/long/folder" * 8 + "/00012   |   commit 01234567", f"{LONG[:-1]}6"),
}


@pytest.mark.parametrize("with_truth", [True, False])
@pytest.mark.parametrize("with_spread", [True, False])
@pytest.mark.parametrize("names", NAMES)
def test_no_text_covers_another_or_leaves_the_picture(names, with_spread, with_truth):
    rgb, pseudo_m, refined_m, truth_m = frames()
    spread = 0.1 + 0.3 * (truth_m == 1.5)
    figure = panel_figure(
        rgb, pseudo_m, refined_m, truth_m if with_truth else None, *NAMES[names],
        spread if with_spread else None,
    )  # fmt: skip
    FigureCanvasAgg(figure)
    assert_readable(figure, narrowest=0.05)
