"""The log of a run that was killed and resumed at once."""

import time

import pytest

from zoerefine.base.run_dir import RunDir
from zoerefine.depth.training.run_log import RunLog
from zoerefine.lab.runs.metrics.events import EventLog


@pytest.mark.parametrize("other", ["a.1.0", "z.99999999.0"])
def test_curves_are_whole_whatever_the_names_of_the_files_of_one_second(tmp_path, other):
    run = RunDir(tmp_path)
    killed = RunLog(run)
    for step in (1, 2, 3):
        killed.write("train", step, 0, {"loss": float(step)})
    offset = killed.offset
    killed.close()
    (file,) = run.tensorboard.iterdir()
    time.sleep(1 - time.time() % 1)  # both files of one second
    file.rename(file.with_name(f"events.out.tfevents.{int(time.time())}.{other}"))
    resumed = RunLog(run, offset, step=2)
    for step in (3, 4, 5):
        resumed.write("train", step, 0, {"loss": float(step * 10)})
    resumed.close()
    log = EventLog(run.tensorboard, "tensorboard")
    log.update(ended=True)
    assert log.points["train/loss"] == {1: 1, 2: 2, 3: 30, 4: 40, 5: 50}
