"""kill -9 at random moments of a launch: afterwards the same command succeeds."""

import json
import os
import random
import shutil
import signal
import time
from contextlib import suppress

import pytest

from tests.processes import descendants, ended, kills

KILLS = kills(3)
KILLED_AT_A_RENAME = """
import os, signal, sys
def hook(event, words):
    if event == "os.rename" and os.fspath(words[1]).endswith(os.environ["KILL_AT"]):
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
"""
SLOW_TO_STOP = """
import os, signal, sys, time
from pathlib import Path
def stop(*_):
    time.sleep(4)
    sys.exit(1)
signal.signal(signal.SIGTERM, stop)
mark = Path(os.environ["ZOEREFINE_RUN_FOLDER"], "begun")
if not mark.exists():
    mark.touch()
    time.sleep(600)
"""


@pytest.mark.parametrize(
    "name", ["latest", ".0.json", "status.json", "input.yaml", "provenance.json"]
)
def test_a_launch_removes_what_a_killed_one_had_half_written(launch, command, tmp_path, name):
    (tmp_path / "killer").mkdir()
    (tmp_path / "killer" / "sitecustomize.py").write_text(KILLED_AT_A_RENAME)
    path = os.pathsep.join([str(tmp_path / "killer"), *filter(None, [os.getenv("PYTHONPATH")])])
    launch(env={"PYTHONPATH": path, "KILL_AT": name}, code=-signal.SIGKILL)
    launch()
    command("run", "--clean", "--yes")
    hidden = {path.name for path in tmp_path.rglob(".*")}
    assert hidden <= {".lock", ".provenance.lock", ".gitignore", ".git", ".use"}


@pytest.mark.parametrize("all_of_them", [False, True], ids=["the launcher", "all processes"])
def test_the_same_command_succeeds_after_kill_9_at_any_moment(
    launch, command, commit_with_submodule, config, home, tmp_path, all_of_them, only_run
):
    config.write_text(f"steps: 1\ngate: {tmp_path}\n")
    draw = random.Random(17)
    for _ in range(KILLS):
        running = launch(background=True, commit=commit_with_submodule)
        time.sleep(draw.uniform(0.0, 0.9))
        for pid in descendants(running.pid) if all_of_them else {running.pid}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended(running, "run")
        if draw.random() < 0.3:  # so that first launches are killed, too
            shutil.rmtree(home, ignore_errors=True)
            shutil.rmtree(tmp_path / "runs", ignore_errors=True)
    launch(commit=commit_with_submodule)
    run = only_run()
    assert run.status().state == "finished"
    steps = [line.split()[0] for line in (run.path / "steps.txt").read_text().splitlines()]
    assert steps == [str(step) for step in range(12)]
    half_made = [path for path in home.rglob("*.tmp") if "objects" not in path.parts]
    command("run", "--clean", "--yes")
    files = [path for path in home.rglob("*") if path.is_file() and path.stat().st_size]
    left = [path for path in files if path != home / ".gitignore"]
    assert left == [], half_made


def test_a_queue_waits_for_the_launches_of_a_killed_one(launch, repository, wait_until, only_run):
    (repository.folder / "job.py").write_text(SLOW_TO_STOP)
    repository.git("commit", "--quiet", "--all", "-m", "slow to stop")
    queue = launch("--seeds", "0", background=True, commit="main")
    wait_until(lambda: (only_run().path / "begun").exists(), queue)
    queue.kill()
    ended(queue, "run")
    launch("--seeds", "0", commit="main")
    assert only_run().status().state == "finished"


def test_what_a_job_left_is_whole_after_kill_9_at_any_moment(
    launch, command, config, home, only_run
):
    config.write_text("leave: 1\n")
    draw = random.Random(18)
    for _ in range(KILLS):
        running = launch(background=True)
        time.sleep(draw.uniform(0.2, 1.8))  # in the job, while files are collected, or after
        with suppress(ProcessLookupError):
            os.kill(running.pid, signal.SIGKILL)
        ended(running, "run")
    launch()
    run = only_run()
    assert run.status().state == "finished"
    found = {path.name: path.read_text() for path in run.left.rglob("*.txt")}
    assert found == {f"{number}.txt": str(number) for number in range(300)}
    assert len(json.loads(run.left_file.read_text())["files"]) == 300
    command("run", "--clean", "--yes")
    assert not list(home.glob("workspaces/*/*/"))


@pytest.fixture
def commit_with_submodule(repository):
    """A commit with a submodule, which a kill can interrupt as well."""
    inner = type(repository)(repository.folder.with_name("inner")).init()
    inner.commit("inner one")
    repository.git("submodule", "--quiet", "add", "../inner", "libs/inner")
    return repository.commit("with a submodule")
