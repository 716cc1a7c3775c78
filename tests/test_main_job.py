"""The main job: this repository launched from its own commit, reproduced, and on real frames."""

import os
import shutil
from pathlib import Path

import pytest

from tests.depth_fixtures import TINY
from tests.processes import platform_command, run_program
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.launch.git.changes import uncommitted_files
from zoerefine.lab.launch.git.commands import head_commit
from zoerefine.lab.launch.record.show import show_run

CHECKOUT = Path(__file__).resolve().parents[1]
REAL = os.environ.get("ZOEREFINE_REAL_DATA", "")
needs_git = pytest.mark.skipif(not head_commit(CHECKOUT), reason="this tree is not a git checkout")


def run_script(folder, name, *words, code=0):
    return run_program(platform_command(name, *words), code, cwd=folder)


@pytest.fixture(scope="module")
def launched(world, tmp_path_factory):
    """A tiny training launched from this repository: the run, and the folder of the caller."""
    folder = tmp_path_factory.mktemp("main")
    shutil.copytree(world, folder / "data")
    (folder / "tiny.yaml").write_text(TINY)
    where = ("--repo", CHECKOUT, "--commit", "HEAD", "--allow-dirty", "--home", folder / "home")
    values = ("DATA.ROOT", "data", "TRAIN.EPOCHS", "1")
    done = run_script(folder, "run_from_commit", *where, "--config", "tiny.yaml", *values)
    return RunDir(Path(done.stdout.splitlines()[-1])), folder


@needs_git
def test_a_launched_training_is_one_complete_run(launched):
    run, folder = launched
    recorded = run.read_json(run.provenance_file)
    # The launcher and the job write into the same record.
    assert recorded["commit"] == head_commit(CHECKOUT)
    assert recorded["dataset_digest"]
    assert recorded["exit_status"] == 0
    assert bool(recorded["dirty_digest"]) == bool(uncommitted_files(CHECKOUT))
    assert str(folder / "home") in recorded["job_argv"][0]
    assert run.results_file.exists()
    assert run.config_file.exists()
    assert "training" in run.log_file.read_text()
    # Relative paths of the config start at the caller's folder.
    assert (folder / "caches").is_dir()
    assert run.path.parent == folder / "runs" / "tiny"
    page = show_run(run)
    weights = run.weights_digest_file.read_text().strip()
    reproduce = f"zoerefine reproduce {run.path}"
    for shown in (recorded["commit"], "finished", weights[:12], "DATA.ROOT data", reproduce):
        assert shown in page


@needs_git
def test_a_training_is_reproduced_bit_exactly_and_changed_data_are_named(launched):
    run, folder = launched
    # From another folder: DATA.ROOT is still the folder of the first launch.
    words = (run.path, "--home", folder / "home")
    assert "exactly the same" in run_script("/", "reproduce", *words).stdout
    pictures = sorted((folder / "data" / "zoe_depth_raw").rglob("*.png"))
    shutil.copyfile(pictures[-1], pictures[0])
    done = run_script("/", "reproduce", *words, code=2)
    assert "NOT REPRODUCIBLE: dataset_digest" in done.stdout


@pytest.mark.skipif(not REAL, reason="ZOEREFINE_REAL_DATA names no folder of real frames")
def test_real_frames_are_refined_better_than_by_a_global_scale(tmp_path, script):
    from zoerefine.depth.data.layouts.readers import open_dataset

    last = open_dataset(REAL).scenes[-1]
    done = script(
        "train", "--config", CHECKOUT / "configs" / "demo.yaml", "DATA.ROOT", REAL,
        "DATA.VAL_FRACTION", "0.0", "DATA.TEST_FRACTION", "0.0", "DATA.TEST_SCENES", f"['{last}']",
        "TRAIN.EPOCHS", "10", "MODEL.BASE", "8",
    )  # fmt: skip
    run = RunDir(Path(done.stdout.splitlines()[-1]))
    test = run.read_json(run.results_file)["test"]
    assert test["refined"]["abs_rel"] < 0.9 * test["global_scale"]["abs_rel"]
    assert test["refined"]["abs_rel"] < 0.9 * test["pseudo"]["abs_rel"]
