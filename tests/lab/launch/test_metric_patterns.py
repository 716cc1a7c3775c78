"""Metrics in the output of a launched script: several patterns, later ones, killed attempts."""

import json
import signal
import subprocess
import sys

import pytest

from tests.foreign import Gate, commit_files

SCRIPT = """
import os, time
from pathlib import Path
print("score 0.5", flush=True)
while not Path(os.environ["TEST_GATE"]).exists():
    Path(os.environ["TEST_GATE"] + ".waiting").touch()
    time.sleep(0.02)
print("Loss: 0.25 after 24", flush=True)
print("score 0.75", flush=True)
"""


@pytest.fixture
def job(tmp_path):
    """The words of `zoerefine run` for a script that prints metrics."""
    commit_files(tmp_path / "code", {"fit.py": SCRIPT})
    return ["run", "--repo", "code", "--commit", "HEAD", "--module", "fit.py"]


@pytest.fixture
def gate(tmp_path, monkeypatch):
    return Gate(tmp_path, monkeypatch)


def test_patterns_may_be_repeated(job, gate, command):
    gate.open()
    words = ["--metric-pattern", r"Loss: (\S+)", "--metric-pattern", r"after (?P<batches>\d+)"]
    run = command(*job, *words, "--seeds", "1", "--overrides", "arguments").stdout.split()
    done = command("show", "runs/fit/latest" if not run else run[-1])
    shown = done.stdout.split()
    assert "batches" in shown and "Loss" in shown, done.stdout + done.stderr
    assert "--metric-pattern=after (?P<batches>\\d+)" in done.stdout


def test_a_pattern_finds_metrics_in_a_finished_run(job, gate, command, tmp_path):
    gate.open()
    command(*job)
    pattern = ("--metric-pattern", r"Loss: (\S+)")
    assert "Loss" not in command("show", "runs/fit/latest").stdout
    assert "0.25" in command("show", "runs/fit/latest", *pattern).stdout
    command("runs")  # leaves its index, in which the run has no metric
    assert "0.25" in command("runs", *pattern, "--metric", "Loss").stdout
    command("analyze", "runs/fit/latest", "--out", "report", code=2)
    command("analyze", "runs/fit/latest", "--out", "report", *pattern)
    assert "Loss" in (tmp_path / "report" / "runs.csv").read_text()
    refused = command("show", "runs/fit/latest", "--metric-pattern", "(", code=2)
    assert "not a regular expression" in refused.stderr


def test_a_finished_run_takes_the_patterns_and_refuses_no_word_of_the_same_command(
    job, gate, command, tmp_path
):
    gate.open()
    command(*job, "--metric-pattern", r"Loss: (\S+)")
    done = command(*job, "--metric-pattern", r"score (\S+)", "--left-limit", "20").stderr
    assert "latest" not in done and "its metrics are now those of this --metric-pattern" in done
    assert "is finished: nothing to do" in done
    assert "--left-limit was 10" in done
    shown = command("show", "runs/fit/latest").stdout
    assert "0.75" in shown and "Loss" not in shown.split("launched with")[0]
    quiet = command(*job).stderr  # the options that are not given stay as they were
    assert "metric-pattern" not in quiet and "left-limit" not in quiet
    recorded = json.loads((tmp_path / "runs/fit/latest/provenance.json").read_text())
    assert recorded["metric_patterns"] == [r"score (\S+)"]


def test_values_of_a_killed_attempt_do_not_count(job, gate, command, tmp_path, wait_until):
    words = [*job, "--metric-pattern", r"score (\S+)"]
    running = subprocess.Popen([sys.executable, "-m", "zoerefine", *words], cwd=tmp_path)
    wait_until(gate.waiting, running)
    log = tmp_path / "runs/fit/latest/log.txt"
    wait_until(lambda: "score 0.5" in log.read_text(), running)  # until then it is in a pipe
    running.send_signal(signal.SIGKILL)
    running.wait()
    gate.open()
    wait_until(lambda: command(*words, code=None).returncode == 0)
    assert log.read_text().count("score 0.5") == 2
    command("reproduce", "runs/fit/latest")
    recorded = json.loads((tmp_path / "runs/fit/latest/provenance.json").read_text())
    assert recorded["attempt"] == 2
