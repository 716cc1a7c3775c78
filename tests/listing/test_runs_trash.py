"""zoerefine runs --remove: what several removals at once, and a kill at any moment, leave."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

KILLS = int(os.environ.get("ZOEREFINE_TEST_KILLS") or "3")
ALL = ("--remove", "--older-than", "0")


def start(root, *words):
    """The command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "zoerefine", "runs", *words], cwd=root, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def add_large(runs, name, files=2000):
    """A run that takes a while to delete."""
    folder = runs.add(name, 0.1)
    (folder / "tb").mkdir()
    for number in range(files):
        (folder / "tb" / str(number)).touch()
    return folder


def test_a_trash_that_is_a_link_is_not_followed(runs):
    outside = runs.add("../elsewhere/a", 0.1).resolve()
    kept = outside.rename(outside.with_name("a." + "0" * 32))
    runs.add("unet/a", 0.1)
    (runs.folder / "unet/.trash").symlink_to(kept.parent)
    assert ".trash is not a folder of zoerefine" in runs.run(*ALL, "--yes", code=1).err
    assert (kept / "status.json").exists() and runs.ids() == ["a"]


def test_what_others_put_into_the_trash_stays(runs):
    runs.add("unet/a", 0.1)
    (runs.folder / "unet/.trash/mine").mkdir(parents=True)
    runs.run(*ALL, "--yes")
    assert (runs.folder / "unet/.trash/mine").is_dir() and not runs.ids()


# Deletes half of a run, and then waits to be killed.
HALF_DELETED = """
import os, shutil, sys, time

def rmtree(path, ignore_errors):
    for number in range(50):
        os.unlink(path / "tb" / str(number))
    print("half deleted", flush=True)
    time.sleep(600)

shutil.rmtree = rmtree
from zoerefine.cli import main
main(["runs", *sys.argv[1:]])
"""


def test_a_kill_while_a_run_is_deleted_leaves_it_in_the_trash_which_the_next_removal_empties(runs):
    add_large(runs, "unet/a", files=100)
    trash = runs.folder / "unet/.trash"
    process = subprocess.Popen(
        [sys.executable, "-c", HALF_DELETED, *ALL, "--yes"], cwd=runs.root,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    lines = [process.stdout.readline() for _ in range(2)]
    assert lines == [f"removed {runs.folder}/unet/a\n", "half deleted\n"]
    process.kill()
    process.communicate()
    assert list(trash.glob("a.*")) and not (runs.folder / "unet/a").exists()
    assert "no run in runs" in runs.run(code=2).err
    runs.run(*ALL, "--yes", code=2)  # there is no run any more
    assert not trash.exists()


def test_killed_removals_leave_every_run_whole_or_gone(runs):
    folders = [add_large(runs, f"unet/{n}", files=100) for n in range(12)]
    begun = time.monotonic()
    start(runs.root, *ALL).communicate()
    seconds = time.monotonic() - begun
    draw = random.Random(1)
    for _ in range(KILLS):
        process = start(runs.root, *ALL, "--yes")
        time.sleep(draw.uniform(0.3, 1.2) * seconds)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        for folder in filter(Path.exists, folders):
            assert len(list((folder / "tb").iterdir())) == 100
            assert json.loads((folder / "status.json").read_text())["state"] == "finished"
    runs.run(*ALL, "--yes", code=0 if any(map(Path.exists, folders)) else 2)
    assert not [path for path in runs.folder.rglob("*") if path.name != ".runs-index"][1:]


def test_two_removals_at_once_remove_every_run_once(runs):
    for number in range(30):
        runs.add(f"unet/{number}", 0.1)
    started = [start(runs.root, *ALL, "--yes") for _ in range(3)]
    printed = [process.communicate() for process in started]
    errors = "".join(err for _, err in printed)
    assert "Traceback" not in errors
    removed = [line for out, _ in printed for line in out.splitlines()]
    assert len(removed) == len(set(removed)) == 30, errors
    assert not runs.ids() and not (runs.folder / "unet/.trash").exists()
