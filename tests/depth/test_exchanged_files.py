"""What is checked is what is used: a file that is exchanged at its second opening changes nothing.

docs/reliability.md has the table of all files, and names the tests of those that are read twice.
"""

import json
import os
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.processes import git
from zoerefine.base.config import load_config
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.metric_points import read_points
from zoerefine.depth.data.networks import load_network
from zoerefine.depth.exporting.bundle.bundle import copy_bundle, load_bundle, read_bundle
from zoerefine.depth.points.measured_file import read_measured
from zoerefine.depth.training.checkpoint import CheckpointWriter, load_checkpoint
from zoerefine.lab.launch.job import Job
from zoerefine.lab.launch.plan import make_plan

state = SimpleNamespace(path="", other="", opened=0, hooked=False)


def exchange(event, words):
    # Python's open() has a mode; one with an opener is followed by os.open(), which has none.
    if event == "open" and state.path and str(words[0]) == state.path and words[1]:
        state.opened += 1
        if state.opened == 2:
            os.replace(state.other, state.path)


def checkpoints(folder, world):
    for step, name in ((3, "a"), (4, "b")):
        writer = CheckpointWriter(folder / name, 1, 60)
        writer.save(step, {"step": step})
        writer.wait()
    path, other = (next((folder / name).glob("step-*")) for name in "ab")
    return path, other, lambda: load_checkpoint(path.parent)


def bundles(folder, exported_run):
    path = shutil.copy(exported_run.bundle, folder / "a.ts")
    copy_bundle(read_bundle(path), folder / "b.ts", {"commit": "another"}, {})
    return path, folder / "b.ts", lambda: load_bundle(path, trust=True).manifest["commit"]


def configs(folder, world):
    for name, epochs in (("a", 1), ("b", 2)):
        text = f"DATA: {{ROOT: {world}}}\nTRAIN: {{EPOCHS: {epochs}}}\n"
        (folder / f"{name}.yaml").write_text(text)
    return folder / "a.yaml", folder / "b.yaml", lambda: load_config(folder / "a.yaml").TRAIN.EPOCHS


def configs_of_launches(folder, world):
    (folder / "job.py").touch()
    for words in (["init", "--quiet"], ["add", "job.py"], ["commit", "--quiet", "-m", "one"]):
        git(folder, *words)
    for name in "ab":
        (folder / f"{name}.yaml").write_text(f"name: {name}\n")

    def plan():
        job = Job(str(folder), "HEAD", folder / "a.yaml", "job.py", caller=folder)
        found = make_plan(job, folder / "home")
        return found.config, found.document.tree, found.run_name

    return folder / "a.yaml", folder / "b.yaml", plan


def lists(folder, world):
    for name, unit in (("a", "0.001"), ("b", "0.002")):
        rgb, depth, zoe = (
            next((world / place).rglob(suffix))
            for place, suffix in (("habitat_sim_DAVIS/JPEGImages", "*.jpg"),
                                  ("habitat_sim_DAVIS/Annotations", "*.png"),
                                  ("zoe_depth_raw", "*.png"))
        )  # fmt: skip
        text = f"clip,rgb,depth,pseudo,depth_unit_m\n{name},{rgb},{depth},{zoe},{unit}\n"
        (folder / f"{name}.csv").write_text(text)
    path = shutil.copy(folder / "a.csv", folder / "frames.csv")

    def read():
        dataset = open_dataset(folder)
        return dataset.depth_encoding, [frame.clip for frame in dataset.frames]

    return path, folder / "b.csv", read


def points(folder, world):
    for name, metres in (("a", 1), ("b", 2)):
        (folder / f"{name}.csv").write_text(f"x,y,metres\n1,1,{metres}\n3,3,{metres}\n")
    return (
        folder / "a.csv",
        folder / "b.csv",
        lambda: list(read_points(folder / "a.csv", 9, 9).depth_m),
    )


def measured(folder, world):
    for name, metres in (("a", 1), ("b", 2)):
        (folder / f"{name}.csv").write_text(f"frame,x,y,metres\n0,1,1,{metres}\n")
    return folder / "a.csv", folder / "b.csv", lambda: read_measured(folder / "a.csv")


class Constant(torch.nn.Module):
    def __init__(self, metres):
        super().__init__()
        self.metres = metres
        self.eval()

    def forward(self, rgb):
        return rgb[:, :1] * 0 + self.metres


def networks(folder, world):
    pytest.importorskip("onnxruntime")
    facts = {"name": "n", "height": 24, "width": 32, "unit": "m", "mean": [0.5] * 3}
    for name, metres in (("a", 1.0), ("b", 2.0)):
        torch.onnx.export(Constant(metres), (torch.rand(1, 3, 24, 32),), dynamo=True).save(
            folder / f"{name}.onnx"
        )
        (folder / f"{name}.json").write_text(json.dumps(facts | {"std": [0.5] * 3}))

    def predict():
        network = load_network(str(folder / "a.onnx"))
        found_m = network.predict(np.zeros((1, 24, 32, 3), np.uint8))
        return network.source.digest, float(found_m.mean())

    return folder / "a.onnx", folder / "b.onnx", predict


@pytest.mark.parametrize(
    "make",
    [checkpoints, bundles, configs, configs_of_launches, lists, points, measured, networks],
    ids=lambda make: make.__name__,
)
def test_a_file_that_is_exchanged_at_its_second_opening_changes_nothing(
    request, tmp_path, world, make
):
    source = request.getfixturevalue("exported_run") if make is bundles else world
    path, other, use = make(tmp_path, source)
    if not state.hooked:  # a hook cannot be removed
        sys.addaudithook(exchange)
        state.hooked = True
    expected = use()
    state.path, state.other, state.opened = str(path), str(other), 0
    try:
        assert use() == expected
        assert state.opened, "the test does not see how it is opened"
    finally:
        state.path = ""
    if other.exists():
        os.replace(other, path)
    assert use() != expected
