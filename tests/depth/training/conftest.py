"""Trainings of the tiny configuration in this process, and one that many tests read."""

import shutil
from pathlib import Path

import pytest

from tests.depth_fixtures import TINY
from tests.processes import run_script
from zoerefine.base.config import load_config
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.training.job import prepare, run_training
from zoerefine.depth.training.trainer import Trainer


@pytest.fixture(scope="session")
def caches(tmp_path_factory):
    """A folder where the tiny world is packed once."""
    return tmp_path_factory.mktemp("caches")


@pytest.fixture
def tiny(tmp_path, world, caches, monkeypatch):
    """The tiny configuration with a cache that tests share; runs go to the test's folder."""
    monkeypatch.chdir(tmp_path)
    return tiny_config(tmp_path, world, caches)


@pytest.fixture
def train(tiny):
    """Train it in this process: train("TRAIN.LR", 1, name="high") -> run."""

    def run(*words, name="tiny"):
        return run_training(load_config(tiny, ["RUN.NAME", name, *map(str, words)]))

    return run


@pytest.fixture
def trainer(tiny):
    """A trainer of it: trainer("TRAIN.EMA", 0.9)."""

    def make(*words):
        cfg = load_config(tiny, list(map(str, words)))
        return Trainer(cfg, *prepare(cfg))

    return make


@pytest.fixture(scope="session")
def finished(tmp_path_factory, world, caches):
    """A finished run of the train script in fp32. Tests must not change it."""
    folder = tmp_path_factory.mktemp("finished")
    config = tiny_config(folder, world, caches)
    done = run_script(folder, "train", "--config", config, "TRAIN.PRECISION", "fp32",
                      "TRAIN.HISTOGRAMS", "true")  # fmt: skip
    return RunDir(folder / done.stdout.splitlines()[-1])


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of it, to be changed."""
    return RunDir(Path(shutil.copytree(finished.path, tmp_path / "copied")))


def tiny_config(folder, world, caches):
    path = folder / "tiny.yaml"
    text = TINY.replace("DATA: {", f"DATA: {{ROOT: {world}, ")
    path.write_text(text.replace("CACHE: {", f"CACHE: {{ROOT: {caches}, "))
    return path


def rows(run, phase):
    """The rows of a phase in metrics.jsonl."""
    return [row for row in run.metrics() if row["phase"] == phase]
