"""A run whose refiner changes depth by a lot, so that an engine that errs is seen to err."""

import shutil

import numpy as np
import pytest
import torch

from zoerefine.export.build import EngineBuilder
from zoerefine.run_dir import RunDir
from zoerefine.train.checkpoint import load_refiner, save_best

SIZE = 24, 32  # that the study's refiners were trained at


@pytest.fixture(scope="session")
def wild(study, tmp_path_factory):
    """The study's best run with a head that matters. Tests must not change it."""
    run = RunDir(tmp_path_factory.mktemp("wild") / "best")
    engines = shutil.ignore_patterns("builds")
    shutil.copytree(study.path / "best", run.path, ignore=engines)
    refiner = load_refiner(run)
    torch.manual_seed(0)
    for name, weights in refiner.named_parameters():
        if name == "backbone.head.weight":
            torch.nn.init.normal_(weights, std=0.3)
    save_best(run, refiner.state_dict())
    return run


@pytest.fixture
def best(wild, tmp_path):
    """A copy of it, to export from at will."""
    shutil.copytree(wild.path, tmp_path / "best", ignore=shutil.ignore_patterns("builds"))
    return RunDir(tmp_path / "best")


@pytest.fixture(scope="session")
def builder(wild):
    """What its engines are built from."""
    return EngineBuilder(wild)


@pytest.fixture
def frames():
    """Random pictures: frames(batch, height, width) -> rgb, zoe."""

    def make(batch, height, width, seed=0):
        rng = np.random.default_rng(seed)
        rgb = rng.integers(0, 256, (batch, height, width, 3)).astype(np.uint8)
        zoe = rng.integers(100, 2000, (batch, height, width)).astype(np.uint16)
        return rgb, zoe

    return make
