"""kill -9 at random moments of a launch; then the same command succeeds."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

KILLS = int(os.environ.get("ZOEREFINE_TEST_KILLS", "12"))  # 50 take half a minute


def descendants(pid):
    """All processes below a process, itself included."""
    listing = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True).stdout
    parents = dict(map(int, line.split()) for line in listing.splitlines()[1:])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


@pytest.mark.parametrize("whole", [False, True], ids=["the launcher", "everything"])
def test_the_same_command_succeeds_after_kill_9_at_any_moment(
    launch, repository, inner_module, config, home, tmp_path, whole, only_run
):
    config.write_text("steps: 1\n")
    draw = random.Random(17)
    for _ in range(KILLS // 2):
        running = launch(background=True, commit=inner_module)
        time.sleep(draw.uniform(0.0, 0.9))
        for pid in descendants(running.pid) if whole else {running.pid}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running.communicate()
        if draw.random() < 0.3:  # the first launch again, and again
            subprocess.run(["rm", "-rf", home, tmp_path / "runs"], check=True)
    done = launch(commit=inner_module)
    assert done.returncode == 0, done.stderr
    run = only_run()
    assert run.status().state == "finished"
    steps = [line.split()[0] for line in (run.path / "steps.txt").read_text().splitlines()]
    assert sorted(set(steps), key=int) == [str(step) for step in range(12)]
    half_made = [path for path in home.rglob("*.tmp") if "objects" not in path.parts]
    clean = [sys.executable, "-m", "zoerefine", "run", "--clean"]
    subprocess.run(clean, check=True, capture_output=True)
    left = [path for path in home.rglob("*") if path.is_file() and path.stat().st_size]
    assert left == [], half_made


@pytest.fixture
def inner_module(repository):
    """A commit with a submodule: one more thing to be cut off in the middle of."""
    inner = type(repository)(repository.folder.with_name("inner"))
    inner.commit("inner one")
    repository.git("submodule", "--quiet", "add", "../inner", "libs/inner")
    return repository.commit("with a submodule")
