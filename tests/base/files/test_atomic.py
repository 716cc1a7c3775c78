"""Files are written whole or not at all, even when their writer is killed."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.processes import kills
from zoerefine.base.errors import UserError
from zoerefine.base.files import atomic
from zoerefine.base.files.file_lock import lock
from zoerefine.lab.launch.git.changes import uncommitted_files

KILLS = kills(3)
WRITER = """
import sys
from zoerefine.base.files.atomic import write_text
while True:
    for letter in "ab":
        write_text(sys.argv[1], letter * 300_000)
"""


def test_a_killed_writer_leaves_one_whole_version(tmp_path, wait_until):
    path = tmp_path / "file"
    rng = random.Random(0)
    for _ in range(KILLS):
        path.unlink(missing_ok=True)
        writer = subprocess.Popen([sys.executable, "-c", WRITER, path])
        wait_until(path.exists, writer)
        time.sleep(rng.uniform(0, 0.05))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        assert path.read_text() in ("a" * 300_000, "b" * 300_000)


def test_an_error_leaves_the_old_file_and_no_temporary_file(tmp_path):
    path = tmp_path / "file.json"
    atomic.write_json(path, {"a": 1})
    with pytest.raises(RuntimeError), atomic.replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == '{\n  "a": 1\n}\n'
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_replaced_whole(tmp_path):
    path = tmp_path / "folder"
    for name in ("first", "second"):
        with atomic.replacing_folder(path) as temporary:
            (temporary / name).touch()
    assert [p.name for p in path.iterdir()] == ["second"]
    with pytest.raises(RuntimeError), atomic.replacing_folder(path) as temporary:
        raise RuntimeError
    assert [p.name for p in path.iterdir()] == ["second"]
    assert list(tmp_path.iterdir()) == [path]


def test_digests_depend_only_on_content(tmp_path):
    assert atomic.digest_json({"b": 1, "a": [2.0]}) == atomic.digest_json({"a": [2.0], "b": 1})
    assert atomic.digest_json({"a": 1}) != atomic.digest_json({"a": 2})
    (tmp_path / "x").write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert atomic.digest_file(tmp_path / "x") == known


def test_git_ignores_a_created_folder_for_outputs_and_an_existing_one_is_left_alone(tmp_path):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    atomic.create_ignored_folder(tmp_path / "out" / "caches")
    (tmp_path / "out" / "caches" / "records.bin").write_text("")
    assert uncommitted_files(tmp_path) == []
    (tmp_path / "mine").mkdir()
    atomic.create_ignored_folder(tmp_path / "mine")
    assert list((tmp_path / "mine").iterdir()) == []
    with pytest.raises(UserError, match="file/inside cannot be created: Not a directory"):
        (tmp_path / "file").write_text("")
        atomic.create_ignored_folder(tmp_path / "file" / "inside")


def test_a_shells_pipe_is_read_once_and_a_pipe_in_a_folder_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "link"):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to("pipe")
        with pytest.raises(UserError, match=f"{name} is a pipe: give a file"):
            atomic.read_given_file(tmp_path / name, 9)
    with pytest.raises(UserError, match="pipe is not a regular file"):
        atomic.digest_file(tmp_path / "pipe")
    with pytest.raises(UserError, match="pipe is a pipe, not a lock file"), lock(tmp_path / "pipe"):
        pass
    with pytest.raises(UserError, match="/dev/zero has more than 9 bytes"):
        atomic.read_given_file("/dev/zero", 9)
    assert atomic.read_given_file("/dev/null", 9) == b""
    reader, writer = os.pipe()
    given = f"/dev/fd/{reader}"  # what `<(command)` gives
    late = subprocess.Popen(["bash", "-c", f"sleep 0.2; printf text >&{writer}"], pass_fds=[writer])
    os.close(writer)
    assert atomic.read_given_file(given, 9) == b"text"
    late.wait()
    with pytest.raises(UserError, match="a pipe that gives nothing"):
        atomic.read_given_file(given, 9)
    os.close(reader)
