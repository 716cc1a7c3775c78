"""What a job leaves in its workspace is collected into its run, and never lost."""

import hashlib
import json
import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from tests.processes import git
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.launch.housekeeping import clean
from zoerefine.lab.launch.record import provenance
from zoerefine.lab.launch.workspace import left as left_files
from zoerefine.lab.runs.metrics import read_metrics


@pytest.fixture
def ended(enter, repository, tmp_path):
    """A job that has ended: ended(name, commit) -> its run and its workspace, still held."""

    def make(name="a", commit=None):
        run = RunDir(tmp_path / "runs" / "job" / name)
        run.create()
        folder = enter(commit, f"runs/job/{name}")
        tree = commit or repository.first
        provenance.add(run, workspace=str(folder), tree=tree, host=socket.gethostname())
        return run, folder

    make.leave = enter.leave
    return make


def contents(folder):
    """Every file below a folder by its path: its bytes, or where a link leads."""
    return {
        path.relative_to(folder).as_posix(): os.readlink(path) if path.is_symlink()
        else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }  # fmt: skip


def listed(run):
    left = json.loads(run.left_file.read_text())
    return [one["path"] for one in left["files"]], [one["path"] for one in left["not_collected"]]


def test_new_ignored_and_changed_files_are_collected_with_their_digests(ended, repository):
    (repository.folder / ".gitignore").write_text("*.log\ncache/\n")
    run, folder = ended(commit=repository.commit("ignores"))
    (folder / "cache").mkdir()
    (folder / "cache" / "a b\nc.bin").write_bytes(b"1")
    (folder / "job.log").write_text("log")
    (folder / "out" / "deep").mkdir(parents=True)
    (folder / "out" / "deep" / "model.pt").write_bytes(b"weights")
    (folder / "out" / "empty").mkdir()
    (folder / "version.txt").write_text("changed by the job")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "job.pyc").write_bytes(b"bytecode")
    left_files.collect_after(run, folder)
    expected = {
        "cache/a b\nc.bin": b"1",
        "job.log": b"log",
        "out/deep/model.pt": b"weights",
        "version.txt": b"changed by the job",
    }
    assert contents(run.left) == expected
    left = json.loads(run.left_file.read_text())
    assert left["schema"] == 1
    assert left["not_collected"] == []
    assert [(one["path"], one["bytes"]) for one in left["files"]] == [
        (name, len(data)) for name, data in expected.items()
    ]
    digests = json.loads(run.provenance_file.read_text())["outputs"]
    assert digests == {f"left/{one['path']}": one["sha256"] for one in left["files"]}


def test_a_file_whose_name_is_not_utf8_is_collected_and_recorded(ended):
    run, folder = ended()
    for place in (folder, run.path):
        (Path(os.fsdecode(bytes(place) + b"/r\xe9sult.txt"))).write_text("1")
    left_files.collect_after(run, folder)
    assert contents(run.left) == {"r\udce9sult.txt": b"1"}
    digest = hashlib.sha256(b"1").hexdigest()
    outputs = {"r\\udce9sult.txt": digest, "left/r\\udce9sult.txt": digest}
    assert run.recorded()["outputs"] == outputs


def test_a_committed_log_that_the_job_wrote_is_its_own(ended, repository):
    """Written with the same bytes it counts, and what the commit has before is not the job's."""
    for name, text in (("metrics.json", '{"acc": 0.5}'), ("log.csv", "step,acc\n1,0.1\n9,0.9\n")):
        (repository.folder / name).write_text(text)
    run, folder = ended(commit=repository.commit("metrics"))
    (folder / "metrics.json").write_text('{"acc": 0.5}')
    (folder / "version.txt").touch()
    with open(folder / "log.csv", "a") as file:
        file.write("1,0.2\n2,0.3\n")
    left_files.collect(run, folder)
    assert listed(run) == (["log.csv", "metrics.json"], [])
    assert read_metrics(run).series["acc"].values == [0.2, 0.3]
    (run.left / "log.csv").unlink()
    assert read_metrics(run).final == {"acc": 0.5}


def test_after_a_collection_another_run_uses_the_workspace(ended):
    run, folder = ended("a")
    (folder / "out").mkdir()
    (folder / "out" / "model.pt").write_bytes(b"weights")
    os.mkfifo(folder / "out" / "pipe")
    left_files.collect_after(run, folder)
    ended.leave()
    _, again = ended("b")
    assert again == folder
    assert not (folder / "out").exists()


def test_links_are_kept_and_never_followed(ended, tmp_path):
    run, folder = ended()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "precious").write_text("data")
    (folder / "out").mkdir()
    (folder / "out" / "step-1").write_text("1")
    (folder / "out" / "latest").symlink_to("step-1")
    (folder / "data").symlink_to(tmp_path / "data")
    (folder / "broken").symlink_to("/absent")
    left_files.collect_after(run, folder)
    assert contents(run.left) == {
        "out/step-1": b"1",
        "out/latest": "step-1",
        "data": str(tmp_path / "data"),
        "broken": "/absent",
    }
    assert (tmp_path / "data" / "precious").read_text() == "data"
    left_files.put_back(run, folder)
    assert os.readlink(folder / "out" / "latest") == "step-1"
    assert (tmp_path / "data" / "precious").read_text() == "data"


def test_nothing_is_written_through_a_link_that_leads_elsewhere(ended, tmp_path):
    run, folder = ended()
    outside = tmp_path / "outside"
    outside.mkdir()
    run.left.mkdir()
    (run.left / "out").symlink_to(outside)
    (folder / "out").mkdir()
    (folder / "out" / "model.pt").write_text("weights")
    left_files.collect_after(run, folder)
    assert list(outside.iterdir()) == []
    assert (folder / "out" / "model.pt").read_text() == "weights"
    assert listed(run) == (["out"], ["out/model.pt"])


def test_what_a_job_committed_cloned_or_left_in_a_submodule_is_collected(ended, repository):
    inner = type(repository)(repository.folder.with_name("inner")).init()
    inner.commit("inner")
    repository.git("submodule", "--quiet", "add", inner.folder, "libs/inner")
    run, folder = ended(commit=repository.commit("with a submodule"))
    (folder / "results.txt").write_text("committed by the job")
    for words in (["add", "-A"], ["commit", "-qm", "results"], ["init", "-q", "cloned"]):
        git(folder, *words)
    (folder / "cloned" / "data.txt").write_text("data")
    (folder / "libs" / "inner" / "version.txt").write_text("changed")
    (folder / "libs" / "inner" / "new.txt").write_text("new")
    left_files.collect_after(run, folder)
    found = contents(run.left)
    assert {"results.txt", "cloned/data.txt", "cloned/.git/HEAD"} <= set(found)
    assert found["libs/inner/version.txt"] == b"changed"
    assert found["libs/inner/new.txt"] == b"new"
    assert "libs/inner/job.py" not in found
    assert "job.py" not in found
    assert not folder.exists()  # no other run could use it


def test_of_a_workspace_without_its_repository_only_new_files_are_collected(ended):
    run, folder = ended()
    shutil.rmtree(folder / ".git")
    (folder / "model.pt").write_bytes(b"weights")
    left_files.collect_after(run, folder)
    assert contents(run.left) == {"model.pt": b"weights"}
    assert not folder.exists()


def test_a_workspace_without_its_record_is_collected_whole(ended, home):
    run, folder = ended()
    shutil.rmtree(home / "records")
    (folder / "model.pt").write_bytes(b"weights")
    left_files.collect_after(run, folder)
    assert {"model.pt", "job.py", "version.txt"} <= set(contents(run.left))


def test_files_with_other_hard_links_are_not_shared(ended, tmp_path):
    run, folder = ended()
    (tmp_path / "shared").write_text("one")
    os.link(tmp_path / "shared", folder / "model.pt")
    left_files.collect_after(run, folder)
    (tmp_path / "shared").write_text("two")
    assert (run.left / "model.pt").read_text() == "one"


def test_what_exceeds_the_limit_is_named_and_stays_until_it_is_discarded(ended, home, capsys):
    run, folder = ended()
    for name, size in (("huge.pt", 3000), ("log.csv", 10), ("model.pt", 900), ("other.pt", 200)):
        (folder / name).write_bytes(bytes(size))
    left_files.collect(run, folder, limit_bytes=1000)
    assert listed(run) == (["log.csv", "other.pt"], ["huge.pt", "model.pt"])
    assert "huge.pt (0.0 MB), model.pt" in capsys.readouterr().err
    assert json.loads(run.left_file.read_text())["limit_bytes"] == 1000
    ended.leave()
    _, other = ended("b")
    assert other != folder
    ended.leave()
    assert folder not in {one.folder for one in clean(home, older_than_days=0, keep=0)}
    message = capsys.readouterr().err
    assert f"{folder} stays: it holds files of {run.path}" in message
    assert "huge.pt, model.pt" in message
    assert (folder / "huge.pt").exists()
    clean(home, older_than_days=0, keep=0, discard=True)
    assert not folder.exists()


def test_clean_collects_what_a_killed_launcher_did_not(ended, home):
    run, folder = ended()
    (folder / "model.pt").write_bytes(b"weights")
    ended.leave()
    clean(home, older_than_days=0, keep=0)
    assert not folder.exists()
    assert contents(run.left) == {"model.pt": b"weights"}


@pytest.mark.parametrize("gone", ["its run was deleted", "a later attempt ran elsewhere"])
def test_clean_keeps_files_that_it_must_not_collect(ended, home, gone):
    run, folder = ended()
    (folder / "model.pt").write_bytes(b"an old checkpoint")
    ended.leave()
    if gone == "its run was deleted":
        shutil.rmtree(run.path)
    else:
        run.left.mkdir()
        (run.left / "model.pt").write_bytes(b"a new checkpoint")
        provenance.add(run, host="another node")
    clean(home, older_than_days=0, keep=0)
    assert (folder / "model.pt").read_bytes() == b"an old checkpoint"
    if gone != "its run was deleted":
        assert contents(run.left) == {"model.pt": b"a new checkpoint"}


class Killed(BaseException):
    """Stands for kill -9: no handler of ours catches it."""


@pytest.fixture
def kill_at(monkeypatch):
    """Kill before the N-th change of the file system: kill_at(N); kill_at(0): never."""
    left = {"changes": 0, "limit": 0}
    real = {name: getattr(os, name) for name in ("rename", "replace", "unlink", "rmdir", "mkdir")}

    def counted(name):
        def change(*args, **options):
            left["changes"] += 1
            if left["changes"] == left["limit"]:
                raise Killed
            return real[name](*args, **options)

        return change

    for name in real:
        monkeypatch.setattr(os, name, counted(name))

    def arm(limit):
        left.update(changes=0, limit=limit)

    return arm


@pytest.mark.parametrize("another_file_system", [False, True])
def test_a_kill_at_any_moment_of_a_collection_loses_nothing(
    ended, kill_at, monkeypatch, tmp_path, another_file_system
):
    if another_file_system:
        refuse_renames_between_folders(monkeypatch)
    expected = {f"out/{n}/model.pt": f"{n}".encode() for n in range(4)} | {"version.txt": b"mine"}
    for limit in range(1, 200):
        run, folder = ended(f"run {limit}")
        for name, data in expected.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        kill_at(limit)
        try:
            left_files.collect_after(run, folder)
        except Killed:
            killed = True
        else:
            killed = False
        kill_at(0)
        ended.leave()
        left_files.complete_collection(run)
        assert contents(run.left) == expected, limit
        assert sorted(listed(run)[0]) == sorted(expected)
        # The run starts again: a kill while its files are put back loses nothing, either.
        _, folder = ended(f"run {limit}")
        kill_at(limit)
        with suppress(Killed):
            left_files.put_back(run, folder)
        kill_at(0)
        ended.leave()
        left_files.complete_collection(run)
        assert contents(run.left) == expected, limit
        if not killed:
            return
    raise AssertionError("a collection did not end")


def refuse_renames_between_folders(monkeypatch):
    """As where workspaces and runs are on different file systems."""
    rename = os.rename

    def within_a_file_system(source, target):
        if ("workspaces" in str(source)) != ("workspaces" in str(target)):
            raise OSError(18, "Invalid cross-device link")
        rename(source, target)

    monkeypatch.setattr(os, "rename", within_a_file_system)
