"""Reproduce: equal results are recognized, and whatever changed since the run is named."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.launch.conftest import launch_words
from tests.processes import run_zoerefine
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.launch.record import provenance


def run_reproduce(path, *words, home=None, code=0):
    env = {"ZOEREFINE_HOME": str(home)} if home else {}
    done = run_zoerefine(os.getcwd(), "reproduce", path, *words, env=env, code=code)
    return done.stdout + done.stderr


@pytest.fixture
def reproduce(tmp_path, home, monkeypatch):
    """Reproduce a run: reproduce(path, *words, code=0) -> output."""
    monkeypatch.chdir(tmp_path)
    return run_reproduce


@pytest.fixture
def finished(launch, only_run):
    """A finished run of the test's own repository."""
    launch("KEY", "other")
    return only_run()


@pytest.fixture(scope="module")
def original(template, tmp_path_factory):
    """A finished run for tests that change nothing but the run: its path, and its home."""
    folder = tmp_path_factory.mktemp("original")
    (folder / "job.yaml").write_text("KEY: value\n")
    words = launch_words(template, "job.yaml", "--home", folder / "home", "KEY", "other")
    done = run_zoerefine(folder, "run", *words)
    return Path(done.stdout.splitlines()[-1]), folder / "home"


@pytest.fixture
def copied(original, tmp_path):
    """A copy of that run for one test."""
    path, _ = original
    folder = tmp_path / "runs" / path.parent.name / path.name
    shutil.copytree(path, folder)
    return RunDir(folder)


@pytest.fixture
def reproduce_copy(original, copied):
    """Reproduce the copied run: reproduce_copy(*words, code=0) -> output."""
    return lambda *words, code=0: run_reproduce(copied.path, *words, home=original[1], code=code)


def edit(path, change):
    known = json.loads(path.read_text())
    change(known)
    path.write_text(json.dumps(known))


def test_an_unchanged_job_is_reproduced_exactly(copied, reproduce_copy):
    assert "REPRODUCED: 1 values are exactly the same" in reproduce_copy()
    again = copied.path.with_name(f"{copied.path.name}-again1")
    assert RunDir(again).status().state == "finished"
    assert "nothing to do" in reproduce_copy()
    assert "-again2" in reproduce_copy("--fresh")


def test_check_runs_nothing(copied, reproduce_copy):
    said = reproduce_copy("--check")
    assert "can be reproduced" in said
    assert "machine, variables; the data that a script reads are not recorded)" in said
    assert list(copied.path.parent.iterdir()) == [copied.path]


def test_of_a_run_that_has_failed_the_last_line_says_so(copied, reproduce_copy):
    copied.set_status("failed", "exit code 3")
    for words in (["--check"], []):
        last = reproduce_copy(*words).rstrip().splitlines()
        assert any(line.endswith("; the recorded run itself is failed (exit code 3)")
                   for line in last), last  # fmt: skip


def test_a_run_without_a_launcher_cannot_be_reproduced(tmp_path, reproduce):
    run = RunDir(tmp_path / "run")
    provenance.add(run, commit="1" * 40)
    said = reproduce(run.path, code=2)
    assert "was not started by `zoerefine run`, so it cannot be reproduced" in said
    run.config_file.write_text("RUN: {NAME: mine}\n")  # as a trial of our own training has
    said = reproduce(run.path, code=2)
    how = f"zoerefine run --repo . --commit {'1' * 40} --config {run.config_file}"
    assert f"train its config at its commit: {how}" in said


def test_different_results_are_not_reproduced(launch, only_run, config, reproduce):
    config.write_text("random: 1\n")
    launch()
    assert "NOT REPRODUCED: 1 of 1" in reproduce(only_run().path, code=1)


@pytest.mark.parametrize(
    ("change", "named"),
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
def test_a_changed_run_directory_is_named_before_anything_runs(
    copied, reproduce_copy, change, named
):
    change(copied)
    assert named in reproduce_copy(code=2)
    assert not copied.path.with_name(f"{copied.path.name}-again1").exists()


def test_another_commit_in_the_record_is_named(copied, reproduce_copy, template):
    edit(copied.provenance_file, lambda known: known.update(commit=template.second))
    said = reproduce_copy(code=2)
    assert "NOT REPRODUCIBLE" in said and "provenance.json" in said


def test_a_commit_that_no_branch_contains_any_more_is_named(finished, reproduce, repository, home):
    repository.git("checkout", "-q", "--orphan", "new")
    repository.commit("rewritten")
    repository.git("branch", "-D", "main")
    repository.git("branch", "-M", "main")
    repository.git("reflog", "expire", "--expire=now", "--all")
    repository.git("gc", "-q", "--prune=now")
    said = reproduce(finished.path)  # the mirror still has the commit
    assert "history was rewritten" in " ".join(said.split())
    shutil.rmtree(home)
    assert "no commit" in reproduce(finished.path, "--fresh", code=2)


def test_repo_names_the_new_place_of_a_repository(finished, reproduce, repository):
    moved = repository.folder.with_name("moved")
    repository.folder.rename(moved)
    said = " ".join(reproduce(finished.path, code=2).split())
    assert f"the repository is no longer at {repository.folder}: give --repo with its" in said
    reproduce(finished.path, "--repo", moved)


def test_recorded_uncommitted_changes_are_applied_again(launch, repository, only_run, reproduce):
    (repository.folder / "version.txt").write_text("changed")
    launch("--allow-dirty", commit="HEAD")
    run = only_run()
    (repository.folder / "version.txt").write_text("changed once more")
    assert "version changed\n" in reproduce(run.path)
    (run.path / "uncommitted.patch").write_bytes(b"tampered")
    assert "uncommitted.patch" in reproduce(run.path, code=2)


def test_other_package_versions_are_named_and_metrics_get_a_tolerance(copied, reproduce_copy):
    listing = copied.path / "environment.txt"
    listing.write_text(listing.read_text().replace("numpy==", "numpy==0."))
    edit(copied.provenance_file, lambda known: known.update(environment_digest="0"))
    said = reproduce_copy()
    assert "package numpy" in said
    assert "within 0.02" in said


def test_a_stopped_repetition_has_no_verdict(launch, config, only_run, tmp_path, wait_until):
    gate = tmp_path / "gate"
    gate.touch()
    config.write_text(f"steps: 1\ngate: {gate}\n")
    launch()
    path = only_run().path
    gate.unlink()
    words = [sys.executable, "-m", "zoerefine", "reproduce", path, "--home", tmp_path / "home"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    steps = path.with_name(f"{path.name}-again1") / "steps.txt"
    wait_until(lambda: steps.exists() and steps.read_text(), process)
    process.send_signal(signal.SIGINT)
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "NOT REPRODUCED" not in shown and "stopped: nothing is known" in shown
