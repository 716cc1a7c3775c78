"""What tests of data need: a world that may be changed, and the commands in this process."""

import shutil
from dataclasses import dataclass

import numpy as np
import pytest

from zoerefine.cli import main
from zoerefine.depth.data.networks.source import DepthNetwork, PseudoSource


@pytest.fixture
def copied_world(world, tmp_path):
    """A copy of the world that a test may damage."""
    shutil.copytree(world, tmp_path / "world")
    return tmp_path / "world"


def constant_network(depth_m=3.0, name="constant", digest="c0"):
    """A depth network that predicts one depth."""
    predict = lambda pictures: np.full(pictures.shape[:3], depth_m, np.float32)  # noqa: E731
    return DepthNetwork(PseudoSource(name, digest), predict)


@dataclass
class Done:
    """A command that ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def data_command(tmp_path, monkeypatch, capsys):
    """Run `zoerefine data` in the test's folder: data_command("inspect", folder) -> Done."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        capsys.readouterr()
        code = main(["data", *map(str, words)])
        return Done(code, *capsys.readouterr())

    return run
