"""Workspaces: exactly the commit's files, with submodules and LFS files, for one run at a time."""

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest

from tests.processes import run_zoerefine
from zoerefine.base.errors import UserError
from zoerefine.lab.launch.git.address import parse_address
from zoerefine.lab.launch.git.changes import Changes
from zoerefine.lab.launch.git.mirror import fetch_commit, mirrors_in_use
from zoerefine.lab.launch.housekeeping import clean, stored_folders
from zoerefine.lab.launch.workspace.workspace import workspace


def test_a_free_workspace_is_used_again_and_a_used_one_is_not(enter):
    first = enter(run="a")
    second = enter(run="b")
    assert first != second
    enter.leave()
    assert enter(run="c") == first


def test_files_that_a_job_changed_or_left_never_reach_another_run(enter):
    first = enter(run="a")
    (first / "version.txt").write_text("tampered")
    enter.leave()
    second = enter(run="b")
    assert second != first
    assert (second / "version.txt").read_text() == "one"
    (second / "left.txt").write_text("a checkpoint in the working directory")
    enter.leave()
    third = enter(run="c")
    assert not (third / "left.txt").exists()
    enter.leave()
    # The run that left the file gets it back.
    assert (enter(run="b") / "left.txt").exists()


def test_workspaces_that_a_kill_left_half_made_are_removed(enter, home):
    place = enter()
    enter.leave()
    shutil.rmtree(place)
    half = place.with_name(f".{place.name}.12345678.tmp")
    half.mkdir()
    (half / "job.py").write_text("half")
    assert enter() == place
    assert not half.exists()


def test_clean_keeps_what_is_in_use(enter, home, repository):
    used = enter(run="a")
    free = enter(run="b", commit=repository.second)
    enter.leave()
    used = enter(run="a")
    workspaces = [one for one in stored_folders(home) if one.kind == "workspace"]
    assert {(one.folder, one.in_use) for one in workspaces} == {(used, True), (free, False)}
    assert clean(home, older_than_days=1, keep=0) == []
    assert [one.folder for one in clean(home, older_than_days=0, keep=2)] == []
    removed = {one.folder for one in clean(home, older_than_days=0, keep=0)}
    assert removed == {free}
    assert (used / "job.py").exists()
    enter.leave()
    assert {one.kind for one in clean(home, older_than_days=0, keep=0)} == {"workspace", "mirror"}
    assert stored_folders(home) == []
    assert (enter() / "job.py").exists()


def test_clean_only_shows_what_it_would_remove_before_yes(enter, home, repository):
    free = enter(run="b", commit=repository.second)
    enter.leave()
    used = enter(run="a")
    command = ["run", "--clean", "--home", home]
    shown = run_zoerefine(home.parent, *command)
    assert free.name in shown.stdout and used.name not in shown.stdout
    assert "mirror" not in shown.stdout.replace(str(home), "")  # a workspace borrows from it
    assert "--yes removes 1 folder, of every repository" in shown.stderr
    assert free.exists()
    enter.leave()
    shown = run_zoerefine(home.parent, *command, "--keep", "1")
    assert used.name not in shown.stdout and free.exists()
    would = run_zoerefine(home.parent, *command).stdout
    removed = run_zoerefine(home.parent, *command, "--yes").stdout
    assert sorted(would.splitlines()[1:]) == sorted(removed.splitlines()[1:])
    assert stored_folders(home) == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--keep", "-1"], "--keep: must be at least 0"),
        (["--older-than", "-1"], "--older-than -1 is not a number of days"),
        (["--older-than", "nan"], "--older-than nan is not a number of days"),
    ],
)
def test_clean_removes_nothing_by_a_number_that_means_nothing(enter, home, words, line):
    place = enter(run="a")
    enter.leave()
    done = run_zoerefine(home.parent, "run", "--clean", "--home", home, *words, code=2)
    assert line in done.stderr
    assert place.exists()


def test_sixteen_workspaces_at_once_while_others_clean(repository, home, tmp_path):
    commits = [repository.first, repository.second, *(repository.commit(f"n{n}") for n in range(6))]
    versions = ["one", "two", *(f"n{n}" for n in range(6))]
    source = parse_address(str(repository.folder))

    def work(number):
        commit, version = commits[number % 8], versions[number % 8]
        for turn in range(2):
            run = tmp_path / f"{number}-{turn}"
            with ExitStack() as stack:
                stack.enter_context(mirrors_in_use(home))
                mirror, full = fetch_commit(source, commit, home)
                work = workspace(source, mirror, full, Changes(), home, run)
                place = stack.enter_context(work)
                assert (place.folder / "version.txt").read_text() == version
                (place.folder / "mine.txt").write_text(str(number))
                assert (place.folder / "job.py").exists()
                assert (place.folder / "mine.txt").read_text() == str(number)
                (place.folder / "mine.txt").unlink()
            if number % 4 == 0:
                clean(home, older_than_days=0, keep=0)
        return True

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))


def add_submodule(outer, inner, path="libs/inner", url=None):
    outer.git("submodule", "--quiet", "add", inner.folder, path)
    if url:
        outer.git("config", "-f", ".gitmodules", f"submodule.{path}.url", url)
        outer.git("add", ".gitmodules")
    outer.git("commit", "--quiet", "-m", "a submodule")
    return outer.git("rev-parse", "HEAD")


@pytest.fixture
def inner(repository):
    made = type(repository)(repository.folder.with_name("inner")).init()
    made.first = made.commit("inner one")
    return made


@pytest.mark.parametrize("url", [None, "../inner", "absolute"])
def test_submodules_are_checked_out_at_their_commits(enter, repository, inner, url):
    url = str(inner.folder) if url == "absolute" else url
    commit = add_submodule(repository, inner, url=url)
    inner.commit("inner two")
    for text in (repository.folder, f"file://{repository.folder}"):
        place = enter(commit, repo=text)
        assert (place / "libs" / "inner" / "version.txt").read_text() == "inner one"
        enter.leave()
        again = enter(commit, repo=text)
        assert again == place
        enter.leave()


def test_a_submodule_in_a_submodule(enter, repository, inner):
    deepest = type(repository)(repository.folder.with_name("deepest")).init()
    deepest.commit("deepest one")
    add_submodule(inner, deepest, path="deep")
    commit = add_submodule(repository, inner)
    place = enter(commit, repo=f"file://{repository.folder}")
    assert (place / "libs/inner/deep/version.txt").read_text() == "deepest one"


def test_a_commit_of_a_submodule_that_was_never_pushed_comes_from_the_working_tree(
    enter, repository, inner
):
    add_submodule(repository, inner)
    checkout = type(repository)(repository.folder / "libs" / "inner")
    checkout.commit("inner local")
    repository.git("commit", "--quiet", "-am", "moved")
    place = enter(repository.git("rev-parse", "HEAD"))
    assert (place / "libs/inner/version.txt").read_text() == "inner local"


@pytest.mark.parametrize(
    "url", ["ext::sh -c touch% owned", "--upload-pack=touch owned", "fd::7", "$(touch owned)"]
)
def test_hostile_submodule_urls_are_refused_before_git_sees_them(enter, repository, inner, url):
    commit = add_submodule(repository, inner, url=url)
    with pytest.raises(UserError, match=r"--repo|URL"):
        enter(commit, repo=f"file://{repository.folder}")
    assert not list(repository.folder.parent.rglob("owned"))


def test_a_submodule_whose_commit_is_gone_is_named(enter, repository, inner):
    commit = add_submodule(repository, inner)
    shutil.rmtree(inner.folder)
    with pytest.raises(UserError, match="inner"):
        enter(commit, repo=f"file://{repository.folder}")


def make_tree(repository, entries):
    lines = "".join(f"{mode} {kind} {name}\t{path}\n" for mode, kind, name, path in entries)
    tree = repository.git("mktree", "--missing", stdin=lines)
    return repository.git("commit-tree", tree, "-m", "hostile")


def test_trees_with_paths_outside_of_the_workspace_write_nothing_there(enter, repository, tmp_path):
    blob = repository.git("hash-object", "-w", "--stdin", stdin="owned")
    inside = repository.git("mktree", stdin=f"100644 blob {blob}\towned\n")
    target = repository.git("hash-object", "-w", "--stdin", stdin=str(tmp_path))
    hostile = [
        make_tree(repository, [("040000", "tree", inside, "..")]),
        make_tree(repository, [("040000", "tree", inside, ".git")]),
        make_tree(repository, [("120000", "blob", target, "a"), ("040000", "tree", inside, "a ")]),
    ]
    for number, commit in enumerate(hostile):
        repository.git("branch", f"hostile{number}", commit)
        with suppress(UserError):
            enter(commit)
    assert not (tmp_path / "owned").exists()
    assert not list((tmp_path / "home").rglob("workspaces/owned"))


def test_hooks_filters_and_settings_of_a_repository_run_no_program(enter, repository, owned):
    hooks = repository.folder / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / "post-checkout").symlink_to(owned.program)
    for key in ("core.fsmonitor", "filter.evil.smudge", "uploadpack.packObjectsHook"):
        repository.git("config", key, owned.program)
    (repository.folder / ".gitattributes").write_text("*.txt filter=evil\n")
    commit = repository.commit("three")
    owned.file.unlink(missing_ok=True)
    assert (enter(commit) / "version.txt").read_text() == "three"
    assert not owned.file.exists()


def test_a_shallow_clone_can_be_launched(enter, repository, tmp_path):
    shallow = tmp_path / "shallow"
    url = f"file://{repository.folder}"
    subprocess.run(["git", "clone", "-q", "--depth=1", url, shallow], check=True)
    assert (enter(repository.second, repo=shallow) / "version.txt").read_text() == "two"
    with pytest.raises(UserError, match="no commit"):
        enter(repository.first, repo=shallow)


@pytest.mark.skipif(shutil.which("git-lfs") is None, reason="git-lfs is not installed")
def test_lfs_files_are_fetched_with_their_contents(enter, repository, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    repository.git("lfs", "install", "--local")
    repository.git("lfs", "track", "*.bin")
    (repository.folder / "weights.bin").write_bytes(b"large" * 1000)
    commit = repository.commit("three")
    for text in (repository.folder, f"file://{repository.folder}"):
        assert (enter(commit, repo=text) / "weights.bin").read_bytes() == b"large" * 1000
    enter.leave()
    shutil.rmtree(repository.folder / ".git" / "lfs")
    assert enter(commit)  # what was fetched once is kept
    clean_home = tmp_path / "other"
    source = parse_address(str(repository.folder))
    mirror, _ = fetch_commit(source, commit, clean_home)
    with (
        pytest.raises(UserError, match="LFS"),
        workspace(source, mirror, commit, Changes(), clean_home, tmp_path / "x"),
    ):
        pass


def test_lfs_files_without_git_lfs_installed_are_an_error(enter, repository, monkeypatch, tmp_path):
    (repository.folder / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    commit = repository.commit("three")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UserError, match="git-lfs is not installed"):
        enter(commit)
