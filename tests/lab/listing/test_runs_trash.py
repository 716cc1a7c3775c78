"""zoerefine runs --remove: what several removals at once, and a kill at any moment, leave."""

import json
import random
import signal
import subprocess
import sys
import time

from tests.processes import ended, kills

KILLS = kills(3)
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


def test_a_removed_run_comes_back_as_it_was_by_id_name_or_glob(runs):
    for name in ("unet/a", "unet/b", "exp[1]/a", "other/c"):
        runs.add(name, 0.1)
    before = runs.run().out
    runs.run(*ALL, "--yes")
    assert "no run in runs" in runs.run(code=2).err
    fault = runs.run("--restore", "d", code=2).err
    assert "no removed run is named 'd'" in fault and "unet/b" in fault
    for name in ("", "."):
        fault = runs.run("--restore", name, code=2).err
        assert fault == f"error: --restore {name!r} names no run: give ID, NAME/ID or a glob\n"
    assert runs.run("--restore", "exp[1]/a").out == f"restored {runs.folder}/exp[1]/a\n"
    for name in ("unet/*", runs.folder / "other/c"):
        runs.run("--restore", name)
    assert runs.run().out == before
    assert not [one for one in runs.folder.rglob(".trash/*")]


def test_of_two_removed_runs_of_one_id_the_last_comes_back_and_replaces_none(runs):
    for value in (0.1, 0.2):
        runs.add("unet/a", value)
        runs.run(*ALL, "--yes")
    assert "unet/a" in runs.run("--restore", "a").out
    assert "0.2" in runs.run().out
    assert "it is there again" in runs.run("--restore", "a", code=1).err
    assert "0.2" in runs.run().out


def test_a_removal_deletes_what_was_removed_a_month_ago_and_the_trash_is_emptied_at_once(runs):
    trash = runs.folder / "unet/.trash"
    for name in ("old", "new"):
        runs.add(f"unet/{name}", 0.1)
    runs.run(*ALL, "--yes")
    for name, days in (("old", 31), ("new", 29)):
        [moved] = trash.glob(f"{name}.*")
        moved.rename(trash / f"{name}.{time.time_ns() - days * 86400 * 10**9}")
    runs.add("unet/a", 0.1)
    runs.run(*ALL)
    assert len(list(trash.iterdir())) == 2
    runs.run(*ALL, "--yes")
    assert sorted(path.name.split(".")[0] for path in trash.iterdir()) == ["a", "new"]
    assert "deleted 2 of 2 removed runs" in runs.run("--empty-trash").err
    assert not trash.exists()


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


def test_a_run_that_is_half_deleted_is_not_restored_and_the_next_removal_deletes_the_rest(runs):
    add_large(runs, "unet/a", files=100)
    runs.run(*ALL, "--yes")
    process = subprocess.Popen(
        [sys.executable, "-c", HALF_DELETED, "--empty-trash"], cwd=runs.root,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "half deleted\n"
    process.kill()
    process.communicate()
    assert list(runs.folder.glob("unet/.trash/a.*"))
    assert "no removed run" in runs.run("--restore", "a", code=2).err
    runs.add("unet/b", 0.1)
    runs.run(*ALL, "--yes")
    assert [path.name[0] for path in runs.folder.glob("unet/.trash/*")] == ["b"]


def test_killed_removals_leave_every_run_whole_where_it_was_or_in_the_trash(runs):
    folders = [add_large(runs, f"unet/{n}", files=100) for n in range(12)]
    begun = time.monotonic()
    start(runs.root, *ALL).communicate()
    seconds = time.monotonic() - begun
    draw = random.Random(1)
    for _ in range(KILLS):
        process = start(runs.root, *ALL, "--yes")
        time.sleep(draw.uniform(0.3, 1.2) * seconds)
        process.send_signal(signal.SIGKILL)
        ended(process, "runs")
        runs.run("--restore", "*", code=0 if list(runs.folder.glob("unet/.trash/*")) else 2)
        for folder in folders:
            assert len(list((folder / "tb").iterdir())) == 100
            assert json.loads((folder / "status.json").read_text())["state"] == "finished"


def test_a_removal_that_was_done_has_nothing_to_remove(runs):
    runs.add("unet/1", 0.1)
    runs.run(*ALL, "--yes")
    assert "nothing to remove" in runs.run(*ALL, "--yes").err
    (runs.root / "never").mkdir()
    assert "no run in never" in runs.run("never", *ALL, "--yes", code=2).err
    assert "no run in runs, never" in runs.run("runs", "never", *ALL, "--yes", code=2).err


def test_two_removals_at_once_remove_every_run_once(runs):
    for number in range(30):
        runs.add(f"unet/{number}", 0.1)
    started = [start(runs.root, *ALL, "--yes") for _ in range(3)]
    printed = [process.communicate() for process in started]
    errors = "".join(err for _, err in printed)
    assert "Traceback" not in errors
    removed = [line for out, _ in printed for line in out.splitlines()]
    assert len(removed) == len(set(removed)) == 30, errors
    assert not runs.ids() and len(list(runs.folder.glob("unet/.trash/*"))) == 30
