"""zoerefine runs --remove: which runs stay, and the reason that is said."""

import json
import signal
import sys
import time

import pytest

from zoerefine.base.files.file_lock import lock
from zoerefine.lab.listing.index import find_rows
from zoerefine.lab.listing.protection import Protection
from zoerefine.lab.listing.removal import remove_run

ALL = ("--remove", "--older-than", "0")
DIGEST = "12" * 32


def why_it_stays(row, protection):
    """Remove a run of a list that was made before."""
    return remove_run(row, protection).reason


def tag(runs, folder):
    runs.run(folder, "--tag", "paper")


def export(runs, folder):
    (folder / "engine").mkdir()
    (folder / "engine" / "refiner.ts").touch()


def use_path(runs, folder):
    weights = {"path": f"{folder}/checkpoints/best.safetensors", "sha256": "00"}
    runs.add("later/x", started=time.time() + 9, started_from=weights)


def use_copy(runs, folder):
    (folder / "weights.sha256").write_text(f"{DIGEST}\n")
    runs.add("later/x", started=time.time() + 9, pretrained={"path": "/x", "sha256": DIGEST})


def use_in_a_config(runs, folder):
    """As a training does that packs its data, before it records its weights."""
    run = runs.folder / "later" / "x"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(f"TRAIN:\n  FROM: {folder}\n")


def use_in_study(runs, folder):
    study = runs.folder / "demo" / "study"
    runs.add("demo/study/trials/0000", 0.1)
    (study / "config.yaml").write_text(f"TRAIN:\n  FROM: {folder}/checkpoints/best.safetensors\n")


def use_files(runs, folder):
    """As `--input` of this run records its files."""
    user = runs.add("later/x", started=time.time() + 9)
    recorded = {f"{folder}/left": {"data/made.csv": "ab" * 32}}
    (user / "inputs.json").write_text(json.dumps(recorded))


def use_files_of_all(runs, folder):
    """As `--input` of a folder of runs in the repository records their files."""
    user = runs.add("later/x", started=time.time() + 9)
    recorded = {str(runs.root): {f"runs/unet/{folder.name}/results.json": "ab" * 32}}
    (user / "inputs.json").write_text(json.dumps(recorded))


NEEDED_ITSELF = [
    (tag, "it is tagged"),
    (export, "an engine bundle was exported from it"),
    (lambda _, folder: (folder / "study.db").touch(), "it belongs to a study"),
    (lambda _, folder: (folder / "weights.sha256").write_bytes(b"\xff"),
     "weights.sha256 is damaged"),
]  # fmt: skip
NEEDED_BY_OTHERS = [
    (use_path, "starts from its weights"),
    (use_copy, "starts from its weights"),
    (use_in_a_config, "starts from its weights"),
    (use_in_study, "starts from its weights"),
    (use_files, "has its files as --input"),
    (use_files_of_all, "has its files as --input"),
    (lambda _, folder: (folder.parent / "paper_best").symlink_to(folder.name),
     "paper_best leads to it"),
    (lambda _, folder: (folder / "status.json").write_text("{"), "it cannot be read"),
]  # fmt: skip


@pytest.mark.parametrize(("protect", "reason"), [*NEEDED_ITSELF, *NEEDED_BY_OTHERS])
def test_what_is_needed_stays_and_the_reason_is_said(runs, protect, reason):
    folder = runs.add("unet/a", 0.1)
    protect(runs, folder)
    assert reason in runs.run("runs/unet", *ALL).err
    output = runs.run("runs/unet", *ALL, "--yes")
    assert reason in output.err and not output.out
    assert (folder / "status.json").exists()


@pytest.mark.parametrize(("protect", "reason"), NEEDED_ITSELF)
def test_what_is_needed_since_the_runs_were_listed_stays(runs, protect, reason):
    folder = runs.add("unet/a", 0.1)
    runs.add("later/w")
    rows, _ = find_rows(["runs"])
    protection = Protection(["runs"], rows)
    protect(runs, folder)
    row = next(row for row in rows if row.path == str(folder))
    assert reason in why_it_stays(row, protection)
    assert (folder / "status.json").exists()


def test_weights_that_only_a_relative_path_in_a_config_names_are_found_from_here(runs):
    folder = runs.add("unet/a", 0.1)
    use_in_a_config(runs, folder.relative_to(runs.root))
    assert "starts from its weights" in runs.run("runs/unet", *ALL, "--yes").err


@pytest.mark.parametrize("text", ["{", "[]", '{"/data": ["a.csv"]}'])
def test_a_run_whose_inputs_cannot_be_read_is_named_since_it_may_use_others(runs, text):
    runs.add("unet/a", 0.1)
    (runs.add("user/x") / "inputs.json").write_text(text)
    assert "user/x: it cannot be read, so what it" in runs.run("runs/unet", *ALL, "--yes").err


@pytest.mark.parametrize("facts", ["{", '{"started_from": ["runs/unet/a"]}', "[]"])
def test_a_run_that_cannot_be_read_is_named_since_it_may_use_others(runs, facts):
    folder = runs.add("unet/a", 0.1)
    (runs.add("user/x") / "provenance.json").write_text(facts)
    output = runs.run("runs/unet", *ALL, "--yes")
    assert not folder.exists()
    assert ("user/x: it cannot be read, so what it" in output.err) == ("started" not in facts)


def test_a_run_whose_config_is_not_utf8_is_named_since_it_may_use_others(runs):
    runs.add("unet/a", 0.1)
    (runs.add("user/x", 0.2) / "config.yaml").write_bytes(b"TRAIN: {FROM: \x99}\n")
    output = runs.run("--remove", "--older-than", "0", "--name", "unet")
    assert "user/x: it cannot be read, so what it" in output.err
    assert "would remove" in output.out


def test_a_run_that_may_not_be_read_is_named_since_it_may_use_others(runs, other_user):
    runs.add("unet/a")
    folder = other_user.copy(runs.folder)
    closed = other_user.copy(runs.add("user/x"), "runs/unet/closed")
    closed.chmod(0)
    done = other_user.run([sys.executable, "-m", "zoerefine", "runs", folder, *ALL])
    closed.chmod(0o755)
    assert "closed: it cannot be read, so what it starts from is not known" in done.stderr
    assert "would remove" in done.stdout


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
    use_files(runs, folder)
    assert "its files" in runs.run("runs/unet", *ALL, "--yes").err
    (runs.folder / "later/x/inputs.json").unlink()
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
