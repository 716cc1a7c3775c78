"""Reproduce: the same comes out the same, and whatever was changed meanwhile is named."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from zoerefine.launch.show import show_run
from zoerefine.run_dir import RunDir

SCRIPT = Path(__file__).resolve().parents[2] / "platform" / "reproduce.py"
CHECKOUT = SCRIPT.parents[1]


@pytest.fixture
def reproduce(tmp_path, home):
    def run(path, *words):
        command = [sys.executable, SCRIPT, path, *words]
        done = subprocess.run(
            list(map(str, command)), cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.fixture
def finished(launch, only_run):
    assert launch("KEY", "other").returncode == 0
    return only_run()


def edit(path, change):
    known = json.loads(path.read_text())
    change(known)
    path.write_text(json.dumps(known))


def test_the_same_comes_out_the_same(finished, reproduce):
    code, said = reproduce(finished.path)
    assert (code, "REPRODUCED: 1 values are exactly the same" in said) == (0, True), said
    again = finished.path.with_name(f"{finished.path.name}-again1")
    assert RunDir(again).status().state == "finished"
    code, said = reproduce(finished.path)
    assert (code, "nothing to do" in said) == (0, True)
    code, said = reproduce(finished.path, "--fresh")
    assert (code, "-again2" in said) == (0, True)


def test_what_comes_out_otherwise_is_not_reproduced(launch, only_run, config, reproduce):
    config.write_text("random: 1\n")
    launch()
    code, said = reproduce(only_run().path)
    assert (code, "NOT REPRODUCED: 1 of 1" in said) == (1, True), said


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda run: (run.path / "input.yaml").write_text("KEY: tampered\n"), "input.yaml"),
        (lambda run: run.results_file.write_text('{"loss": 0.0}'), "results.json"),
        (lambda run: run.results_file.unlink(), "results.json"),
        (lambda run: (run.path / "input.yaml").unlink(), "input.yaml"),
        (
            lambda run: edit(run.provenance_file, lambda k: k.update(overrides=["KEY", "mine"])),
            "provenance.json",
        ),
        (lambda run: edit(run.provenance_file, lambda k: k.update(module="x.py")), "provenance"),
        (
            lambda run: edit(run.provenance_file, lambda k: k.update(tree="0" * 40)),
            "the commit's tree",
        ),
    ],
)
def test_tampering_is_caught_and_named_before_anything_runs(finished, reproduce, spoil, named):
    spoil(finished)
    code, said = reproduce(finished.path)
    assert code in (1, 2)
    assert named in said
    assert not finished.path.with_name(f"{finished.path.name}-again1").exists()


def test_another_commit_in_the_record_is_caught(finished, reproduce, repository):
    edit(finished.provenance_file, lambda known: known.update(commit=repository.second))
    code, said = reproduce(finished.path)
    assert (code, "NOT REPRODUCIBLE" in said, "provenance.json" in said) == (1, True, True), said


def test_rewritten_history_is_named(finished, reproduce, repository, home):
    repository.git("checkout", "-q", "--orphan", "new")
    repository.commit("rewritten")
    repository.git("branch", "-D", "main")
    repository.git("branch", "-M", "main")
    repository.git("reflog", "expire", "--expire=now", "--all")
    repository.git("gc", "-q", "--prune=now")
    code, said = reproduce(finished.path)
    assert code == 0  # our mirror still has the commit
    assert "history was rewritten" in " ".join(said.split())
    shutil.rmtree(home)
    code, said = reproduce(finished.path, "--fresh")
    assert (code, "no commit" in said) == (2, True), said


def test_a_moved_repository_can_be_given(finished, reproduce, repository):
    moved = repository.folder.with_name("moved")
    repository.folder.rename(moved)
    assert reproduce(finished.path)[0] == 2
    assert reproduce(finished.path, "--repo", moved)[0] == 0


def test_uncommitted_changes_are_part_of_the_record(launch, repository, only_run, reproduce):
    (repository.folder / "version.txt").write_text("changed")
    launch("--allow-dirty", commit="HEAD")
    run = only_run()
    (repository.folder / "version.txt").write_text("changed once more")
    code, said = reproduce(run.path)
    assert (code, "version changed\n" in said) == (0, True), said
    (run.path / "uncommitted.patch").write_bytes(b"tampered")
    code, said = reproduce(run.path)
    assert (code, "uncommitted.patch" in said) == (1, True)


def test_other_versions_are_named_and_get_a_tolerance(finished, reproduce):
    listing = finished.path / "environment.txt"
    listing.write_text(listing.read_text().replace("numpy==", "numpy==0."))
    edit(finished.provenance_file, lambda known: known.update(environment_digest="0"))
    code, said = reproduce(finished.path)
    assert code == 0
    assert "package numpy" in said
    assert "within 0.02" in said


def test_a_training_gives_the_same_bits_and_changed_data_are_caught(
    tiny, world, tmp_path, home, reproduce, monkeypatch
):
    data = tmp_path / "data"
    shutil.copytree(world, data)
    words = ["--repo", CHECKOUT, "--commit", "HEAD", "--allow-dirty", "--config", tiny]
    launched = subprocess.run(
        [sys.executable, SCRIPT.with_name("run_from_commit.py"), *words, "DATA.ROOT", "data"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert launched.returncode == 0, launched.stderr
    run = RunDir(Path(launched.stdout.splitlines()[-1]))
    monkeypatch.chdir("/")  # DATA.ROOT means the folder of the first launch all the same
    code, said = reproduce(run.path)
    assert (code, "exactly the same" in said) == (0, True), said
    known = run.read_json(run.provenance_file)
    weights = run.weights_digest_file.read_text().strip()
    page = show_run(run)
    for shown in (known["commit"], "finished", weights[:12], "zoerefine", "DATA.ROOT data"):
        assert shown in page
    picture = next((data / "zoe_depth_raw").rglob("*.png"))
    other = sorted((data / "zoe_depth_raw").rglob("*.png"))[-1]
    shutil.copyfile(other, picture)
    code, said = reproduce(run.path)
    assert (code, "NOT REPRODUCIBLE: dataset_digest" in said) == (1, True), said
