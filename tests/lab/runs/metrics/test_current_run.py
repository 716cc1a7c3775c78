"""current_run: three lines in a script log its metrics; a kill loses at most the last line."""

import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from zoerefine import current_run
from zoerefine.lab.runs.metrics import read_metrics

NOT_A_NUMBER = r"^current_run: acc is .*, not a number$"
NO_TORCH = "import sys; assert 'torch' not in sys.modules"


@pytest.fixture
def launched(run, monkeypatch):
    """The run of this process, as if a launcher had started it."""
    monkeypatch.setenv("ZOEREFINE_RUN_FOLDER", str(run.path))
    monkeypatch.delenv("RANK", raising=False)
    return run


def test_what_was_logged_is_read(launched):
    current_run.log(1, loss=0.5, acc=np.float32(0.25))
    current_run.log(2, loss=torch.tensor([0.25]), acc=float("nan"))
    current_run.summary(best_acc=0.75)
    current_run.summary(epochs=2)
    metrics = read_metrics(launched)
    assert metrics.series["loss"].values == [0.5, 0.25]
    assert math.isnan(metrics.series["acc"].values[1])
    assert metrics.final["best_acc"] == 0.75 and metrics.final["epochs"] == 2


def test_a_step_that_was_logged_again_has_its_last_value(launched):
    for value in (0.5, 0.25):
        current_run.log(1, loss=value)
    assert read_metrics(launched).series["loss"].values == [0.25]


@pytest.mark.parametrize("value", ["0.5", None, True, [0.5], torch.zeros(2), 1j])
def test_what_is_not_a_number_is_refused(launched, value):
    with pytest.raises(TypeError, match=NOT_A_NUMBER):
        current_run.log(1, acc=value)
    with pytest.raises(TypeError, match=NOT_A_NUMBER):
        current_run.summary(acc=value)
    assert not launched.metrics_file.exists() and not launched.results_file.exists()


def test_outside_a_launch_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.delenv("ZOEREFINE_RUN_FOLDER", raising=False)
    monkeypatch.chdir(tmp_path)
    current_run.log(1, acc=0.5)
    current_run.summary(acc=0.5)
    assert current_run.checkpoint_folder() is None and not list(tmp_path.iterdir())


def test_of_many_ranks_only_the_first_writes(launched, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    current_run.log(1, acc=0.5)
    current_run.summary(acc=0.5)
    assert not launched.metrics_file.exists() and not launched.results_file.exists()
    assert current_run.checkpoint_folder() == launched.checkpoints


def test_a_copy_of_the_file_works_alone_without_torch(run, tmp_path):
    shutil.copy(current_run.__file__, tmp_path / "current_run.py")
    script = (
        "import current_run, sys; current_run.log(1, acc=0.5); assert 'torch' not in sys.modules"
    )
    run_alone(script, tmp_path, ZOEREFINE_RUN_FOLDER=str(run.path))
    assert read_metrics(run).final == {"acc": 0.5}


def test_the_import_from_the_package_needs_no_torch(tmp_path):
    root = str(Path(current_run.__file__).parents[3])
    script = "import zoerefine; zoerefine.current_run.log(1, a=1); "
    run_alone(script + NO_TORCH, tmp_path, PYTHONPATH=root)


def run_alone(script, folder, **variables):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | variables
    subprocess.run([sys.executable, "-c", script], cwd=folder, env=environment, check=True)


WRITER = """
from zoerefine import current_run
step = START
while True:
    step += 1
    current_run.log(step, value=step, words=1.5)
    current_run.summary(last=step)
"""


def test_kills_lose_no_step_but_the_last(run):
    """A job that is killed again and again goes on from the last step that it finds."""
    for _ in range(int(os.environ.get("ZOEREFINE_TEST_KILLS", 4))):
        start = (
            int(max(read_metrics(run).series["value"].steps)) if run.metrics_file.exists() else 0
        )
        environment = os.environ | {"ZOEREFINE_RUN_FOLDER": str(run.path)}
        job = subprocess.Popen(
            [sys.executable, "-c", WRITER.replace("START", str(start))], env=environment
        )
        while not run.results_file.exists() or read_metrics(run).final["value"] < start + 20:
            assert job.poll() is None
        job.send_signal(signal.SIGKILL)
        job.wait()
        metrics = read_metrics(run)
        steps = metrics.series["value"].steps
        assert metrics.faults == () and steps == list(range(1, len(steps) + 1))
        assert metrics.series["value"].values == steps
        assert metrics.final["last"] in (steps[-1], steps[-1] - 1)


def test_a_line_after_a_cut_off_one_is_whole(launched):
    launched.write("metrics.jsonl", '{"step": 1, "acc": 0.5}\n{"step": 2, "ac')
    current_run.log(2, acc=0.25)
    metrics = read_metrics(launched)
    assert metrics.series["acc"].values == [0.5, 0.25] and metrics.faults == ()
