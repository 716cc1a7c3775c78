"""The side-by-side picture of a frame: no text covers another, whatever the names."""

import shutil

import cv2
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from tests.lab.analysis.drawn_texts import assert_readable
from tests.lab.analysis.reference_pictures import frames
from zoerefine.depth.data.layouts import habitatdyn
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


def test_frames_of_data_that_have_changed_since_are_not_drawn(
    exported_run, world, tmp_path, command
):
    data, run = tmp_path / "data", tmp_path / "runs" / "run"
    shutil.copytree(world, data)
    shutil.copytree(exported_run.path, run)
    config = run / "config.yaml"
    config.write_text(config.read_text().replace(str(world), str(data)))
    words = "diff", run, exported_run.path, "--picture", "a.png"
    done = command(*words)
    for path in (data / habitatdyn.DEPTH).rglob("*.png"):
        cv2.imwrite(str(path), cv2.imread(str(path), cv2.IMREAD_UNCHANGED) // np.uint8(2))
    message = f"the data in {data} have changed since {run} was trained"
    done = command(*words, code=2)
    assert message in done.err
    command("analyze", run, "--out", "report", "--quiet")
    assert message in (tmp_path / "report" / "report.html").read_text()
