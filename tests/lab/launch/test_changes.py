"""Uncommitted changes: recorded completely, or refused with a reason."""

import os
import shutil

import pytest

from zoerefine.base.errors import UserError
from zoerefine.lab.launch.git import changes as changes_module
from zoerefine.lab.launch.git.address import parse_address
from zoerefine.lab.launch.git.changes import read_changes
from zoerefine.lab.launch.record.provenance import source_facts


@pytest.fixture
def changes_of(repository, tmp_path):
    """The changes since a commit: changes_of(commit, allow_dirty) -> changes."""
    source, no_config = parse_address(str(repository.folder)), tmp_path / "job.yaml"
    return lambda commit, allow=False: read_changes(source, commit, allow, no_config)


def test_every_kind_of_change_is_recorded_and_applied(enter, repository, changes_of):
    folder = repository.folder
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "gone.txt").write_text("gone")
    (folder / "old name.txt").write_text("the same text as before\n" * 9)
    repository.commit("three")
    (folder / "version.txt").write_text("staged")
    repository.git("add", "version.txt")
    (folder / "version.txt").write_text("staged, then changed\r\nno newline")
    (folder / "gone.txt").unlink()
    (folder / "old name.txt").rename(folder / "new name.txt")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("version.txt")
    (folder / "ünï cödé \t.bin").write_bytes(os.urandom(5000))
    (folder / "empty").touch()
    (folder / ".gitignore").write_text("ignored.txt\n")
    (folder / "ignored.txt").write_text("x")
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "sub" / "deep" / "new.txt").write_text("new")
    before = repository.git("status", "--porcelain")
    place = enter("HEAD", dirty=True)
    names = {p.relative_to(folder) for p in folder.rglob("*") if ".git" not in p.parts}
    names = {name for name in names if name.name != "ignored.txt" and not (folder / name).is_dir()}
    found = {p.relative_to(place) for p in place.rglob("*") if ".git" not in p.parts}
    assert {name for name in found if not (place / name).is_dir()} == names
    for name in names:
        ours, theirs = folder / name, place / name
        assert ours.read_bytes() == theirs.read_bytes(), name
        assert ours.is_symlink() == theirs.is_symlink()
        assert os.access(ours, os.X_OK) == os.access(theirs, os.X_OK), name
    assert repository.git("status", "--porcelain") == before
    changes = changes_of(repository.git("rev-parse", "HEAD"), True)
    assert {"version.txt", "gone.txt", "link", ".gitignore"} <= set(changes.files)


def test_the_patch_does_not_depend_on_the_users_display_settings(enter, repository):
    for key, value in {
        "diff.noprefix": "true",
        "diff.mnemonicPrefix": "true",
        "color.ui": "always",
        "diff.external": "false",
        "core.quotePath": "false",
        "diff.renames": "copies",
    }.items():
        repository.git("config", key, value)
    (repository.folder / "version.txt").write_text("changed")
    place = enter("HEAD", dirty=True)
    assert (place / "version.txt").read_text() == "changed"


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_changed_files_that_git_was_told_to_hide_are_changes(enter, repository, changes_of, flag):
    repository.git("update-index", flag, "version.txt")
    assert not changes_of(repository.second).files
    (repository.folder / "version.txt").write_text("changed")
    assert repository.git("status", "--porcelain") == ""
    with pytest.raises(UserError, match=r"has uncommitted changes: version\.txt;"):
        changes_of(repository.second)
    assert (enter("HEAD", dirty=True) / "version.txt").read_text() == "changed"
    assert repository.git("ls-files", "-v", "version.txt")[0] in "hS"


def test_files_that_a_sparse_checkout_leaves_out_are_no_changes(enter, repository, changes_of):
    repository.git("update-index", "--refresh")
    repository.git("sparse-checkout", "set", "--no-cone", "/job.py")
    left_out = repository.folder / "version.txt"
    assert not left_out.exists()
    assert not changes_of(repository.second).files
    (repository.folder / "job.py").write_text("pass")
    assert (enter("HEAD", dirty=True) / "version.txt").read_text() == "two"
    left_out.write_text("changed")
    assert (enter("HEAD", dirty=True) / "version.txt").read_text() == "changed"


def test_a_filter_of_the_repository_that_is_not_run_is_named(repository, changes_of):
    repository.git("config", "filter.strip.clean", "sed s/output//")
    (repository.folder / "version.txt").write_text("output")
    with pytest.raises(UserError, match=r"version\.txt.*filter\.strip\.clean of its own"):
        changes_of(repository.second)


def test_equal_changes_have_one_digest_whatever_the_users_diff_settings(
    repository, changes_of, tmp_path
):
    folder = repository.folder
    lines = [f"line {number}\n\n" for number in range(40)]
    (folder / "a.txt").write_text("".join(lines))
    (folder / "ü.txt").write_text("".join(lines))
    commit = repository.commit("three")
    for name in ("a.txt", "ü.txt"):
        moved = [*lines[20:30], *lines[:20], "new\n", *lines[30:]]
        (folder / name).write_text("".join(moved))
    (tmp_path / "order").write_text("ü.txt\na.txt\n")
    expected = changes_of(commit, True).digest
    for key, value in {
        "diff.context": "0",
        "diff.interHunkContext": "9",
        "diff.algorithm": "patience",
        "diff.indentHeuristic": "false",
        "diff.suppressBlankEmpty": "true",
        "diff.orderFile": str(tmp_path / "order"),
        "diff.noprefix": "true",
        "diff.renames": "copies",
        "core.abbrev": "40",
        "core.quotePath": "false",
    }.items():
        repository.git("config", key, value)
        assert changes_of(commit, True).digest == expected, key


def test_the_users_index_and_objects_are_only_read(enter, repository):
    (repository.folder / "version.txt").write_text("changed")
    objects = repository.folder / ".git" / "objects"
    before = sorted(objects.rglob("*"))
    index = (repository.folder / ".git" / "index").read_bytes()
    enter("HEAD", dirty=True)
    assert sorted(objects.rglob("*")) == before
    assert (repository.folder / ".git" / "index").read_bytes() == index


def test_large_uncommitted_files_are_refused_by_name(enter, repository, monkeypatch):
    monkeypatch.setattr(changes_module, "MAX_BYTES", 10_000)
    (repository.folder / "weights.bin").write_bytes(bytes(20_000))
    with pytest.raises(UserError, match=r"the largest is weights\.bin"):
        enter("HEAD", dirty=True)


def test_a_secret_in_the_changes_is_refused(enter, repository, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "k-4711-secret")
    (repository.folder / ".env").write_text("KEY=k-4711-secret\n")
    with pytest.raises(UserError, match="secret of MY_API_KEY"):
        enter("HEAD", dirty=True)


def test_the_launched_config_does_not_count_as_a_change(repository, launch, only_run):
    config = repository.folder / "mine.yaml"
    config.write_text("KEY: mine\n")
    launch("--config", config, commit="HEAD")
    assert (only_run("mine").path / "input.yaml").read_text() == "KEY: mine\n"


def test_untracked_files_and_those_of_an_installed_package_are_its_code(repository):
    package = repository.folder / "zoerefine"
    package.mkdir()
    (package / "loss.py").write_text("1")
    first = source_facts(repository.folder)
    assert first["commit"] and first["dirty_files"] == ["zoerefine/loss.py"]
    (package / "loss.py").write_text("2")
    assert source_facts(repository.folder)["dirty_digest"] != first["dirty_digest"]
    (repository.folder / "zoerefine/loss.py").unlink()
    shutil.rmtree(repository.folder / ".git")
    installed = source_facts(repository.folder)
    assert installed["commit"] == ""
    (package / "loss.py").write_text("2")
    assert source_facts(repository.folder)["dirty_digest"] != installed["dirty_digest"]
