"""What many tests need: a tiny synthetic world, a tiny configuration, the scripts as processes."""

import subprocess
import sys
from pathlib import Path

import pytest

from zoerefine.data.synthetic import synthesize

CHECKOUT = Path(__file__).resolve().parents[1]

# Frames of 64x48 pixels packed at 32x24: a whole training takes about a second.
TINY = """
RUN: {NAME: tiny}
DATA: {VAL_FRACTION: 0.25, TEST_FRACTION: 0.25}
CACHE: {HEIGHT: 24, WIDTH: 32}
LOADER: {BATCH: 4}
MODEL: {BASE: 4}
TRAIN: {EPOCHS: 2, LOG_EVERY: 1}
"""


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """A synthetic world of 4 scenes, a clip of 4 frames each. Tests must not change it."""
    root = tmp_path_factory.mktemp("world") / "world"
    synthesize(root, scenes=4, clips=1, frames=4, seed=0, height=48, width=64)
    return root


@pytest.fixture
def tiny(tmp_path, world, monkeypatch):
    """A config file for that world; relative paths lie in the test's own folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY.replace("DATA: {", f"DATA: {{ROOT: {world}, "))
    return path


@pytest.fixture
def script(tmp_path):
    """Run a script of platform/ in the test's folder: script("train", ...) -> finished process."""

    def run(name, *words, env=None):
        return subprocess.run(
            [sys.executable, CHECKOUT / "platform" / f"{name}.py", *map(str, words)],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run
