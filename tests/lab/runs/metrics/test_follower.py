"""Following a metric while a job is running, as a search does to prune."""

import os
import shutil
import time
from contextlib import ExitStack
from math import isnan

import pytest
from torch.utils.tensorboard.writer import SummaryWriter

from zoerefine.lab.runs.metrics import MetricFollower, read_metrics


@pytest.fixture
def workspace(tmp_path):
    """A job's workspace with a log that the repository holds."""
    folder = tmp_path / "workspace"
    (folder / "results").mkdir(parents=True)
    committed = folder / "results" / "baseline.csv"
    committed.write_text("step,acc\n1,0.125\n")
    os.utime(committed, (1e9, 1e9))
    return folder


@pytest.fixture
def running(run):
    """The run while its job is running."""
    with ExitStack() as stack:
        stack.enter_context(run.locked())
        run.set_status("running")
        time.sleep(0.05)  # a file's time may be a clock tick behind
        yield run


def test_values_come_once_as_a_csv_log_grows(running, workspace):
    follower = MetricFollower(running, workspace, "acc")
    assert follower.new() == []
    log = workspace / "log.csv"
    log.write_text("epoch,acc\n1,0.5\n2,0.2")
    assert follower.new() == [(1, 0.5)]
    log.write_text("epoch,acc\n1,0.5\n2,0.25\n3,nan\n")
    (second, third) = follower.new()
    assert second == (2, 0.25) and third[0] == 3 and isnan(third[1])
    assert follower.new() == []


@pytest.mark.parametrize("second, expected", [("2,1", [(1, 0.25), (2, 0.5)]),
                                              ("2,9", [(7, 0.25), (9, 0.5)])])  # fmt: skip
def test_the_first_epoch_waits_until_its_steps_are_known(running, workspace, second, expected):
    """They may begin again in the second one, which no study could take back."""
    follower, log = MetricFollower(running, workspace, "acc"), workspace / "log.csv"
    log.write_text("epoch,iter,acc\n1,7,0.25\n")
    assert follower.new() == []
    with open(log, "a") as file:
        file.write(f"{second},0.5\n")
    assert follower.new() == expected


def test_values_come_once_as_event_files_grow(running, workspace):
    follower = MetricFollower(running, workspace, "acc")
    with SummaryWriter(str(workspace / "tb")) as writer:
        for step in range(3):
            writer.add_scalar("acc", step / 4, step)
            writer.flush()
            assert follower.new() == [(step, step / 4)]


def test_values_come_once_as_output_and_metrics_jsonl_grow(running, workspace):
    by_row = MetricFollower(running, workspace, "acc")
    by_pattern = MetricFollower(running, workspace, "score", [r"score (\S+)"])
    with open(running.log_file, "a") as output, open(running.metrics_file, "a") as rows:
        for step in (1, 2):
            print("score", step / 2, file=output, flush=True)
            print(f'{{"step": {step}, "acc": 0.25}}', file=rows, flush=True)
            assert by_row.new() == [(step, 0.25)]
            assert by_pattern.new() == [(step, step / 2)]


def test_a_step_whose_value_changed_comes_again(running, workspace):
    follower = MetricFollower(running, workspace, "acc")
    running.write("metrics.jsonl", '{"step": 1, "acc": 0.5}\n{"step": 2, "acc": 0.5}\n')
    assert follower.new() == [(1, 0.5), (2, 0.5)]
    with open(running.metrics_file, "a") as file:
        file.write('{"step": 2, "acc": 0.25}\n')
    assert follower.new() == [(2, 0.25)]


def test_a_log_that_is_moved_into_the_run_gives_no_value_twice(running, workspace):
    follower = MetricFollower(running, workspace, "acc")
    (workspace / "out").mkdir()
    (workspace / "out" / "log.csv").write_text("epoch,acc\n1,0.5\n")
    assert follower.new() == [(1, 0.5)]
    (running.path / "left").mkdir()
    shutil.move(workspace / "out", running.path / "left" / "out")
    assert follower.new() == []
    assert read_metrics(running).final == {"acc": 0.5}


def test_after_its_end_only_the_run_is_read(running, workspace):
    running.set_status("finished")
    (workspace / "log.csv").write_text("epoch,acc\n1,0.5\n")
    assert MetricFollower(running, workspace, "acc").new() == []


def test_names_lists_what_there_is(running, workspace):
    follower = MetricFollower(running, workspace, "accuracy")
    (workspace / "log.csv").write_text("epoch,acc,loss\n1,0.5,1\n")
    assert follower.new() == [] and follower.names() == ["acc", "loss"]
