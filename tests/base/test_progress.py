"""Progress and messages: bars only on a terminal, plain lines elsewhere, --quiet."""

import os
import pty
import subprocess
import sys
import termios

import pytest

from tests.foreign import commit_files
from tests.processes import run_zoerefine
from zoerefine.base import progress
from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import RunDir


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets: clock[0] = 5.0."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_pipe_gets_whole_lines_at_growing_intervals(clock, capsys):
    with progress.bar(1000, "packing", "frame") as shown:
        for second in range(1, 1001):
            clock[0] = float(second)
            shown.update()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "packing: 10/1000 frame, 1.0 frame/s, 16:30 left"
    assert lines[-1] == "packing: 1000/1000 frame, 1.0 frame/s, 16:40 in all"
    assert 10 < len(lines) < 40  # of 1000 seconds


def test_resumed_items_do_not_count_in_the_rate(clock, capsys):
    with progress.bar(100, "packing", "frame", 50) as shown:
        clock[0] = 5.0
        shown.update(10)
        shown.set_postfix_str("2 broken")
    line = capsys.readouterr().err
    assert line == "packing: 60/100 frame, 2.0 frame/s, 0:05 in all, 2 broken\n"


def test_a_failure_has_no_last_line(capsys):
    with pytest.raises(UserError), progress.bar(2, "packing", "frame") as shown:
        shown.update()
        raise UserError("broken")
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar_and_a_pipe_does_not():
    code = ("from zoerefine.base.progress import say, track\n"
            "for k in track(range(3), 3, 'packing', 'frame'): say(f'message {k}')")  # fmt: skip
    reader, writer = pty.openpty()
    termios.tcsetwinsize(writer, (24, 80))
    subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=writer, check=True)
    os.close(writer)
    assert b"\r" in os.read(reader, 65536).replace(b"\r\n", b"")
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stderr
    assert b"\r" not in piped
    assert [line[:9] for line in piped.splitlines()] == [b"message 0", b"message 1", b"message 2",
                                                         b"packing: "]  # fmt: skip


def test_a_quiet_training_prints_its_folder_and_warnings_only(tiny, script):
    done = script("train", "--config", tiny, "--quiet")
    run = RunDir(tiny.parent / done.stdout.strip())
    assert run.status().state == "finished"
    assert all(line.startswith("warning: ") for line in done.stderr.splitlines()), done.stderr
    log = run.log_file.read_text()
    assert "epoch 2/2" in log and "test scene" in log  # the log has what was hidden


def test_a_quiet_command_prints_its_error(tiny, script):
    done = script("train", "--config", tiny, "--quiet", "TRAIN.LR", "fast", code=2)
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: command line: TRAIN.LR must be")


def test_a_quiet_launch_prints_no_output_of_its_job_but_its_error(tmp_path):
    repo = tmp_path / "repo"
    job = "print('said by the job')\nraise ValueError('broken')\n"
    commit_files(repo, {"job.py": job, "any.yaml": "{}\n"})
    words = ["--repo", repo, "--commit", "HEAD", "--config", repo / "any.yaml", "--quiet"]
    words += ["--module", "job.py", "--home", tmp_path / "home", "--runs", tmp_path / "runs"]
    done = run_zoerefine(tmp_path, "run", *words, code=1)
    (error,) = done.stderr.splitlines()
    assert error.startswith("error: ValueError: broken; see ")
    assert "said by the job" not in done.stdout
    run = RunDir(next(tmp_path.glob("runs/any/*-*")))
    assert "said by the job" in run.log_file.read_text()
