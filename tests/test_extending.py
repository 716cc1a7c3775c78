"""docs/extending.md, done: every example is put into a copy of the package and used."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.processes import run_program

ROOT = Path(__file__).resolve().parents[1]
# A row of the page: the example's file, its place in the package, a registry, the row in it.
ROW = re.compile(
    r"\]\(\.\./(examples/extending/\S+)\) \| `(\S+)` \| `(\w+)` `(.+)` \|$", re.MULTILINE
)

USE = """
import shutil
import sys
import time
from pathlib import Path

import cv2
import numpy as np

import zoerefine as zr
from tests.lab.launch.local_packages import make_wheel
from zoerefine.lab.launch.environment import job_python
from zoerefine.lab.launch.record.provenance import packages
from zoerefine.lab.launch.queue.executor import open_executor

world = Path(sys.argv[1])
if __name__ == "__main__":
    cfg = zr.load_config({
        "DATA": {"ROOT": str(world)},
        "CACHE": {"HEIGHT": 24, "WIDTH": 32},
        "LOADER": {"BATCH": 4},
        "MODEL": {"NAME": "plain", "BASE": 4, "OPTIONS": {"layers": 3}},
        "LOSS": {"TERMS": [{"name": "log_mse", "weight": 1.0}]},
        "TRAIN": {"EPOCHS": 1, "SCHEDULE": "linear"},
    })
    run = zr.train(cfg)
    assert run.results()["parameters"] > 100
    assert np.isfinite(run.results()["val"]["refined"]["mean_error_m"])

    refiner = zr.Refiner.load(zr.export(run, engine="plain", precision="fp32"))
    assert refiner.manifest["engine"] == "plain"
    rgb, zoe_m = np.zeros((24, 32, 3), np.uint8), np.full((24, 32), 2.0, np.float32)
    assert refiner(rgb, zoe_m).shape == (24, 32)

    searched = {"STUDY.TRIALS": 1, "STUDY.SAMPLER": "quasi_random", "RUN.NAME": "s",
                "SEARCH": {"MODEL": {"OPTIONS": {"layers": [1, 2]}}}}
    study = zr.search(zr.load_config(cfg, searched))
    assert "layers:" in (study.path / "best.yaml").read_text()

    recording = Path("numbered/hall")
    for name in ("rgb", "depth", "pseudo"):
        (recording / name).mkdir(parents=True)
    Path("numbered/numbered.txt").touch()
    cv2.imwrite(str(recording / "rgb/0.jpg"), np.zeros((24, 32, 3), np.uint8))
    for name, value in (("depth", 2000), ("pseudo", 512)):
        cv2.imwrite(str(recording / name / "0.png"), np.full((24, 32), value, np.uint16))
    dataset = zr.open_dataset("numbered")
    assert dataset.layout == "numbered" and dataset.scenes == ("hall",)
    batch = next(iter(zr.make_loader(dataset, 1, size=(24, 32))))
    assert abs(batch.depth_m.mean().item() - 2) < 1e-3

    with open_executor("talkative") as executor:
        ticket = executor.submit(["--help"], Path("launch"))
        while executor.poll(ticket) is None:
            time.sleep(0.05)

    workspace, home = Path("workspace").resolve(), Path("home").resolve()
    make_wheel(workspace / "wheels", "1.0")
    (workspace / "requirements.lock").write_text("tinything==1.0")
    with job_python("wheelhouse", workspace, "", home) as python:
        assert "tinything==1.0" in packages(python)
    print("all used")
"""


def parts() -> list[tuple[str, str, str, str]]:
    return ROW.findall((ROOT / "docs/extending.md").read_text())


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """A copy of the package with every example of the page in it."""
    folder = tmp_path_factory.mktemp("extended")
    for name in ("zoerefine", "platform"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    registries = (folder / "zoerefine/base/registries.py").read_text()
    for example, place, registry, row in parts():
        table = re.compile(rf"^({registry} = Registry\(.*?\{{\n)", re.MULTILINE | re.DOTALL)
        registries, rows = table.subn(lambda m, row=row: f"{m[1]}{row},\n", registries, count=1)
        assert rows == 1, registry
        assert not (folder / place).exists(), place
        shutil.copy(ROOT / example, folder / place)
    (folder / "zoerefine/base/registries.py").write_text(registries)
    return folder


def test_the_page_shows_every_kind_of_part():
    assert {"NETWORKS", "LOSS_TERMS", "SCHEDULES", "METRICS", "READERS", "SAMPLERS", "EXECUTORS",
            "ENVIRONMENTS", "ENGINES"} <= {registry for _, _, registry, _ in parts()}  # fmt: skip
    shown = {f"examples/extending/{path.name}" for path in (ROOT / "examples/extending").iterdir()}
    assert {example for example, *_ in parts()} == {one for one in shown if one.endswith(".py")}


def test_every_example_takes_one_file_and_one_row_and_works(extended, world, tmp_path):
    program = tmp_path / "use.py"
    program.write_text(USE)
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (extended, ROOT)))}
    done = run_program([sys.executable, program, world], cwd=tmp_path, env=variables)
    assert done.stdout.endswith("all used\n")
