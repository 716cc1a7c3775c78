"""The command in this process, a bundle, and pictures to refine."""

import shutil
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest

from zoerefine.depth.data.layouts import habitatdyn
from zoerefine.depth.exporting.bundle.bundle import load_bundle
from zoerefine.depth.infer import pipeline


@pytest.fixture(scope="session")
def bundle(exported_run):
    """The path of an engine bundle. Tests must not change it."""
    return exported_run.bundle


@pytest.fixture(scope="session")
def engine(bundle):
    """The engine of the bundle."""
    return load_bundle(bundle)


@pytest.fixture
def infer(command, bundle):
    """Run `zoerefine infer` with the bundle, in the test's folder: infer(*words) -> Finished."""
    return partial(command, "infer", bundle)


@pytest.fixture
def alone(command):
    """Run it without a bundle."""
    return partial(command, "infer")


@pytest.fixture
def beside(monkeypatch):
    """Call a function in the next command, between refinement and all that reads the results."""

    def set_up(function):
        def refine_then(job, batch):
            monkeypatch.setattr(pipeline, "refine", refine)  # for commands that `function` runs
            summary = refine(job, batch)
            function()
            return summary

        refine = pipeline.refine
        monkeypatch.setattr(pipeline, "refine", refine_then)

    return set_up


@pytest.fixture
def clips(world, tmp_path):
    """A copy of the world's pictures and pseudo depth: folders rgb/ and zoe/ with four clips.

    In true/ pseudo depth is there again, as if it were true.
    """
    shutil.copytree(world / habitatdyn.RGB, tmp_path / "rgb")
    for name in ("zoe", "true"):
        shutil.copytree(world / habitatdyn.ZOE, tmp_path / name)
    return tmp_path


@pytest.fixture
def make_pair(tmp_path):
    """Write a picture and depth as in `clips`: make_pair("a/0", height, width, seed)."""

    def make(name, height=48, width=64, seed=0):
        rng = np.random.default_rng(seed)
        rgb = cv2.blur(rng.integers(0, 256, (height, width, 3)).astype(np.uint8), (9, 9))
        zoe = rng.integers(100, 2000, (height, width)).astype(np.uint16)
        pictures = {f"rgb/{name}.jpg": rgb, f"zoe/{name}.png": zoe, f"true/{name}.png": zoe}
        for path, picture in pictures.items():
            Path(tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            assert cv2.imwrite(str(tmp_path / path), picture)

    return make


@pytest.fixture
def make_video(tmp_path):
    """Write a video of a moving gradient: make_video("a.mp4", frames) -> its path."""

    def make(name, frames=10, height=48, width=64):
        path = tmp_path / name
        size = (width, height)
        codec = cv2.VideoWriter.fourcc(*("MJPG" if path.suffix == ".mkv" else "mp4v"))
        writer = cv2.VideoWriter(str(path), codec, 12, size)
        assert writer.isOpened()
        columns = np.arange(width, dtype=np.uint16)
        for number in range(frames):
            row = ((columns * 2 + number * 20) % 256).astype(np.uint8)
            writer.write(np.dstack([np.tile(row, (height, 1))] * 3))
        writer.release()
        return path

    return make
