"""zoerefine runs --remove: which runs go, which stay, and what a kill leaves."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from zoerefine.listing import removal, run_index, run_users
from zoerefine.listing.protection import Protection
from zoerefine.listing.removal import remove_runs
from zoerefine.listing.run_index import find_rows
from zoerefine.locks import lock

KILLS = int(os.environ.get("ZOEREFINE_TEST_KILLS") or "3")
ALL = ("--remove", "--older-than", "0")
DIGEST = "12" * 32


def start(root, *words):
    """The command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "zoerefine", "runs", *words], cwd=root, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def ids(runs):
    return sorted(path.parent.name for path in runs.folder.glob("*/*/status.json"))


def why_it_stays(row, protection):
    """Remove a run of a list that was made before."""
    [outcome] = remove_runs([row], protection)
    return outcome.reason


def add_large(runs, name, files=2000):
    """A run that takes a while to delete."""
    folder = runs.add(name, 0.1)
    (folder / "tb").mkdir()
    for number in range(files):
        (folder / "tb" / str(number)).touch()
    return folder


def test_without_yes_nothing_is_removed_and_everything_is_named(runs):
    runs.add("unet/a", 0.1)
    runs.add("unet/b", 0.2)
    before = sorted(runs.folder.rglob("*"))
    output = runs.run("--remove", "--keep-best", 1)
    assert output.out == f"would remove {runs.folder}/unet/b\n"
    assert "--yes removes 1 of 2 runs" in output.err
    assert [path for path in sorted(runs.folder.rglob("*")) if path.name[0] != "."] == before


def test_the_size_that_a_removal_reports_is_measured_then(runs, monkeypatch):
    monkeypatch.setattr(run_index, "FRESH_S", -60.0)  # as if some seconds had passed
    folder = runs.add("unet/a", 0.1)
    (folder / "log.txt").touch()
    runs.run()
    (folder / "log.txt").write_bytes(b"1" * 3_000_000)  # in place
    for words in (ALL, (*ALL, "--yes")):
        assert "1 of 1 runs, 2.9 MiB" in runs.run(*words).err


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["--keep-best", 1], ["a1", "b1", "none"]),
        (["--keep-best", 1, "--maximize"], ["a3", "b2", "none"]),
        (["--keep-best", 2], ["a1", "a2", "b1", "b2", "none"]),
        (["--keep-best", 0], ["none"]),
        (["--keep-best", 1, "--older-than", 30], ["a1", "a2", "b1", "b2", "none"]),
        (["--older-than", 30], ["a1", "a2", "b2"]),
        (["--older-than", 1e6], ["a1", "a2", "a3", "b1", "b2", "none"]),
        (["--older-than", 30, "--name", "b"], ["a1", "a2", "a3", "b2"]),
        (["--keep-best", 1, "--metric", "val.pseudo.abs_rel", "--where", "TRAIN.LR>1"],
         ["a1", "a2", "a3", "b1", "b2", "none"]),
    ],
)  # fmt: skip
def test_the_rules_choose_among_the_selected_runs_of_each_name(runs, words, left):
    new = time.time() - 86400
    for name, value, started in (
        ("a/a1", 0.1, new), ("a/a2", 0.2, new), ("a/a3", 0.3, 1.7e9),
        ("b/b1", 0.5, 1.7e9), ("b/b2", 0.6, new), ("b/none", None, 1.7e9),
    ):  # fmt: skip
        runs.add(name, value, started=started)
    runs.run("--remove", *words, "--yes")
    assert ids(runs) == left
    assert not list(runs.folder.rglob(".trash"))


def tag(runs, folder):
    runs.run(folder, "--tag", "paper")


def damage(runs, folder):
    (folder / "status.json").write_text("{")


def export(runs, folder):
    (folder / "engine").mkdir()
    (folder / "engine" / "refiner.ts").touch()


def use_path(runs, folder):
    weights = {"path": f"{folder}/checkpoints/best.safetensors", "sha256": "00"}
    runs.add("later/x", started=time.time() + 9, started_from=weights)


def use_copy(runs, folder):
    (folder / "weights.sha256").write_text(f"{DIGEST}\n")
    runs.add("later/x", started=time.time() + 9, pretrained={"path": "/x", "sha256": DIGEST})


def use_in_words(runs, folder):
    words = ["--from", "runs/unet/latest/checkpoints/last.pt"]
    (folder.parent / "latest").symlink_to(folder.name)
    runs.add("later/x", started=time.time() + 9, arguments=words)


def use_in_a_config(runs, folder):
    """As a training does that packs its data, before it records its weights."""
    run = runs.folder / "later" / "x"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(f"TRAIN:\n  FROM: {folder}\n")


def use_in_study(runs, folder):
    study = runs.folder / "demo" / "study"
    runs.add("demo/study/trials/0000", 0.1)
    (study / "config.yaml").write_text(f"TRAIN:\n  FROM: {folder}/checkpoints/best.safetensors\n")


def link_from_outside(runs, folder):
    (folder.parent / "paper_best").symlink_to(folder.name)


def link_from_a_run(runs, folder):
    checkpoints = runs.add("later/x", started=time.time() + 9) / "checkpoints"
    checkpoints.mkdir()
    (checkpoints / "last.pt").symlink_to(folder / "status.json")


def be_a_study(runs, folder):
    (folder / "study.db").touch()


NEEDED = [
    (tag, "it is tagged"),
    (export, "an engine bundle was exported from it"),
    (use_path, "uses its files"),
    (use_copy, "uses its files"),
    (use_in_words, "uses its files"),
    (use_in_a_config, "uses its files"),
    (use_in_study, "uses its files"),
    (link_from_outside, "paper_best leads to it"),
    (link_from_a_run, "uses its files"),
    (be_a_study, "it belongs to a study"),
]


@pytest.mark.parametrize(("protect", "reason"), [*NEEDED, (damage, "it cannot be read")])
def test_what_is_needed_stays_and_the_reason_is_said(runs, protect, reason):
    folder = runs.add("unet/a", 0.1)
    protect(runs, folder)
    assert reason in runs.run("runs/unet", *ALL).err
    output = runs.run("runs/unet", *ALL, "--yes")
    assert reason in output.err and not output.out
    assert (folder / "status.json").exists()


@pytest.mark.parametrize(("protect", "reason"), NEEDED)
def test_what_is_needed_since_the_runs_were_listed_stays(runs, protect, reason):
    folder = runs.add("unet/a", 0.1)
    runs.add("later/w")
    rows, _ = find_rows(["runs"])
    protection = Protection(["runs"], rows)
    protect(runs, folder)
    row = next(row for row in rows if row.path == str(folder))
    assert reason in why_it_stays(row, protection)
    assert (folder / "status.json").exists()


def test_a_run_that_begins_again_with_the_files_of_another_protects_it(runs):
    folder = runs.add("unet/a", 0.1)
    runs.add("later/x")
    rows, _ = find_rows(["runs"])
    protection = Protection(["runs"], rows)
    use_path(runs, folder)
    row = next(row for row in rows if row.path == str(folder))
    assert "uses its files" in why_it_stays(row, protection)


def test_a_run_that_ran_again_since_the_runs_were_listed_stays(runs):
    runs.add("unet/a", 0.1, started=1.6e9)
    rows, _ = find_rows(["runs"])
    folder = runs.add("unet/a", 0.1)
    assert "it has run since" in why_it_stays(rows[0], Protection(["runs"], rows))
    assert (folder / "status.json").exists()


def test_a_run_is_removable_once_its_tag_or_its_user_is_gone(runs):
    folder = runs.add("unet/a", 0.1)
    use_path(runs, folder)
    tag(runs, folder)
    runs.run(folder, "--untag", "paper")
    runs.run("runs/later", "--remove", "--older-than", 0, "--yes")
    assert ids(runs) == ["a", "x"]  # x ends in the future
    (runs.folder / "later/x/provenance.json").write_text("{}")
    runs.run("runs/unet", *ALL, "--yes")
    assert ids(runs) == ["x"]


def test_trials_and_the_best_run_of_a_study_stay(runs):
    for name in ("trials/0000", "trials/0001", "best"):
        runs.add(f"demo/study/{name}", 0.1)
    runs.add("demo/study")
    output = runs.run(*ALL, "--yes")
    assert "and 2 more: it belongs to a study" in output.err
    assert len(runs.listed()) == 3


def test_a_running_run_stays_until_its_process_is_gone(runs, writer):
    folder = runs.add("unet/a", 0.1)
    process = writer(folder)
    for words in (ALL, (*ALL, "--yes")):
        assert "it is running" in runs.run(*words).err
    process.send_signal(signal.SIGKILL)
    process.wait()
    output = runs.run(*ALL, "--yes")
    assert not folder.exists(), output.err


def test_a_run_stays_while_another_node_of_its_job_writes(runs, writer):
    folder = runs.add("unet/a", 0.1, state="killed")
    writer(folder / "node-1")
    for words in (ALL, (*ALL, "--yes")):
        assert "another node of its job is running" in runs.run(*words).err
    assert (folder / "status.json").exists()


def test_the_folder_of_another_node_is_a_part_of_its_run(runs):
    folder = runs.add("unet/a", 0.1)
    tag(runs, folder)
    runs.add("unet/a/node-1")
    runs.add("unet/killed/node-1")  # before its first node had recorded anything
    assert runs.listed() == runs.listed("runs/unet") == runs.listed("runs/*/*") == ["unet/a"]
    assert "no run" in runs.run("runs/*/*/node-1", *ALL, "--yes", code=2).err
    assert (folder / "node-1/status.json").exists()


@pytest.mark.parametrize("name", [".lock", ".labels.lock"])
def test_a_run_whose_lock_is_held_stays_whatever_its_state_says(runs, name):
    folder = runs.add("unet/a", 0.1)
    with lock(folder / name):
        assert "a process is using it" in runs.run(*ALL, "--yes").err
    assert ids(runs) == ["a"]


def test_of_two_removals_the_one_without_the_run_leaves_the_labels_to_the_other(runs):
    folder = runs.add("unet/a", 0.1)
    with lock(folder / ".lock"):
        runs.run(*ALL, "--yes")
        assert not (folder / ".labels.lock").exists()


def test_our_link_to_the_latest_run_does_not_protect_it(runs):
    folder = runs.add("unet/a", 0.1)
    (folder.parent / "latest").symlink_to("a")
    runs.run(*ALL, "--yes")
    assert not ids(runs)


def test_a_removal_looks_for_users_once_for_many_runs(runs, monkeypatch):
    looks = []
    find = run_users.run_paths
    monkeypatch.setattr(run_users, "run_paths", lambda *words: looks.append(words) or find(*words))
    monkeypatch.setattr(removal, "BATCH", 10)
    for number in range(30):
        runs.add(f"unet/{number}", 0.1)
    runs.run(*ALL, "--yes")
    assert not ids(runs) and len(looks) == 1 + 3


def test_runs_that_cannot_be_changed_stop_no_others(runs, other_user):
    for name in ("a", "b", "c", "d"):
        runs.add(f"unet/{name}", 0.1)
    folder = other_user.copy(runs.folder)
    (folder / "unet/b/.lock").mkdir()
    (folder / "unet/b/.labels.lock").mkdir()
    (folder / "unet/c").chmod(0o555)
    command = [sys.executable, "-m", "zoerefine", "runs", folder]
    tagged = other_user.run([*command, "--tag", "x"])
    removed = other_user.run([*command, "--untag", "x"]), other_user.run([*command, *ALL, "--yes"])
    (folder / "unet/c").chmod(0o755)
    for done in (tagged, *removed):
        assert done.returncode == 1
        assert [line[-1] for line in done.stdout.splitlines()] == ["a", "d"], done.stderr
        for name in ("b", "c"):
            assert f"unet/{name}: it cannot be written to: " in done.stderr
    assert "removed 2 of 4 runs" in removed[1].stderr
    assert sorted(path.name for path in (folder / "unet").iterdir()) == ["b", "c"]


def test_nothing_outside_the_runs_folder_is_removed(runs):
    outside = runs.add("../elsewhere/a", 0.1).resolve()
    named = runs.add("../others/b", 0.1).resolve()
    inside = runs.add("unet/c", 0.1)
    (runs.folder / "unet/link").symlink_to(outside)
    (runs.folder / "all").symlink_to(named.parent)
    (runs.folder / "unet/c/tb").symlink_to(outside)
    for words in (["runs/unet/link"], ["runs/all"], ["runs/all/b"], ["runs/*/*"], ["runs"]):
        runs.run(*words, *ALL, "--yes")
        assert inside.exists() == (words[0] not in ("runs/*/*", "runs"))
        runs.add("unet/c", 0.1)
    assert (outside / "status.json").exists() and (named / "status.json").exists()


def test_a_name_with_brackets_is_the_folder_of_that_name_and_no_glob(runs):
    kept, old = runs.add("exp1/keepme", 0.1), runs.add("exp[1]/old", 0.1)
    runs.run("runs/exp[1]", "--tag", "x")
    assert runs.listed("--tagged", "x") == ["exp[1]/old"]
    runs.run("runs/exp[1]", "--untag", "x")
    runs.run("runs/exp[1]", *ALL, "--yes")
    assert kept.exists() and not old.exists()


def test_a_trash_that_is_a_link_is_not_followed(runs):
    outside = runs.add("../elsewhere/a", 0.1).resolve()
    kept = outside.rename(outside.with_name("a." + "0" * 32))
    runs.add("unet/a", 0.1)
    (runs.folder / "unet/.trash").symlink_to(kept.parent)
    assert ".trash is not a folder of zoerefine" in runs.run(*ALL, "--yes", code=1).err
    assert (kept / "status.json").exists() and ids(runs) == ["a"]


def test_what_others_put_into_the_trash_stays(runs):
    runs.add("unet/a", 0.1)
    (runs.folder / "unet/.trash/mine").mkdir(parents=True)
    runs.run(*ALL, "--yes")
    assert (runs.folder / "unet/.trash/mine").is_dir() and not ids(runs)


def test_the_link_to_the_latest_run_goes_with_it(runs):
    runs.add("unet/a", 0.1)
    runs.add("unet/b", 0.2)
    (runs.folder / "unet/latest").symlink_to("b")
    runs.run("--remove", "--keep-best", 1, "--yes")
    assert not os.path.lexists(runs.folder / "unet/latest")


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
    assert not ids(runs) and not (runs.folder / "unet/.trash").exists()


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--remove"], "needs a rule"),
        (["--remove", "--keep-best", "-1"], "must not be negative"),
        (["--remove", "--older-than", "nan"], "not a number of days"),
        (["--remove", "--older-than", "-1"], "not a number of days"),
        (["--keep-best", "1"], "belong to --remove"),
        (["--yes"], "belong to --remove"),
        (["--remove", "--older-than", "1", "--tag", "x"], "cannot be given with"),
        (["--remove", "--older-than", "1", "--limit", "1"], "--limit only shortens the list"),
        (["--state", "failed", "--limit", "1", "--archive"], "--limit only shortens the list"),
        (["--watch"], "needs a terminal"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(runs, words, fault):
    runs.add("unet/a", 0.1)
    assert fault in runs.run(*words, code=2).err
