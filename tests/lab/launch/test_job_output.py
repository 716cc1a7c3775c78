"""A job's output is copied live and unchanged, and readable in the log; signals; how it ended."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
from functools import partial

import pytest

from tests.processes import end_of
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.launch.process import child as child_process
from zoerefine.lab.launch.process.child import run_child


@pytest.fixture
def child(tmp_path):
    """Run Python code as a job, in a process of its own; more words are options of Popen."""

    def start(code, **options):
        starter = (
            "import os, sys\n"
            "from pathlib import Path\n"
            "from zoerefine.lab.launch.process.child import run_child\n"
            "from zoerefine.base.run_dir import RunDir\n"
            "run = RunDir(Path(sys.argv[1])); run.path.mkdir(exist_ok=True)\n"
            "command = [sys.executable, '-u', '-c', sys.argv[2]]\n"
            "with run.locked() as lock:\n"
            "    sys.exit(run_child(command, run.path, os.environ, run, [lock]))\n"
        )
        defaults = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        words = [sys.executable, "-c", starter, str(tmp_path / "run"), code]
        return subprocess.Popen(words, **(defaults | options))

    return start


@pytest.fixture
def run(tmp_path):
    return RunDir(tmp_path / "run")


UNTIL_GATE = (
    "import pathlib, time\n"
    "print('ready', flush=True)\n"
    "while not pathlib.Path('gate').exists(): time.sleep(0.02)"
)


def test_stdout_and_stderr_stay_apart_and_unchanged(child, run):
    code = (
        "import sys\n"
        "sys.stdout.buffer.write(bytes(range(256)) + b'\\nno newline at the end')\n"
        "sys.stderr.write('10%\\r50%\\r100%\\nwarned\\n')"
    )
    out, err = child(code).communicate(timeout=120)
    assert out == bytes(range(256)) + b"\nno newline at the end"
    assert err == b"10%\r50%\r100%\nwarned\n"
    lines = run.log_file.read_bytes().split(b"\n")
    assert b"100%" in lines
    assert b"warned" in lines
    assert b"no newline at the end" in lines
    assert not any(b"50%" in line for line in lines)


def test_output_is_copied_while_the_job_runs(child, run):
    process = child(UNTIL_GATE)
    assert process.stdout.readline() == b"ready\n"
    (run.path / "gate").touch()  # the job ends only after its line was seen
    assert process.wait(120) == 0


def test_in_a_terminal_the_job_has_a_terminal_too(child, run):
    ours, theirs = pty.openpty()
    code = (
        "import os, sys\n"
        "print(sys.stdout.isatty(), sys.stderr.isatty(), os.get_terminal_size().columns)\n"
        "sys.stderr.write('\\x1b[31m1/3\\r2/3\\r3/3\\x1b[0m\\n')"
    )
    subprocess.run(["stty", "cols", "123"], stdin=theirs, check=True)
    process = child(code, stdout=theirs, stderr=theirs, stdin=theirs)
    os.close(theirs)
    shown = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            shown += os.read(ours, 1000)
        except OSError:
            break
    assert process.wait(120) == 0
    assert b"True True 123\r\n" in shown
    assert b"\x1b[31m1/3\r2/3\r3/3\x1b[0m\r\n" in shown
    assert run.log_file.read_text() == "True True 123\n3/3\n"


def test_a_long_progress_bar_is_one_line_of_the_log(child, run):
    code = (
        "import sys\n"
        "for n in range(200_000): sys.stderr.write(f'\\r{n} of 200000')\n"
        "sys.stderr.write('\\n')"
    )
    process = child(code)
    _, err = process.communicate(timeout=120)
    assert len(err) > 2_000_000
    assert run.log_file.read_text() == "199999 of 200000\n"


def test_a_job_ends_even_if_it_leaves_a_process_in_the_background(child, run):
    code = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid)"
    process = child(code, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert process.wait(120) == 0
    finally:
        os.kill(int(run.log_file.read_text()), signal.SIGKILL)


def test_a_job_continues_when_nobody_reads_its_output(child, run):
    code = (
        "import time\n"
        "for n in range(60): print('x' * 5000, flush=True); time.sleep(0.01)\n"
        "open('finished', 'w').write('yes')"
    )
    process = child(code)
    process.stdout.readline()
    process.stdout.close()
    process.stderr.close()
    assert process.wait(120) == 0
    assert (run.path / "finished").exists()
    assert len(run.log_file.read_text().splitlines()) == 60


@pytest.mark.parametrize(
    ("code", "exit_code", "state", "reason"),
    [
        ("pass", 0, "finished", ""),
        ("raise SystemExit(7)", 7, "failed", "exit code 7"),
        ("print('bye'); raise ValueError('too hot')", 1, "failed", "ValueError: too hot"),
        (
            "import sys; print('error: no such key', file=sys.stderr); print('bar'); sys.exit(2)",
            2,
            "failed",
            "error: no such key",
        ),
        (
            "print('no viable alternative\\nSet the environment variable HYDRA_FULL_ERROR=1');"
            "raise SystemExit(1)",
            1,
            "failed",
            "no viable alternative",
        ),
        (
            "print('step 3', flush=True); import os; os.kill(os.getpid(), 9)",
            137,
            "killed",
            "killed by SIGKILL",
        ),
        ("import os; os.abort()", 134, "killed", "killed by SIGABRT"),
    ],
)
def test_exit_code_state_and_reason_are_recorded(child, run, code, exit_code, state, reason):
    process = child(code)
    end_of(process, exit_code)
    status = run.status()
    assert (status.state, status.reason) == (state, reason)
    known = json.loads(run.provenance_file.read_text())
    assert known["exit_status"] == exit_code
    assert known["started"] <= known["ended"]


def test_the_first_ctrl_c_asks_and_the_second_kills(child, run):
    code = (
        "import signal, time\n"
        "signal.signal(signal.SIGINT, lambda *_: print('asked', flush=True))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.1)"
    )
    process = child(code)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == b"asked\n"
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 137
    assert (run.status().state, run.status().reason) == ("killed", "stopped by SIGINT")


def test_a_hang_up_that_nohup_ignores_does_not_stop_the_job(child, run):
    ignore = partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    process = child(UNTIL_GATE, preexec_fn=ignore)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGHUP)
    (run.path / "gate").touch()
    assert process.wait(120) == 0
    assert run.status().state == "finished"


def test_when_the_launcher_is_killed_the_job_saves_a_checkpoint_and_frees_the_run(
    child, run, wait_until
):
    code = (
        "import signal, sys, time\n"
        "def stop(*_): open('checkpoint', 'w').write('saved'); sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.1)"
    )
    process = child(code)
    assert process.stdout.readline() == b"ready\n"
    process.kill()
    process.communicate()
    wait_until(lambda: run.status().state != "running")
    assert run.status().state == "killed"
    assert (run.path / "checkpoint").read_text() == "saved"


def test_a_program_that_cannot_start_is_recorded_as_failed(run):
    run.path.mkdir()
    assert run_child(["/absent/python"], run.path, {}, run, []) == 126
    assert "cannot be started" in run.status().reason


def test_a_stop_while_the_job_is_being_started_reaches_it(run, monkeypatch):
    setup = child_process.child_setup

    def interrupted_setup():
        signal.raise_signal(signal.SIGINT)
        return setup()

    monkeypatch.setattr("zoerefine.lab.launch.process.child.child_setup", interrupted_setup)
    run.path.mkdir()
    assert run_child(["sleep", "600"], run.path, os.environ, run, []) == 130
    assert run.status().state == "killed"
