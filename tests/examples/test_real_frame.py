"""examples/real_frame.py draws frames of any data set, as a picture or as a loop."""

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "real_frame.py"


@pytest.fixture
def drawn(world, tmp_path):
    """Draw frames of the synthetic world: drawn("0000/*", "--loop", name="a.webp")."""

    def draw(*words, name):
        command = [sys.executable, EXAMPLE, world, *words, "--out", tmp_path / name]
        return subprocess.run(list(map(str, command)), capture_output=True, text=True)

    return draw


def test_a_row_a_frame_and_a_loop_of_all(drawn, tmp_path):
    assert drawn("0000/00000", "0000/00001", name="a.jpg").returncode == 0
    done = drawn("0000/*", "--loop", "--source", "nobody", name="a.webp")
    assert done.returncode == 0, done.stderr
    with Image.open(tmp_path / "a.jpg") as rows, Image.open(tmp_path / "a.webp") as loop:
        assert rows.size == (1600, 582)
        assert (loop.n_frames, loop.size) == (4, (1120, 239))


def test_a_frame_that_is_not_there_is_one_line(drawn):
    done = drawn("0000/*", "none/*", name="a.jpg")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "has no frame none/*" in done.stderr
