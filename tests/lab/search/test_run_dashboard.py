"""The dashboard of runs that belong to no study."""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack

import pytest
from torch.utils.tensorboard.writer import SummaryWriter

from zoerefine.base.errors import UserError
from zoerefine.lab.search.dashboard import runs_without_study, start_run_dashboard


@pytest.fixture
def runs(tmp_path):
    """Two runs of another repository's script, without logs."""
    folder = tmp_path / "runs" / "mnist"
    for name in ("one", "two"):
        (folder / name).mkdir(parents=True)
        (folder / name / "provenance.json").write_text('{"module": "train.py"}')
    return folder


def scalars(address, folder, tag):
    """What TensorBoard shows, once it has read the files: {step: value}."""
    for _ in range(300):
        try:
            base, _, token = address.partition("?")
            url = f"{base}data/plugin/scalars/scalars?run={folder}&tag={tag}&{token}"
            with urllib.request.urlopen(url) as answer:
                return {step: value for _, step, value in json.load(answer)}
        except urllib.error.HTTPError:
            time.sleep(0.1)
    raise AssertionError(f"TensorBoard shows no {tag} of {folder}")


def test_curves_of_runs_with_event_files_are_shown(runs):
    with SummaryWriter(str(runs / "one" / "left" / "tb")) as writer:
        writer.add_scalar("acc", 0.5, 3)
    with ExitStack() as stack:
        found = runs_without_study(runs)
        address = start_run_dashboard(runs, found, "127.0.0.1", 0, stack)
        assert scalars(address, "one/left/tb", "acc") == {3: 0.5}


def test_other_logs_are_shown_too(runs):
    (runs / "one" / "log.csv").write_text("epoch,acc\n1,0.5\n2,nan\n3,0.25\n")
    (runs / "two" / "metrics.jsonl").write_text('{"step": 1, "loss": 0.75}\n')
    with ExitStack() as stack:
        found = runs_without_study(runs)
        address = start_run_dashboard(runs, found, "127.0.0.1", 0, stack)
        assert scalars(address, "one", "acc") == {1: 0.5, 3: 0.25}
        assert scalars(address, "two", "loss") == {1: 0.75}


def test_runs_without_metrics_are_answered_with_what_is_missing(runs):
    with ExitStack() as stack, pytest.raises(UserError, match="has no metrics over steps"):
        start_run_dashboard(runs, runs_without_study(runs), "127.0.0.1", 0, stack)


def test_the_command_serves_one_run_until_ctrl_c(runs):
    (runs / "one" / "log.csv").write_text("epoch,acc\n1,0.5\n")
    command = [sys.executable, "-m", "zoerefine", "dashboard", str(runs / "one"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        address = server.stdout.readline().split()[-1]
        assert scalars(address, ".", "acc") == {1: 0.5}
        server.send_signal(signal.SIGINT)
        assert server.wait() == 0
