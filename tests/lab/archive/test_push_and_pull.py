"""zoerefine runs push and pull: a run goes to a folder or an object store, and comes back."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from tests.lab.archive.conftest import KEYS, SECRET, contents, make_run
from tests.processes import run_new_python
from zoerefine.cli import main
from zoerefine.depth.data.layouts import habitatdyn

MANIFEST = "demo/b77d9226/manifest.json"


def test_a_run_comes_back_with_the_same_bytes_times_and_permissions(place, run, command, tmp_path):
    (run / "left").mkdir()
    (run / "left" / os.fsdecode(b"a\xff [*?]\n%41#.txt")).write_text("odd name")
    (run / "left" / "tool.sh").write_text("#!/bin/sh\n")
    (run / "left" / "tool.sh").chmod(0o755)
    (run / "left" / "link").symlink_to("/etc/passwd")
    os.mkfifo(run / "left" / ".lock")
    os.utime(run / "config.yaml", ns=(1, 1_234_567_890_123_456_789))

    _, out, err = command("push", run, place.url)
    assert out == f"{place.url}/demo/b77d9226\n"
    assert "2 links or special files are not archived, such as left/.lock" in err
    assert " MB" in err  # its speed, or the time of one

    assert command("pull", "--runs", "back", out.strip()).out == "back/demo/b77d9226\n"
    back = tmp_path / "back" / "demo" / "b77d9226"
    assert contents(back) == contents(run)
    assert not os.path.lexists(back / "left" / "link")
    assert (back / "config.yaml").stat().st_mtime_ns == 1_234_567_890_123_456_789
    assert os.access(back / "left" / "tool.sh", os.X_OK)
    assert not os.access(back / "config.yaml", os.X_OK)
    assert [path.name for path in back.parent.iterdir()] == ["b77d9226"]


def test_what_is_there_is_not_sent_again(bucket, run, command, store):
    command("push", run, bucket.url)
    before = store.count("PUT")
    err = command("push", run, bucket.url).err
    assert store.count("PUT") == before
    assert "1.2 MB verified, 0.0 MB sent" in err


def test_a_run_that_changed_replaces_its_archive(place, run, command, tmp_path):
    command("push", run, place.url)
    old = hashlib.sha256((run / "checkpoints" / "0.pt").read_bytes()).hexdigest()
    (run / "checkpoints" / "0.pt").write_bytes(b"new")
    (run / "checkpoints" / "1.pt").unlink()
    err = command("push", run, place.url).err
    assert "lost 1 file that the run no longer has, such as checkpoints/1.pt" in err
    objects = {name.rpartition("/")[2] for name in place.names()} - {"manifest.json"}
    files = json.loads(place.read(MANIFEST))["files"]
    assert objects == {file["sha256"] for file in files} and old not in objects
    command("pull", "--runs", "back", f"{place.url}/demo/b77d9226")
    assert contents(tmp_path / "back" / "demo" / "b77d9226") == contents(run)


def test_the_same_job_of_another_machine_replaces_no_archive(folder, run, command):
    command("push", run, folder.url)
    before = {name: folder.read(name) for name in folder.names()}
    (run / "checkpoints" / "0.pt").write_bytes(b"trained with other data")
    for state in ("finished", "failed"):
        status = {"state": state, "started": 1.5, "ended": 2.5}
        (run / "status.json").write_text(json.dumps(status))
        _, out, err = command("push", run, folder.url, code=2)
        assert out == "" and "holds another run of this name" in err
    assert {name: folder.read(name) for name in folder.names()} == before


def test_of_several_runs_those_after_a_refused_one_are_copied(folder, run, command, tmp_path):
    others = [make_run(tmp_path / "runs/demo" / name) for name in ("0a", "zz")]
    command("push", run, folder.url)
    (run / "status.json").write_text('{"state": "finished", "started": 1.5, "ended": 2.5}')
    _, out, err = command("push", others[0], run, others[1], folder.url, code=1)
    urls = [f"{folder.url}/demo/{other.name}" for other in others]
    assert out.splitlines() == urls
    assert err.count(f"{folder.url}/demo/{run.name} holds another run of this name") == 1
    missing = f"{folder.url}/demo/none"
    _, out, err = command("pull", "--runs", "back", missing, *urls, code=1)
    assert len(out.splitlines()) == 2 and f"{missing} does not exist" in err
    assert command("pull", "--runs", "back", missing, f"{missing}2", code=2).out == ""


def test_a_link_to_a_run_and_a_study_with_its_trials_have_names_of_their_own(folder, run, command):
    (run.parent / "latest").symlink_to(run.name)
    (run / "study.db").touch()
    trial, best = make_run(run / "trials" / "3"), make_run(run / "best")
    out = command("push", run.parent / "latest", trial, best, folder.url).out
    names = ("b77d9226", "b77d9226/trials/3", "b77d9226/best")
    assert out.splitlines() == [f"{folder.url}/demo/{name}" for name in names]


def test_what_is_no_run_is_refused(folder, run, command):
    _, out, err = command("push", run.parent, folder.url, code=2)
    assert not out and "is not a run" in err
    assert folder.names() == []


def test_a_part_of_a_run_is_refused(folder, run, command):
    _, out, err = command("push", make_run(run / "node-1"), folder.url, code=2)
    assert not out and f"is a part of a run: give {run}" in err
    assert folder.names() == []


@pytest.mark.parametrize("writes", [".", "trials/3", "node-1"])
def test_a_run_that_is_running_is_refused(folder, run, command, writer, writes):
    if writes != ".":
        make_run(run / writes)
    process = writer(run / writes)
    _, out, err = command("push", run, folder.url, code=2)
    process.kill()
    process.communicate()
    assert not out and "is running" in err
    assert folder.names() == []
    command("push", run, folder.url)


def test_another_run_of_the_same_name_is_refused(folder, run, command, tmp_path):
    command("push", run, folder.url)
    before = contents(folder.path)
    other = make_run(tmp_path / "other" / "demo" / "b77d9226", commit="decade")
    assert "holds another run" in command("push", other, folder.url, code=2).err
    assert contents(folder.path) == before


def test_a_run_that_is_there_is_compared_and_never_overwritten(folder, run, command):
    command("push", run, folder.url)
    before = contents(run)
    _, out, err = command("pull", f"{folder.url}/demo/b77d9226")
    assert out == "runs/demo/b77d9226\n" and "is there already" in err
    (run / "config.yaml").write_text("changed")
    _, out, err = command("pull", f"{folder.url}/demo/b77d9226", code=2)
    assert not out and "config.yaml differs" in err
    assert contents(run) == before | {b"config.yaml": b"changed"}


def test_credentials_come_from_the_files_of_the_store(
    bucket, run, command, refused, monkeypatch, tmp_path
):
    for name in KEYS:
        monkeypatch.delenv(name)
    assert "credentials" in refused("push", run, bucket.url)
    (tmp_path / "home" / ".aws").mkdir()
    (tmp_path / "home" / ".aws" / "credentials").write_text(
        f"[default]\naws_access_key_id = any\naws_secret_access_key = {SECRET}\n"
    )
    command("push", run, bucket.url)


def test_no_secret_is_printed_or_written(bucket, run, command, tmp_path):
    printed = list(command("push", run, bucket.url))
    for words in (
        ("push", run, "s3://no-such-bucket/a"),
        ("push", run, f"s3://me:{SECRET}@{bucket.bucket}/archives"),
        ("pull", f"https://me:{SECRET}@127.0.0.1/archives"),
        ("pull", f"https://127.0.0.1/archives?signature={SECRET}"),
    ):
        printed += command(*words, code=2)
    written = [bucket.read(name) for name in bucket.names()] + list(contents(tmp_path).values())
    assert not any(SECRET in one for one in printed if isinstance(one, str))
    assert not any(SECRET.encode() in one for one in written)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("s3://bucket/a*", "must not hold"),
        ("simplecache::s3://bucket/a", "must not hold"),
        ("memory://a", "must be a URL"),
        ("", "must be a URL"),
        ("nothing://bucket/a", "cannot be opened"),
        ("/", "names no folder"),
    ],
)
def test_an_address_that_cannot_be_used_is_one_line(url, reason, run, refused):
    assert reason in refused("push", run, url)


WITHOUT_S3FS = """
import sys
sys.modules["s3fs"] = None
from zoerefine.cli import main
code = main(sys.argv[1:])
sys.exit(1 if "torch" in sys.modules else code)
"""


def test_a_missing_package_is_one_line_and_torch_is_not_loaded(run):
    done = run_new_python(WITHOUT_S3FS, "runs", "push", run, "s3://bucket/a", exit_code=2)
    assert done.stderr.count("\n") == 1
    assert "pip install 'zoerefine[archive]'" in done.stderr


def test_infer_and_analyze_take_a_run_that_came_back(exported_run, world, bucket, command):
    url = command("push", exported_run.path, bucket.url).out
    back = command("pull", "--runs", "back", url.strip()).out.strip()
    assert contents(Path(back)) == contents(exported_run.path)

    frames = ("--rgb", str(world / habitatdyn.RGB), "--depth", str(world / habitatdyn.ZOE))
    for name, run in (("out/original", str(exported_run.path)), ("out/back", back)):
        assert main(["infer", run, *frames, "--out", name]) == 0
    original, pulled = (
        {file: data for file, data in contents(Path(name)).items() if file.endswith(b".png")}
        for name in ("out/original", "out/back")
    )
    assert original == pulled and len(original) == 16
    assert main(["analyze", back, "--out", "report"]) == 0
    assert Path("report/report.html").exists()
