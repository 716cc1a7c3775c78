"""Runs, frames and an empty list of trusted bundles."""

import shutil

import numpy as np
import pytest

from zoerefine.base.run_dir import RunDir
from zoerefine.depth.exporting.build import EngineBuilder
from zoerefine.depth.exporting.bundle import trust
from zoerefine.depth.exporting.engine_choice import candidates
from zoerefine.depth.exporting.engine_kinds import engine_kind


@pytest.fixture
def trust_list(tmp_path, monkeypatch):
    """From now on the user has an empty list of trusted bundles; its path."""
    path = tmp_path / "state" / "trusted.txt"
    monkeypatch.setenv("ZOEREFINE_TRUSTED", str(path))
    monkeypatch.setattr(trust, "_trusted_here", set())
    return path


@pytest.fixture
def run(exported_run, tmp_path):
    """A copy of the exported run, with the engines that are built so far; tests may change it."""
    shutil.copytree(exported_run.path, tmp_path / "run")
    return RunDir(tmp_path / "run")


@pytest.fixture(scope="session")
def builder(exported_run):
    """Builds engines of the exported run, each once for all tests."""
    return EngineBuilder(exported_run)


@pytest.fixture(scope="session")
def bf16_built(builder):
    """Builds torchscript in bf16, once; request it before `run`, which copies it.

    `auto` leaves out what cannot be built and goes on; here such a build shows its error.
    """
    builder.bundle(engine_kind("torchscript"), "bf16")


@pytest.fixture(scope="session")
def optional_built(builder):
    """Builds optional kinds of `auto`, once; request it before `run`, which copies them."""
    for kind in map(engine_kind, ("openvino", "onnx")):
        for precision in () if kind.missing_requirement() else candidates(kind, "auto"):
            builder.bundle(kind, precision)


@pytest.fixture
def frames():
    """Random pictures: frames(batch, height, width) -> rgb, zoe."""

    def make(batch, height, width, seed=0):
        rng = np.random.default_rng(seed)
        rgb = rng.integers(0, 256, (batch, height, width, 3)).astype(np.uint8)
        zoe = rng.integers(100, 2000, (batch, height, width)).astype(np.uint16)
        return rgb, zoe

    return make
