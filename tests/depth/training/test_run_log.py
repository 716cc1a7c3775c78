"""The log of a run that was killed and resumed at once, or moved while it is written."""

import time

import pytest

from zoerefine.base.errors import UserError
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


def test_a_run_that_is_moved_while_it_is_written_ends_in_one_line_and_is_not_begun_again(tmp_path):
    run, moved = RunDir(tmp_path / "run"), tmp_path / "moved"
    message = "run was moved or deleted while it was written: move it back, and start the same"
    with pytest.raises(UserError, match=message), run.writing():
        log = RunLog(run)
        try:
            log.write("train", 1, 0, {"loss": 1.0})
            assert log.offset
            run.path.rename(moved)
            log.write("train", 2, 0, {"loss": 2.0})
        finally:
            log.close()
    assert not run.path.exists()
    moved.rename(run.path)
    assert run.status().state == "killed" and len(run.metrics()) == 1

    with pytest.raises(UserError, match=message), run.writing():
        run.path.rename(moved)
        (run.checkpoints / "last").write_text("")
    assert not run.path.exists()
