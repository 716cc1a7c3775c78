"""examples/real_frame.py draws frames of any data set, as a picture or as a loop."""

import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.processes import run_program

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "real_frame.py"


@pytest.fixture
def drawn(world, tmp_path):
    """Draw frames of the synthetic world: drawn("0000/*", "--loop", name="a.webp")."""

    def draw(*words, name, code=0):
        command = [sys.executable, EXAMPLE, world, *words, "--out", tmp_path / name]
        return run_program(command, code)

    return draw


def test_a_row_a_frame_and_a_loop_of_all(drawn, tmp_path):
    drawn("0000/00000", "0000/00001", name="a.jpg")
    drawn("0000/*", "--loop", "--source", "nobody", name="a.webp")
    with Image.open(tmp_path / "a.jpg") as rows, Image.open(tmp_path / "a.webp") as loop:
        assert rows.size == (1600, 582)
        assert (loop.n_frames, loop.size) == (4, (1120, 239))


def test_a_frame_that_is_not_there_is_one_line(drawn):
    done = drawn("0000/*", "none/*", name="a.jpg", code=2)
    assert done.stderr.count("\n") == 1
    assert "has no frame none/*" in done.stderr
