"""The run directory: states, the lock, and incomplete or damaged files."""

import subprocess

import pytest

from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import RUN_FOLDER, RunDir
from zoerefine.lab.launch.git.changes import uncommitted_files


def test_writing_records_how_the_run_ended(tmp_path):
    run = RunDir(tmp_path / "run")
    assert run.status().state == "killed"
    with run.writing():
        assert run.status().state == "running"
    assert run.status().state == "finished"
    with pytest.raises(ZeroDivisionError), run.writing():
        _ = 1 / 0
    assert (run.status().state, run.status().reason) == ("failed", "division by zero")


def test_only_one_process_writes_and_a_killed_one_is_recognized(tmp_path, writer):
    run = RunDir(tmp_path / "run")
    holder = writer(run.path)
    assert run.status().state == "running"
    with pytest.raises(UserError, match="being written by another process"), run.writing():
        pass
    holder.kill()
    holder.wait()
    assert run.status().state == "killed"
    with run.writing():
        pass
    assert run.status().state == "finished"


def test_in_the_job_of_a_launcher_lock_and_status_are_left_to_the_launcher(tmp_path, monkeypatch):
    run = RunDir(tmp_path / "run")
    monkeypatch.setenv(RUN_FOLDER, str(run.path))
    with run.writing():
        assert not run.status_file.exists()


def test_an_incomplete_last_row_is_left_out(tmp_path):
    run = RunDir(tmp_path)
    run.metrics_file.write_text('{"step": 1}\n{"step": 2}\n{"ste')
    assert run.metrics() == [{"step": 1}, {"step": 2}]


def test_a_missing_file_is_named(tmp_path):
    run = RunDir(tmp_path)
    with pytest.raises(UserError, match=r"has no results\.json"):
        run.read_json(run.results_file)


def test_git_ignores_a_run_root_that_the_run_creates(tmp_path):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    with RunDir(tmp_path / "runs" / "name" / "id").writing():
        pass
    assert uncommitted_files(tmp_path) == []
    own = tmp_path / "mine"
    own.mkdir()  # the user's own folder gets no file
    with RunDir(own / "name" / "id").writing():
        pass
    assert [path.name for path in own.iterdir()] == ["name"]


def test_a_run_directory_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    run = RunDir(tmp_path / "file" / "name" / "id")
    with pytest.raises(UserError, match="file/name/id cannot be created: Not a directory"):
        run.create()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "3", "{", "[" * 100_000, '{"state": 5}', '{"state": "lost"}', '{"stat": "failed"}',
     '{"state": "failed", "started": "x"}', '{"state": "running", "surprise": 1}'],
)  # fmt: skip
def test_a_damaged_status_is_one_sentence(tmp_path, text):
    run = RunDir(tmp_path)
    run.status_file.write_text(text)
    with pytest.raises(
        UserError, match=r"status\.json is damaged.*put back a copy of it, or delete"
    ):
        run.status()


def test_a_run_of_a_clock_before_1970_is_read(tmp_path):
    run = RunDir(tmp_path)
    run.status_file.write_text('{"state": "finished", "started": -3600.5, "ended": -3590}')
    assert (run.status().state, run.status().started) == ("finished", -3600.5)


@pytest.mark.parametrize("data", [b"", b"[]", b"3", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_json_file_of_a_run_is_one_sentence(tmp_path, data):
    run = RunDir(tmp_path)
    run.provenance_file.write_bytes(data)
    with pytest.raises(
        UserError, match=r"provenance\.json is damaged.*put back a copy of it, or delete"
    ):
        run.read_json(run.provenance_file)


@pytest.mark.parametrize("row", [b"{", b"3", b"\xff", b"[" * 100_000])
def test_a_damaged_row_of_the_metrics_is_named(tmp_path, row):
    run = RunDir(tmp_path)
    run.metrics_file.write_bytes(b'{"step": 1}\n' + row + b"\n")
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 2 is damaged"):
        run.metrics()


def test_the_next_writer_removes_what_a_killed_one_left_half_written(tmp_path):
    run = RunDir(tmp_path / "runs" / "a" / "1")
    run.checkpoints.mkdir(parents=True)
    left = [run.path / ".status.json.0123abcd.tmp", run.checkpoints / ".step-01-a.pt.0123abcd.tmp"]
    others = [run.path / "..labels.json.0123abcd.tmp", run.path / ".mine.tmp"]
    for path in (*left, *others):
        path.touch()
    with run.locked():
        assert [path.exists() for path in (*left, *others)] == [False, False, True, True]
