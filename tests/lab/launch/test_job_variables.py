"""The environment variables that decide a job are recorded, and set again when it is repeated."""

import json

import pytest

from tests.foreign import commit_files

SCRIPT = """
import os
for name in ("OMP_NUM_THREADS", "FIT_MODE"):
    print(f"{name}={os.environ.get(name, 0)}")
"""
JOB = ("--repo", "code", "--commit", "HEAD", "--module", "fit.py")
PATTERN = r"--metric-pattern=(?P<threads>(?<=THREADS=)\d+)|(?P<mode>(?<=MODE=)\d+)"


@pytest.fixture
def job(tmp_path):
    """The words of `zoerefine run` for a script that prints variables."""
    commit_files(tmp_path / "code", {"fit.py": SCRIPT})
    return ["run", *JOB, PATTERN]


def recorded_variables(tmp_path):
    run = tmp_path / "runs/fit/latest"
    return json.loads((run / "provenance.json").read_text())["variables"]


def test_what_the_launcher_sets_is_recorded_and_set_again(job, command, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    command(*job, "--processes", 1)
    recorded = recorded_variables(tmp_path)
    monkeypatch.delenv("ATEN_CPU_CAPABILITY")
    assert recorded["ATEN_CPU_CAPABILITY"] == "default"
    assert recorded["OMP_NUM_THREADS"] == "3" and recorded["PYTHONHASHSEED"] == "0"
    assert recorded["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8" and "FIT_MODE" not in recorded
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    again = command("reproduce", tmp_path / "runs/fit/latest").stdout
    assert "OMP_NUM_THREADS=3" in again and "ATEN_CPU_CAPABILITY=default" in again


def test_a_variable_that_was_not_set_is_not_set_again(job, command, tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    command(*job)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    command("reproduce", tmp_path / "runs/fit/latest")


def test_a_named_variable_decides_the_job(job, command, tmp_path, monkeypatch):
    monkeypatch.setenv("FIT_MODE", "4")
    first = command(*job, "--record-env", "FIT_MODE")
    assert recorded_variables(tmp_path)["FIT_MODE"] == "4"
    monkeypatch.setenv("FIT_MODE", "5")
    other = command(*job, "--record-env", "FIT_MODE")
    run = first.stdout.splitlines()[-1]
    assert other.stdout.splitlines()[-1] != run
    monkeypatch.delenv("FIT_MODE")
    assert "FIT_MODE=4" in command("reproduce", run).stdout
    shown = command("show", run).stdout
    assert "--record-env=FIT_MODE=4" in shown and "OMP_NUM_THREADS" in shown


def test_a_queue_gives_a_named_variable_to_every_job(job, command, tmp_path, monkeypatch):
    monkeypatch.setenv("FIT_MODE", "4")
    words = ["--record-env", "FIT_MODE", "--seeds", "1,2", "--overrides", "arguments"]
    command(*job, *words)
    assert recorded_variables_of_all(tmp_path) == ["4", "4"]


def recorded_variables_of_all(tmp_path):
    runs = sorted((tmp_path / "runs/fit").glob("*-*/provenance.json"))
    return [json.loads(path.read_text())["variables"]["FIT_MODE"] for path in runs]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("FIT_MODE", None, "FIT_MODE: it is not set"),
        ("FIT_TOKEN", "hunter2-hunter2", "secret"),
        ("ZOEREFINE_SEED", "3", "zoerefine sets it"),
        ("PYTHONPATH", "here", "zoerefine sets it"),
    ],
)
def test_a_variable_that_cannot_be_recorded_is_refused(
    job, command, tmp_path, monkeypatch, name, value, message
):
    if value is not None:
        monkeypatch.setenv(name, value)
    assert message in command(*job, "--record-env", name, code=2).stderr
    assert not (tmp_path / "runs").exists()
