"""Reproduce a run of any script: its metrics at every step, and the files that it left."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.foreign import KINDS
from zoerefine.run_dir import RunDir


@pytest.fixture
def command(tmp_path, home):
    """Run a command of ours in a folder of the user's."""

    def run(*words):
        return subprocess.run(
            [sys.executable, "-m", "zoerefine", *map(str, words)],
            cwd=tmp_path, env=os.environ | {"ZOEREFINE_HOME": str(home)},
            capture_output=True, text=True,
        )  # fmt: skip

    return run


@pytest.mark.parametrize("kind", KINDS)
def test_equal_metrics_and_files_are_reproduced(foreign_repository, command, tmp_path, kind):
    repository = foreign_repository(kind)
    assert command("run", *repository.job(), "--name", "mnist").returncode == 0
    done = command("reproduce", tmp_path / "runs/mnist/latest", "--compare", "*model.txt")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "REPRODUCED" in done.stdout and "exactly the same" in done.stdout


def test_a_script_that_is_not_deterministic_is_named_with_the_difference(
    foreign_repository, command, tmp_path
):
    repository = foreign_repository("argparse_csv")
    source = (repository.folder / "training.py").read_text()
    changed = source.replace('random.Random(f"{seed} {epoch}")', "random.Random()")
    commit = repository.change({"training.py": changed})
    assert command("run", *repository.job(commit), "--name", "mnist").returncode == 0
    done = command("reproduce", tmp_path / "runs/mnist/latest", "--compare", "*.txt")
    assert done.returncode == 1 and "NOT REPRODUCED" in done.stdout
    assert "val_acc at step" in done.stdout and "model.txt" in done.stdout
    assert "MISMATCH" in done.stdout and "(+" in done.stdout + done.stdout.replace("(-", "(+")


def test_a_pattern_without_a_file_is_refused_before_the_job_runs(
    foreign_repository, command, tmp_path
):
    repository = foreign_repository("argparse_csv")
    assert command("run", *repository.job(), "--name", "mnist").returncode == 0
    run = RunDir((tmp_path / "runs/mnist/latest").resolve())
    done = command("reproduce", run.path, "--compare", "*.pt")
    assert done.returncode == 2 and "results/model.txt" in done.stderr
    assert not run.path.with_name(f"{run.path.name}-again1").exists()


def test_times_are_not_compared(foreign_repository, command, tmp_path):
    repository = foreign_repository("argparse_csv")
    script = (repository.folder / "train.py").read_text()
    timed = script.replace('"note"', '"epoch time"').replace('"fine"', "time.time()")
    commit = repository.change({"train.py": "import time\n" + timed})
    assert command("run", *repository.job(commit), "--name", "mnist").returncode == 0
    done = command("reproduce", tmp_path / "runs/mnist/latest")
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_other_nodes_left_is_not_compared(foreign_repository, command, tmp_path):
    repository = foreign_repository("argparse_csv")
    assert command("run", *repository.job(), "--name", "mnist").returncode == 0
    run = tmp_path / "runs/mnist/latest"
    left = run / "node-1" / "left"
    left.mkdir(parents=True)
    (left / "results.json").write_text('{"loss": 0.5}')
    (left / "weights.sha256").write_text("ab" * 32)
    assert "weights" not in command("show", run).stdout
    done = command("reproduce", run)
    assert done.returncode == 0, done.stdout + done.stderr


def test_hidden_folders_of_a_run_are_no_results(foreign_repository, command, tmp_path):
    repository = foreign_repository("plain_prints")
    hidden = """
import os
run = Path(os.environ["ZOEREFINE_RUN_FOLDER"])
(run / ".parts/0").mkdir(parents=True)
(run / ".parts/0/state.json").write_text("{}")
(run / "notes.txt").write_text("done")
"""
    script = (repository.folder / "main.py").read_text()
    commit = repository.change({"main.py": script + hidden})
    assert command("run", *repository.job(commit), "--name", "mnist").returncode == 0
    run = RunDir((tmp_path / "runs/mnist/latest").resolve())
    names = ["left/checkpoint.json", "left/model.txt", "notes.txt"]
    assert list(run.read_json(run.provenance_file)["outputs"]) == names
    shutil.rmtree(run.path / ".parts")
    done = command("reproduce", run.path)
    assert done.returncode == 0, done.stdout + done.stderr
