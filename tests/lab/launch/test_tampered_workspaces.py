"""A workspace that a job tampered with never reaches another run, whatever git says about it."""

import marshal
import os
import py_compile
import shutil
import subprocess
import time
import zlib

import pytest

from tests.processes import git, run_new_python
from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.launch.git.address import parse_address
from zoerefine.lab.launch.git.mirror import fetch_commit
from zoerefine.lab.launch.workspace.left import collect
from zoerefine.lab.launch.workspace.record import left_files


def hide_by_index_bit(bit):
    def tamper(place):
        git(place, "update-index", f"--{bit}", "version.txt")
        (place / "version.txt").write_text("evil")

    return tamper


def hide_by_times(place):
    path = place / "version.txt"
    facts = path.stat()
    path.write_text("ONE")  # as long as before
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def change_index(place):
    (place / "version.txt").write_text("evil")
    git(place, "add", "version.txt")


def replace_repository(place):
    (place / "version.txt").write_text("evil")
    shutil.rmtree(place / ".git")
    git(place, "init", "-q")
    git(place, "add", "-A")


def lead_to_another_repository(place):
    shutil.move(place / ".git", place.parent / "moved")
    (place / ".git").write_text(f"gitdir: {place.parent / 'moved'}\n")


def plant_hook(place):
    (place / ".git" / "hooks").mkdir()
    (place / ".git" / "hooks" / "post-checkout").write_text("#!/bin/sh\n")


def hard_link(place):
    (place.parent / "shared").write_text("ONE")
    (place / "version.txt").unlink()
    os.link(place.parent / "shared", place / "version.txt")


def make_a_link(place):
    shutil.copy(place / "version.txt", place.parent / "elsewhere")
    (place / "version.txt").unlink()
    (place / "version.txt").symlink_to(place.parent / "elsewhere")


TAMPERINGS = {
    "assume-unchanged": hide_by_index_bit("assume-unchanged"),
    "skip-worktree": hide_by_index_bit("skip-worktree"),
    "sparse checkout": lambda place: git(place, "sparse-checkout", "set", "none"),
    "times set back": hide_by_times,
    "a changed index": change_index,
    "another head": lambda place: git(place, "commit", "--allow-empty", "-qm", "another"),
    "no repository": lambda place: shutil.rmtree(place / ".git"),
    "another repository": replace_repository,
    "a repository elsewhere": lead_to_another_repository,
    "a setting": lambda place: git(place, "config", "core.fsmonitor", "touch owned"),
    "a hook": plant_hook,
    "a branch": lambda place: git(place, "update-ref", "refs/heads/main", "HEAD"),
    "a hard link": hard_link,
    "a link": make_a_link,
    "a program": lambda place: (place / "version.txt").chmod(0o755),
    "an excluded file": lambda place: (
        (place / ".git" / "info").mkdir(exist_ok=True),
        (place / ".git" / "info" / "exclude").write_text("sitecustomize.py\n"),
        (place / "sitecustomize.py").write_text("evil"),
    ),
    "a module that shadows another": lambda place: (place / "json.pyc").write_bytes(b"x"),
}


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_a_tampered_workspace_never_reaches_another_run(enter, repository, tampering):
    first = enter(run="a")
    TAMPERINGS[tampering](first)
    enter.leave()
    second = enter(run="b")
    assert git(second, "rev-parse", "HEAD") == repository.first
    assert (second / "version.txt").read_bytes() == b"one"
    assert not (second / "version.txt").is_symlink()
    names = {path.name for path in second.iterdir()}
    assert names == {".git", "job.py", "version.txt"}
    assert os.listdir(second / ".git" / "info") == [] if (second / ".git/info").exists() else True
    settings = (second / ".git" / "config").read_text()
    assert "fsmonitor" not in settings
    assert not (second / ".git" / "hooks").exists()


def test_changes_that_git_does_not_see_are_collected_and_the_workspace_is_deleted(enter, tmp_path):
    place = enter(run="a")
    hide_by_index_bit("skip-worktree")(place)
    run = RunDir(tmp_path / "runs" / "job" / "a")
    run.create()
    collect(run, place)
    assert (run.left / "version.txt").read_text() == "evil"
    assert not place.exists()


def test_a_workspace_in_a_submodule_is_verified_too(enter, repository):
    inner = type(repository)(repository.folder.with_name("inner")).init()
    inner.commit("inner one")
    repository.git("submodule", "--quiet", "add", inner.folder, "libs/inner")
    commit = repository.commit("a submodule")
    first = enter(commit, "a")
    git(first / "libs/inner", "update-index", "--assume-unchanged", "version.txt")
    (first / "libs/inner/version.txt").write_text("evil")
    enter.leave()
    second = enter(commit, "b")
    assert (second / "libs/inner/version.txt").read_text() == "inner one"
    enter.leave()
    git(second / "libs/inner", "config", "core.fsmonitor", "touch owned")
    third = enter(commit, "c")
    assert "fsmonitor" not in (third / "libs/inner/.git/config").read_text()


def test_planted_bytecode_is_removed(enter, repository):
    (repository.folder / "helper.py").write_text("VALUE = 'the commit'\n")
    commit = repository.commit("helper")
    place = enter(commit, "a")
    made = place / py_compile.compile(str(place / "helper.py"))
    head = made.read_bytes()[:16]  # it names the source's time and size
    made.write_bytes(head + marshal.dumps(compile("VALUE = 'evil'", "helper.py", "exec")))
    enter.leave()
    again = enter(commit, "b")
    assert again == place
    done = run_new_python("import helper; print(helper.VALUE)", cwd=again)
    assert done.stdout.strip() == "the commit"


def test_committed_bytecode_stays(enter, repository):
    (repository.folder / "__pycache__").mkdir()
    (repository.folder / "__pycache__" / "x.pyc").write_bytes(b"committed")
    commit = repository.commit("bytecode")
    for run in "ab":
        place = enter(commit, run)
        assert (place / "__pycache__" / "x.pyc").read_bytes() == b"committed"
        enter.leave()
    (place / "__pycache__" / "x.pyc").write_bytes(b"tampered!")
    assert (enter(commit, "c") / "__pycache__" / "x.pyc").read_bytes() == b"committed"


def test_a_job_that_asks_git_for_the_state_leaves_the_workspace_usable(enter, repository):
    (repository.folder / "version.txt").write_text("uncommitted")
    places = set()
    for run in "abc":
        place = enter(repository.second, run, dirty=True)
        places.add(place)
        os.utime(place / "version.txt")
        git(place, "status")
        assert git(place, "status", "--porcelain") == "M  version.txt"
        assert not left_files(place).spoiled
        enter.leave()
    assert len(places) == 1


def test_only_files_whose_times_changed_are_read_again(enter, monkeypatch):
    from zoerefine.lab.launch.workspace import record

    enter(run="a")
    enter.leave()
    time.sleep(0.05)
    enter(run="b")  # what was made within the clock's last tick is read once more
    enter.leave()
    read = []
    digest = record.digest_content
    monkeypatch.setattr(
        record,
        "digest_content",
        lambda path: read.append(path.name) or digest(path),
    )
    place = enter(run="c")
    assert read == []
    enter.leave()
    os.utime(place / "job.py")
    assert enter(run="d") == place
    assert read == ["job.py"]


@pytest.mark.parametrize("damage", ["absent", "empty", "of another type", "of another commit"])
def test_a_workspace_without_a_valid_record_is_not_used(enter, home, damage):
    place = enter(run="a")
    (record,) = (home / "records").rglob("*.json")
    enter.leave()
    if damage == "absent":
        record.unlink()
    else:
        text = record.read_text()
        other = text.replace('"commit":"', '"commit":"0')
        record.write_text({"empty": "", "of another type": "[1]"}.get(damage, other))
    other = enter(run="b")
    assert other != place
    assert (other / "version.txt").read_text() == "one"


ATTRIBUTES = {
    "eol": ("*.txt text eol=crlf\n", b"a\nb\n", b"a\r\nb\r\n"),
    "mixed line endings": ("*.txt text eol=crlf\n", b"a\r\nb\n", b"a\r\nb\r\n"),
    "keyword": ("*.txt ident\n", b"$Id$\n", None),
    "encoding": (
        "*.txt working-tree-encoding=UTF-16LE\n",
        "ä\n".encode(),
        "ä\n".encode("utf-16le"),
    ),
    "a filter that is not there": ("*.txt filter=absent\n", b"a\n", b"a\n"),
}


@pytest.mark.parametrize("kind", ATTRIBUTES)
def test_files_that_git_converts_are_verified_as_well(enter, repository, kind):
    attributes, stored, expected = ATTRIBUTES[kind]
    blob = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"],
        **{"cwd": repository.folder, "input": stored, "capture_output": True, "check": True},
    ).stdout.decode()
    (repository.folder / ".gitattributes").write_text(attributes)
    repository.git("add", ".gitattributes")
    repository.git("update-index", "--cacheinfo", f"100644,{blob.strip()},version.txt")
    repository.git("commit", "-qm", "converted")
    commit = repository.git("rev-parse", "HEAD")
    place = enter(commit, "a")
    data = (place / "version.txt").read_bytes()
    assert data == expected if expected else data.startswith(b"$Id: ")
    enter.leave()
    assert enter(commit, "b") == place
    enter.leave()
    (place / "version.txt").write_bytes(data.replace(b"a", b"X") + b" ")
    assert (enter(commit, "c") / "version.txt").read_bytes() == data


@pytest.mark.parametrize("kind", ["blob", "tree", "commit"])
def test_an_object_with_another_content_is_found(enter, repository, home, kind):
    fetch_commit(parse_address(str(repository.folder)), repository.first, home)
    (mirror,) = (home / "mirrors").glob("*.git")
    read = ["git", "cat-file", "--batch"]
    names = {"blob": ":version.txt", "tree": "^{tree}", "commit": ""}
    first, second = (
        subprocess.run(
            read, cwd=mirror, input=f"{one}{names[kind]}\n".encode(), capture_output=True
        ).stdout.partition(b"\n")
        for one in (repository.first, repository.second)
    )
    one = first[0].split()[0].decode()
    content = second[2][:-1]
    forged = mirror / "objects" / one[:2] / one[2:]
    forged.chmod(0o644)
    forged.write_bytes(zlib.compress(b"%s %d\0" % (kind.encode(), len(content)) + content))
    with pytest.raises(UserError, match=r"damaged|hash mismatch"):
        enter(run="a")
    assert not list((home / "workspaces").glob("*/[0-9a-f]*.0"))
