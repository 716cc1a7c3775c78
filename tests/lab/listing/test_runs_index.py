"""zoerefine runs: the index, from which only runs that have changed are read again."""

import os
import random
import sys

INDEX = "runs/.runs-index"


def test_the_index_may_be_deleted_or_damaged_at_any_time(three, settled):
    first = three.run().out
    stored = (three.root / INDEX).read_bytes()
    for damaged in (b"", stored[:-20], stored.replace(b"finished", b"finisheD"), b"\xff" * 100):
        (three.root / INDEX).write_bytes(damaged)
        assert three.run().out == first
        assert (three.root / INDEX).read_bytes() == stored
    (three.root / INDEX).unlink()
    assert three.run().out == first


def test_what_a_killed_command_left_half_written_is_removed(three, settled):
    folder = three.folder / "unet/a"
    for path in (three.folder / "..runs-index.01234567.tmp", folder / "..labels.json.01234567.tmp"):
        path.touch()
    three.run(folder, "--tag", "x")
    three.run()
    assert not list(three.folder.rglob("*.tmp"))


def test_only_runs_whose_folder_has_changed_are_read_again(three, settled):
    first = three.run().out
    status = three.folder / "unet/a/status.json"
    status.write_text(status.read_text().replace("finished", "failed"))  # in place
    assert three.run().out == first
    os.replace(status, status.with_suffix(".new"))
    os.replace(status.with_suffix(".new"), status)
    assert "failed" in three.run().out


def put_below(run, name, text):
    """Replace a file in a folder of a run, and leave the run's own folder as it is."""
    path = run / name
    (path.parent / "new").write_text(text)
    os.replace(path.parent / "new", path)


def test_a_change_in_a_folder_of_a_run_is_noticed(runs, settled):
    folder = runs.add("script/a", module="train.py")
    for name in ("left/logs", "checkpoints"):
        (folder / name).mkdir(parents=True)
    put_below(folder, "left/logs/log.csv", "step,acc\n1,0.25\n")
    put_below(folder, "checkpoints/last.pt", "1" * 3_000_000)
    first = runs.run("--metric", "acc").out
    assert "2.9 MiB" in first and "0.25" in first
    (folder / "checkpoints/last.pt").unlink()
    put_below(folder, "left/logs/log.csv", "step,acc\n1,0.75\n")
    second = runs.run("--metric", "acc").out
    assert "MiB" not in second and "0.75" in second


def test_metrics_that_are_written_again_in_place_are_noticed(runs, settled):
    folder = runs.add("unet/a", 0.1)
    assert "0.1  unet/a" in runs.run().out
    (folder / "results.json").write_text('{"val": {"refined": {"abs_rel": 0.7}}}')
    assert "0.7  unet/a" in runs.run().out


def test_what_could_not_be_read_once_is_read_again(runs, settled):
    """A file on a disk that was away comes back without any change in the run's folder."""
    folder = runs.add("unet/a", 0.25)
    disk = runs.root / "disk"
    disk.mkdir()
    (folder / "results.json").rename(disk / "results.json")
    (folder / "results.json").symlink_to(disk / "results.json")
    disk.rename(runs.root / "away")
    assert runs.listed("--state", "damaged") == ["unet/a"]
    (runs.root / "away").rename(disk)
    assert runs.listed("--where", "val.refined.abs_rel==0.25") == ["unet/a"]


def test_the_log_of_a_script_that_was_closed_once_is_read_again(three, other_user):
    folder = other_user.copy(three.add("script/a", module="train.py"), "runs")
    put_below(folder, "log.csv", "step,acc\n1,0.25\n")
    other_user.own(folder)
    code = """
import sys
from zoerefine.cli import main
from zoerefine.lab.listing import index as run_index
run_index.FRESH_S = -60.0  # as if some seconds had passed
sys.exit(main(["runs", sys.argv[1], "--metric", "acc"]))
"""
    (folder / "log.csv").chmod(0)
    words = [sys.executable, "-c", code, folder.parent]
    assert "0.25" not in other_user.run(words).stdout
    (folder / "log.csv").chmod(0o644)
    assert "0.25" in other_user.run(words).stdout


def test_the_list_with_an_index_is_the_list_without_one(runs, settled):
    draw = random.Random(5)
    for number in range(12):
        runs.add(f"n{number % 3}/{number:02d}", draw.random(), started=1.7e9 + number)
    for turn in range(12):
        folder = draw.choice(sorted(runs.folder.glob("n*/*/config.yaml"))).parent
        change = draw.choice(["tag", "archive", "state", "remove", "rename", "add"])
        if change in ("tag", "archive"):
            runs.run(
                folder, "--tag" if change == "tag" else "--archive", *["t"] * (change == "tag")
            )
        elif change == "state":
            (folder / "new").write_text('{"state": "failed", "reason": "no memory"}')
            (folder / "new").rename(folder / "status.json")
        elif change == "remove":
            (folder / "provenance.json").unlink()
            (folder / "config.yaml").unlink()
        elif change == "rename":
            folder.rename(folder.with_name(f"moved{turn}"))
        else:
            runs.add(f"n0/new{turn}", draw.random(), started=1.8e9 + turn)
        with_index = [runs.run().out, runs.run("--where", "TRAIN.LR>0").out]
        (runs.root / INDEX).unlink()
        assert [runs.run().out, runs.run("--where", "TRAIN.LR>0").out] == with_index, change


def test_a_run_that_was_just_written_is_not_taken_from_the_index(runs):
    """Two changes within a clock tick of the file system have the same time."""
    folder = runs.add("unet/a", 0.3)
    runs.run()
    assert runs.listed("--where", "val.refined.abs_rel==0.3") == ["unet/a"]
    results = folder / "results.json"
    results.write_text(results.read_text().replace("0.3", "0.4"))  # the folder has its old time
    assert runs.listed("--where", "val.refined.abs_rel==0.4") == ["unet/a"]
