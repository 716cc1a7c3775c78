"""A job's interpreter and environment variables."""

import json
import sys
from pathlib import Path

import pytest

from tests.lab.launch.local_packages import make_wheel, requirements
from tests.processes import run_zoerefine
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.launch.record.provenance import packages
from zoerefine.lab.launch.variables import job_environment


def test_a_virtual_environment_is_made_from_the_lock_file_once(
    launch, commit_with, wheels, only_run, home
):
    make_wheel(wheels, "1.0")
    commit = commit_with("requirements.lock", requirements(wheels))
    done = launch("--environment", "venv", "--module", "uses.py", commit=commit)
    assert f"tinything 1.0 {home}/environments/" in done.stdout
    assert "tinything==1.0" in (only_run().path / "environment.txt").read_text()
    assert "torch" not in (only_run().path / "environment.txt").read_text()
    again = launch("--environment", "venv", "--module", "uses.py", "KEY", "2", commit=commit)
    assert "installing" not in again.stderr
    assert "no requirements.lock" in launch("--environment", "venv", code=2).stderr


def test_a_commit_without_a_lock_file_is_refused_before_any_job_starts(
    tmp_path, repository, config, commit_with, wheels, home
):
    make_wheel(wheels, "1.0")
    commit = commit_with("requirements.lock", requirements(wheels))
    words = ("--repo", repository.folder, "--commits", f"{commit},{commit}~1", "--config", config)
    words = (*words, "--module", "job.py", "--environment", "venv")
    assert "no requirements.lock" in run_zoerefine(tmp_path, "run", *words, code=2).stderr
    assert not (home / "environments").exists()


def test_the_users_pythonpath_comes_after_the_workspace(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ":/their/own:")
    monkeypatch.setenv("PYTHONHOME", "/nonsense")
    monkeypatch.setenv("GIT_DIR", "/another/repository")
    monkeypatch.setenv("THEIR_SETTING", "kept")
    run = RunDir(tmp_path / "run")
    made = job_environment([tmp_path / "w"], run, 17, Path("/caller"), Path(sys.executable))
    assert made["PYTHONPATH"] == f"{tmp_path / 'w'}:/their/own"
    assert made["PYTHONHASHSEED"] == "17"
    assert made["THEIR_SETTING"] == "kept"
    assert made["ZOEREFINE_CALLER_FOLDER"] == "/caller"
    assert not {"PYTHONHOME", "GIT_DIR"} & set(made)


def test_the_hash_seed_is_the_seed_of_the_config(launch, repository, config, only_run):
    (repository.folder / "seed.py").write_text(
        "import os; print('seed', os.environ['PYTHONHASHSEED'], hash('a'))"
    )
    commit = repository.commit("three")
    config.write_text("SEED: 3\nRUN: {NAME: seeded}\n")
    assert "seed 3 " in launch("--module", "seed.py", commit=commit).stdout
    assert json.loads(only_run("seeded").provenance_file.read_text())["hash_seed"] == 3
    assert "seed 4 " in launch("--module", "seed.py", "SEED", "4", commit=commit).stdout


@pytest.mark.depth  # an environment without torch records none
def test_the_recorded_packages_are_the_installed_ones():
    names = {line.partition("==")[0].lower() for line in packages(Path(sys.executable))}
    assert {"torch", "pyyaml", "pytest", "yacs"} <= names
