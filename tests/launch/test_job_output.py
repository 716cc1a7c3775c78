"""A job's output: live and byte for byte for people, readable in the log; signals; the end."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

from zoerefine.launch.child_process import run_child
from zoerefine.run_dir import RunDir


@pytest.fixture
def child(tmp_path):
    """Run Python code as a job, in a process of its own; more words are options of Popen."""

    def start(code, **options):
        starter = (
            "import os, sys\n"
            "from pathlib import Path\n"
            "from zoerefine.launch.child_process import run_child\n"
            "from zoerefine.run_dir import RunDir\n"
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


def test_outputs_stay_apart_and_pass_unchanged(child, run):
    code = (
        "import sys\n"
        "sys.stdout.buffer.write(bytes(range(256)) + b'\\nno newline at the end')\n"
        "sys.stderr.write('10%\\r50%\\r100%\\nwarned\\n')"
    )
    out, err = child(code).communicate(timeout=30)
    assert out == bytes(range(256)) + b"\nno newline at the end"
    assert err == b"10%\r50%\r100%\nwarned\n"
    lines = run.log_file.read_bytes().split(b"\n")
    assert b"100%" in lines
    assert b"warned" in lines
    assert b"no newline at the end" in lines
    assert not any(b"50%" in line for line in lines)


def test_output_is_live(child):
    process = child("import time; print('first', flush=True); time.sleep(30)")
    start = time.monotonic()
    assert process.stdout.readline() == b"first\n"
    assert time.monotonic() - start < 15
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)


def test_a_terminal_is_a_terminal_for_the_job(child, run):
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
    while select.select([ours], [], [], 10)[0]:
        try:
            shown += os.read(ours, 1000)
        except OSError:
            break
    assert process.wait(30) == 0
    assert b"True True 123\r\n" in shown
    assert b"\x1b[31m1/3\r2/3\r3/3\x1b[0m\r\n" in shown
    assert run.log_file.read_text() == "True True 123\n3/3\n"


def test_an_endless_bar_takes_no_memory_and_logs_one_line(child, run):
    code = (
        "import sys\n"
        "for n in range(200_000): sys.stderr.write(f'\\r{n} of 200000')\n"
        "sys.stderr.write('\\n')"
    )
    process = child(code)
    _, err = process.communicate(timeout=60)
    assert len(err) > 2_000_000
    assert run.log_file.read_text() == "199999 of 200000\n"


def test_a_job_that_leaves_something_running_ends_all_the_same(child, run):
    code = "import subprocess; subprocess.Popen(['sleep', '20']); print('done')"
    start = time.monotonic()
    process = child(code, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert process.wait(15) == 0
    assert time.monotonic() - start < 15
    assert run.log_file.read_text() == "done\n"


def test_nobody_reading_does_not_stop_the_job(child, run):
    code = (
        "import time\n"
        "for n in range(60): print('x' * 5000, flush=True); time.sleep(0.01)\n"
        "open('finished', 'w').write('yes')"
    )
    process = child(code)
    process.stdout.readline()
    process.stdout.close()
    process.stderr.close()
    assert process.wait(30) == 0
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
        ("import os; os.kill(os.getpid(), 9)", 137, "killed", "exit code 137"),
        ("import os; os.abort()", 134, "killed", "exit code 134"),
    ],
)
def test_the_end_is_recorded(child, run, code, exit_code, state, reason):
    process = child(code)
    process.communicate(timeout=30)
    assert process.returncode == exit_code
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
    assert process.wait(15) == 137
    assert run.status().state == "killed"


def test_a_killed_launcher_lets_its_job_stop_with_a_checkpoint_and_frees_the_run(child, run):
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
    deadline = time.monotonic() + 15
    while run.status().state == "running" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert run.status().state == "killed"
    assert (run.path / "checkpoint").read_text() == "saved"


def test_a_program_that_cannot_start_is_a_failure(run):
    run.path.mkdir()
    assert run_child(["/absent/python"], run.path, {}, run, []) == 126
    assert "cannot be started" in run.status().reason
