"""How many files a reader passes who follows docs/architecture.md, beside those of `base`.

The walk of a launch is in `tests/lab/launch/test_launcher.py`.
"""

import pytest

from tests.walks import files_passed
from zoerefine.depth.data.layouts import habitatdyn

pytestmark = pytest.mark.depth


def test_a_frame_passes_eleven_files_from_its_jpg_to_the_refined_png(exported_run, world, tmp_path):
    words = ["--rgb", world / habitatdyn.RGB, "--depth", world / habitatdyn.ZOE, "--out", "out"]
    begins = ["depth/infer/pipeline.py"]
    files = files_passed(tmp_path, "infer", exported_run.path, *words, begins=begins)
    passed = sorted(file for file in files if not file.startswith("base/"))
    assert {"depth/infer/sources.py", "depth/exporting/engine.py"} <= set(passed)
    assert len(passed) <= 11, passed


def test_a_search_passes_24_files_from_its_config_to_the_best_trial(tiny, tmp_path):
    """What a trial trains is apart."""
    with open(tiny, "a") as file:
        file.write("STUDY: {TRIALS: 2, EPOCHS: 1}\nSEARCH: {TRAIN: {LR: [0.001, 0.01]}}\n")
    begins = ["commands/search.py", "lab/search/worker.py"]
    apart = ["depth/study/trials.py"]
    files = files_passed(tmp_path, "search", "--config", tiny, begins=begins, apart=apart)
    assert (tmp_path / "runs/tiny/study/best.yaml").exists()
    wings = "commands/", "lab/", "depth/study/"
    passed = sorted(file for file in files if file.startswith(wings))
    assert {"lab/search/study/claims.py", "depth/study/trials.py"} <= set(passed)
    assert len(passed) <= 24, passed
