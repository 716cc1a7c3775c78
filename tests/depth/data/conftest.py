"""What tests of data need: a world that may be changed, and the commands in this process."""

import shutil
from functools import partial

import numpy as np
import pytest

from zoerefine.depth.data.cache.pack import build_cache
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.networks.pseudo_source import DepthNetwork, PseudoSource


@pytest.fixture
def copied_world(world, tmp_path):
    """A copy of the world that a test may damage."""
    shutil.copytree(world, tmp_path / "world")
    return tmp_path / "world"


def constant_network(depth_m=3.0, name="constant", digest="c0"):
    """A depth network that predicts one depth."""
    predict = lambda pictures: np.full(pictures.shape[:3], depth_m, np.float32)  # noqa: E731
    return DepthNetwork(PseudoSource(name, digest), predict)


@pytest.fixture
def data_command(command):
    """Run `zoerefine data` in the test's folder: data_command("inspect", folder) -> Finished."""
    return partial(command, "data")


@pytest.fixture
def refused(data_command):
    """Run one that must fail with one line: refused("inspect", folder) -> the line."""

    def run(*words):
        [line] = data_command(*words, code=2).err.splitlines()
        return line

    return run


def build(world, root, **options):
    """Pack a world at 24x32 pixels."""
    return build_cache(open_dataset(world), 24, 32, root, workers=2, **options)
