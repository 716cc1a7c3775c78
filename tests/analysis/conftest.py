"""Runs as other programs would leave them: made by hand, quickly, with any contents."""

import json

import pytest
import yaml


class Runs:
    """A folder of run directories."""

    def __init__(self, folder):
        self.folder = folder

    def add(self, name, settings=None, scenes=(0.2, 0.3), seed=0, curve=(0.5, 0.3), **results):
        """A finished run with a score for each test scene."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        tree = {"SEED": seed, "TRAIN": {"LR": 1e-3} | (settings or {})}
        (folder / "config.yaml").write_text(yaml.safe_dump(tree))
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
