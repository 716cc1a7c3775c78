"""zoerefine runs --remove: which runs stay, and the reason that is said."""

import signal
import time

import pytest

from zoerefine.listing import removal, run_users
from zoerefine.listing.protection import Protection
from zoerefine.listing.removal import remove_runs
from zoerefine.listing.run_index import find_rows
from zoerefine.locks import lock

ALL = ("--remove", "--older-than", "0")
DIGEST = "12" * 32


def why_it_stays(row, protection):
    """Remove a run of a list that was made before."""
    [outcome] = remove_runs([row], protection)
    return outcome.reason


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
    assert runs.ids() == ["a", "x"]  # x ends in the future
    (runs.folder / "later/x/provenance.json").write_text("{}")
    runs.run("runs/unet", *ALL, "--yes")
    assert runs.ids() == ["x"]


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


@pytest.mark.parametrize("name", [".lock", ".labels.lock"])
def test_a_run_whose_lock_is_held_stays_whatever_its_state_says(runs, name):
    folder = runs.add("unet/a", 0.1)
    with lock(folder / name):
        assert "a process is using it" in runs.run(*ALL, "--yes").err
    assert runs.ids() == ["a"]


def test_our_link_to_the_latest_run_does_not_protect_it(runs):
    folder = runs.add("unet/a", 0.1)
    (folder.parent / "latest").symlink_to("a")
    runs.run(*ALL, "--yes")
    assert not runs.ids()


def test_a_removal_looks_for_users_once_for_many_runs(runs, monkeypatch):
    looks = []
    find = run_users.run_paths
    monkeypatch.setattr(run_users, "run_paths", lambda *words: looks.append(words) or find(*words))
    monkeypatch.setattr(removal, "BATCH", 10)
    for number in range(30):
        runs.add(f"unet/{number}", 0.1)
    runs.run(*ALL, "--yes")
    assert not runs.ids() and len(looks) == 1 + 3


def test_the_folder_of_another_node_is_a_part_of_its_run(runs):
    folder = runs.add("unet/a", 0.1)
    tag(runs, folder)
    runs.add("unet/a/node-1")
    runs.add("unet/killed/node-1")  # before its first node had recorded anything
    assert runs.listed() == runs.listed("runs/unet") == runs.listed("runs/*/*") == ["unet/a"]
    assert "no run" in runs.run("runs/*/*/node-1", *ALL, "--yes", code=2).err
    assert (folder / "node-1/status.json").exists()


def test_of_two_removals_the_one_without_the_run_leaves_the_labels_to_the_other(runs):
    folder = runs.add("unet/a", 0.1)
    with lock(folder / ".lock"):
        runs.run(*ALL, "--yes")
        assert not (folder / ".labels.lock").exists()
