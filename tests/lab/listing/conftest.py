"""Run directories as other programs leave them, and `zoerefine runs` over them."""

import json

import pytest
import yaml

from zoerefine.cli import main
from zoerefine.lab.listing import index


class RunsFolder:
    """A folder `runs` of run directories, and the command in the folder around it."""

    def __init__(self, root, capsys):
        self.root, self.capsys = root, capsys
        self.folder = root / "runs"

    def add(self, name, value=None, state="finished", started=1.7e9, lr=1e-3, **recorded):
        """A run of our own training; `value` is its validation AbsRel."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        tree = {"SEED": 0, "TRAIN": {"LR": lr}, "SEARCH": {}}
        (folder / "config.yaml").write_text(yaml.safe_dump(tree))
        recorded = {"module": "zoerefine.train", "commit": "ab" * 20, "seed": 0} | recorded
        (folder / "provenance.json").write_text(json.dumps(recorded))
        status = {"state": state, "started": started, "ended": started + 60}
        (folder / "status.json").write_text(json.dumps(status))
        if value is not None:
            metrics = {"refined": {"abs_rel": value}, "pseudo": {"abs_rel": 0.6}}
            (folder / "results.json").write_text(json.dumps({"schema": 1, "val": metrics}))
        return folder

    def run(self, *words, code=0):
        """Run the command here; returns what it prints and what it says."""
        self.capsys.readouterr()
        found = main(["runs", *map(str, words)])
        output = self.capsys.readouterr()
        assert found == code, output.err
        return output

    def listed(self, *words):
        """The runs in the list, by their last two parts."""
        lines = self.run(*words).out.splitlines()[1:]
        return [line[49:].split()[0] for line in lines]

    def ids(self):
        """The ids of the runs that are on the disk."""
        return sorted(path.parent.name for path in self.folder.glob("*/*/status.json"))


@pytest.fixture
def runs(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return RunsFolder(tmp_path, capsys)


@pytest.fixture
def settled(monkeypatch):
    """Runs that were just written are stored, as if some seconds had passed."""
    monkeypatch.setattr(index, "FRESH_S", -60.0)


@pytest.fixture
def three(runs):
    """Three runs of two names."""
    runs.add("unet/a", 0.3, started=1.7e9, lr=1e-3, commit="aa" * 20)
    runs.add("unet/b", 0.1, started=1.8e9, lr=1e-4, commit="bb" * 20)
    runs.add("other/c", None, "failed", started=1.75e9, lr=1e-2, commit="ab" * 20)
    return runs
