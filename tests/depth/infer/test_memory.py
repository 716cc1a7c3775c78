"""Memory of an inference: bounded by bytes, whatever the size of the frames."""

import re
import sys

import cv2
import numpy as np
import pytest

from tests.processes import run_program
from zoerefine.depth.infer.inference import BYTES_PER_PIXEL, FrameMemory

SIDE, FRAMES = 1536, 24
LIMIT = SIDE * SIDE * BYTES_PER_PIXEL  # room for one frame between reading and writing
# For one frame about 170 bytes a pixel were measured, the engine's own memory included, and more
# than 400 without a limit.
ALLOWED = 280 * SIDE * SIDE

# `zoerefine infer` on a machine with little memory; prints the most that it took for its frames.
LITTLE_MEMORY = f"""
import sys
from pathlib import Path
from zoerefine.cli import main
from zoerefine.depth.infer import pipeline

pipeline.free_memory = lambda: {LIMIT} / pipeline.MEMORY_SHARE
refine = pipeline.refine

def resident_kb(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])

def measured(*words):
    before = resident_kb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    summary = refine(*words)
    print("peak", (resident_kb("VmHWM") - before) * 1024)
    return summary

pipeline.refine = measured
sys.exit(main(["infer", *sys.argv[1:]]))
"""


@pytest.fixture(scope="module")
def large_frames(tmp_path_factory):
    """Folders rgb/ and zoe/ with links to one large picture."""
    folder = tmp_path_factory.mktemp("large")
    rng = np.random.default_rng(0)
    small = rng.integers(100, 2000, (SIDE // 8, SIDE // 8))
    for name, dtype in (("rgb/0.jpg", np.uint8), ("zoe/0.png", np.uint16)):
        picture = cv2.resize(small.astype(dtype), (SIDE, SIDE))
        (folder / name).parent.mkdir()
        assert cv2.imwrite(str(folder / name), picture)
        for number in range(1, FRAMES):
            (folder / name).with_stem(str(number)).symlink_to(folder / name)
    return folder


def test_large_frames_take_a_bounded_memory(large_frames, bundle, tmp_path):
    words = ["--rgb", large_frames / "rgb", "--depth", large_frames / "zoe", "--out", tmp_path]
    done = run_program([sys.executable, "-c", LITTLE_MEMORY, bundle, *words])
    assert f"{FRAMES} frames refined, 0 kept, 0 left out" in done.stdout
    peak = int(re.search(r"^peak (\d+)$", done.stdout, re.MULTILINE)[1])
    assert peak < ALLOWED


def test_a_frame_larger_than_the_limit_is_let_in_alone():
    with FrameMemory(10) as memory:
        memory.take(25)
        assert not memory.has_room(1)
        memory.free(25)
        assert memory.has_room(25)


def test_a_closed_memory_lets_nobody_wait():
    with FrameMemory(10) as memory:
        memory.take(10)
    memory.take(10)
