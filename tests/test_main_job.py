"""The main job: this repository launched from its own commit, and on real frames where given."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zoerefine.launch.git_commands import head_commit, uncommitted_files
from zoerefine.run_dir import RunDir

CHECKOUT = Path(__file__).resolve().parents[1]
REAL = os.environ.get("ZOEREFINE_REAL_DATA", "")


def launch(folder, *words):
    command = [
        *(sys.executable, CHECKOUT / "platform" / "run_from_commit.py"),
        *("--repo", CHECKOUT, "--commit", "HEAD", "--allow-dirty"),
        *("--home", folder / "home", *words),
    ]
    return subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True)


@pytest.mark.skipif(not head_commit(CHECKOUT), reason="this tree is no git checkout")
def test_a_training_launched_from_this_commit_is_one_whole_run(tiny, tmp_path, world):
    done = launch(tmp_path, "--config", tiny, "TRAIN.EPOCHS", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    run = RunDir(Path(done.stdout.splitlines()[-1]))
    known = run.read_json(run.provenance_file)
    # What the launcher knows and what the job knows stand side by side.
    assert known["commit"] == head_commit(CHECKOUT)
    assert known["dataset_digest"]
    assert known["exit_status"] == 0
    assert bool(known["dirty_digest"]) == bool(uncommitted_files(CHECKOUT))
    assert str(tmp_path / "home") in known["job_argv"][0]
    assert run.results_file.exists()
    assert run.config_file.exists()
    assert "training" in run.log_file.read_text()
    # Relative paths of the config mean the folder where the user stood.
    assert (tmp_path / "caches").is_dir()
    assert run.path.parent == tmp_path / "runs" / "tiny"


@pytest.mark.skipif(not REAL, reason="ZOEREFINE_REAL_DATA names no folder of real frames")
def test_real_frames_are_refined_better_than_by_a_global_scale(tmp_path, script):
    from zoerefine.data.readers import open_dataset

    last = open_dataset(REAL).scenes[-1]
    done = script(
        "train", "--config", CHECKOUT / "configs" / "demo.yaml", "DATA.ROOT", REAL,
        "DATA.VAL_FRACTION", "0.0", "DATA.TEST_FRACTION", "0.0", "DATA.TEST_SCENES", f"['{last}']",
        "TRAIN.EPOCHS", "10", "MODEL.BASE", "8",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = RunDir(Path(done.stdout.splitlines()[-1]))
    test = run.read_json(run.results_file)["test"]
    assert test["refined"]["abs_rel"] < 0.9 * test["global_scale"]["abs_rel"]
    assert test["refined"]["abs_rel"] < 0.9 * test["pseudo"]["abs_rel"]
