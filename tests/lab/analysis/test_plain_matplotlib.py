"""What a user has set for their own figures decides about none of ours."""

import os

import pytest

from tests.processes import run_new_python

# Both kinds of drawing: a whole analysis, and the panel of an inference or a training.
DRAW = """
import sys
from pathlib import Path
import numpy as np
from zoerefine.cli import main
from zoerefine.depth.pictures import panel_figure, save_panel
code = main(["analyze", sys.argv[1], "--out", "report"])
if code == 0:
    depth_m = np.full((24, 32), 2.0)
    rgb = np.zeros((24, 32, 3), np.uint8)
    save_panel(panel_figure(rgb, depth_m, depth_m, None, "a", "b"), Path("report/panel.png"))
sys.exit(code)
"""
SETTINGS = """
text.usetex: True
savefig.dpi: 20
figure.dpi: 30
font.size: 40
savefig.bbox: tight
savefig.transparent: True
"""


@pytest.fixture
def draw(tmp_path, runs):
    """Draw in a new folder, with a matplotlibrc there: draw(name, text, **environment)."""
    for seed in range(3):
        runs.add(f"a{seed}", seed=seed)
        runs.add(f"b{seed}", {"LR": 1e-2}, (0.4, 0.6), seed=seed)

    def start(name, text="", exit_code=0, **environment):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "matplotlibrc").write_text(text, encoding="latin-1")
        options = {"cwd": folder, "env": os.environ | environment}
        return run_new_python(DRAW, runs.folder, exit_code=exit_code, **options)

    return start


def test_all_drawings_have_the_same_bytes_whatever_is_set(draw, tmp_path):
    def pictures(name, *words, **environment):
        draw(name, *words, **environment)
        files = [path for path in (tmp_path / name / "report").iterdir() if path.suffix != ".json"]
        return {path.name: path.read_bytes() for path in files}

    plain = pictures("plain")
    assert {"panel.png", "overview.pdf", "settings.png", "report.html"} <= plain.keys()
    assert pictures("other", SETTINGS, MPLBACKEND="nonsense") == plain


def test_a_matplotlibrc_that_cannot_be_read_is_one_line(draw):
    done = draw("other", "font.family: Ä\n", exit_code=2)
    assert "error: matplotlib cannot read its matplotlibrc" in done.stderr
    assert "Traceback" not in done.stderr
