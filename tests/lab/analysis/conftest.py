"""Run directories as other programs would leave them, and one analysed study for many tests."""

import json
import shutil

import pytest
import yaml

from tests.processes import run_script
from zoerefine.base.run_dir import RunDir


class Runs:
    """A folder of run directories."""

    def __init__(self, folder):
        self.folder = folder

    def add(self, name, settings=None, scenes=(0.2, 0.3), seed=0, curve=(0.5, 0.3), **results):
        """A finished run with a score for each test scene."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        tree = {"SEED": seed, "TRAIN": {"LR": 1e-3} | (settings or {}), "SEARCH": {}}
        (folder / "config.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
        (folder / "status.json").write_text('{"state": "finished"}')
        (folder / "provenance.json").write_text('{"commit": "' + "ab" * 20 + '"}')

        def metrics(value):
            return {"pseudo": {"abs_rel": 0.6}, "refined": {"abs_rel": value}}

        mean = sum(scenes) / len(scenes)
        named = {f"scene{i:02d}": metrics(value) for i, value in enumerate(scenes)}
        document = {"schema": 1, "data": "made by hand", "data_digest": "d1", "parameters": 1000,
                    "test": metrics(mean), "test_scenes": named} | results  # fmt: skip
        (folder / "results.json").write_text(json.dumps(document))
        with open(folder / "metrics.jsonl", "w") as file:
            for epoch, value in enumerate(curve):
                file.write(json.dumps({"phase": "train", "step": epoch, "loss": 1.0}) + "\n")
                row = {"phase": "val", "step": epoch, "epoch": epoch, **metrics(value)}
                file.write(json.dumps(row) + "\n")
        return folder


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path / "runs")


@pytest.fixture(scope="session")
def copied_study(study, tmp_path_factory):
    """A study that was moved to another folder. Tests must not change it."""
    folder = tmp_path_factory.mktemp("copied") / "study"
    shutil.copytree(study.path, folder)
    return RunDir(folder)


@pytest.fixture(scope="session")
def report(copied_study, tmp_path_factory):
    """The folder of a report on that study. Tests must not change it."""
    folder = tmp_path_factory.mktemp("report")
    run_script(folder, "analyze", copied_study.path, "--out", "report")
    return folder / "report"
